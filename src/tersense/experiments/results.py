"""The results that experiments have left on disk, gathered for comparison."""

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tersense.errors import TersenseError
from tersense.experiments.matrices import describe_patterns
from tersense.experiments.tables import OVERLAPPING, OWN
from tersense.io.files import read_text
from tersense.models.zoo import load

# What can go wrong with JSON that is not what it should be.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_SEED = re.compile(r"-seed(\d+)$")


class Missing(Exception):  # noqa: N818
    """Rows that a comparison needs and that have not been measured."""

    def __init__(self, rows: Iterable[str]) -> None:
        super().__init__()
        self.rows = list(rows)


def read_result(path: Path, keys: Iterable[str] = ("protocol", "sets")) -> dict[str, Any]:
    """Read a `result.json`, or another file with these keys."""
    try:
        result = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise TersenseError(f"{path} is damaged; remove it to measure again") from error
    if not isinstance(result, dict) or not set(keys) <= result.keys():
        raise TersenseError(f"{path} is no result of reproduce; remove it to measure again")
    return result


class Results:
    """All results below a folder, of one seed; a row may have been measured in parts.

    Args:
        folder: Where `reproduce` put them, or a folder of such folders.
        seed: Of the training runs.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.quick = folder, False
        self._rows: dict[str, dict[str, Any]] = {}
        self._from: dict[tuple[str, str, str], Path] = {}
        for path in sorted(folder.rglob("result.json")):
            name, found = path.parent.name, _SEED.search(path.parent.name)
            if int(found[1] if found else 0) == seed:
                try:
                    self._add(_SEED.sub("", name), path)
                except TersenseError:
                    raise
                except WRONG as error:
                    raise TersenseError(
                        f"{path} is no result of reproduce; remove it to measure again"
                    ) from error
        if not self._rows:
            raise TersenseError(
                f"{folder} holds no results of seed {seed}; make some with tersense reproduce, or "
                "name another folder with --out"
            )

    def _add(self, name: str, path: Path) -> None:
        result = read_result(path)
        self.quick |= bool(result["protocol"].get("quick"))
        row = self._rows.setdefault(name, {**result, "sets": {}, "folder": path.parent})
        for test, figures in result["sets"].items():
            for protocol, figure in figures.items():
                before = self._from.setdefault((name, test, protocol), path)
                if before != path:
                    raise TersenseError(
                        f"{before} and {path} both hold {name} on {test}; name one folder with "
                        "--out"
                    )
                row["sets"].setdefault(test, {})[protocol] = figure

    def require(self, *names: str) -> list[dict[str, Any]]:
        """Return rows, or say which of them are missing."""
        missing = [name for name in names if name not in self._rows]
        if missing:
            raise Missing(missing)
        return [self._rows[name] for name in names]

    def psnr(self, *names: str, protocol: str = "") -> tuple[str, dict[str, list[float]]]:
        """Compare rows on the sets where all were measured by one protocol.

        Args:
            names: The rows.
            protocol: Which; where not given the paper's, overlapping windows, if there is a set
                where all rows have it, and otherwise the camera's own geometry.

        Returns:
            The protocol, and of each set the mean PSNR of every row.
        """
        rows = self.require(*names)
        for wanted in [protocol] if protocol else [OVERLAPPING, OWN]:
            every = [
                {test: f[wanted]["mean"]["psnr"] for test, f in row["sets"].items() if wanted in f}
                for row in rows
            ]
            common = [test for test in every[0] if all(f.get(test) is not None for f in every)]
            if common:
                return wanted, {test: [figures[test] for figures in every] for test in common}
        raise Missing(names)

    def seconds(self, *names: str) -> list[float]:
        """Return the median seconds per image of rows, own geometry, on a set that all have."""
        rows = self.require(*names)
        sets = [{t for t, f in row["sets"].items() if OWN in f} for row in rows]
        common = sorted(set.intersection(*sets))
        if not common:
            raise Missing(names)
        images = [row["sets"][common[0]][OWN]["images"] for row in rows]
        return [statistics.median(image["seconds"] for image in row) for row in images]

    def matrix(self, name: str) -> dict[str, Any]:
        """Return the figures of the matrix of a row, from its model where the result has none."""
        (row,) = self.require(name)
        if "matrix" in row:
            matrix: dict[str, Any] = row["matrix"]
            return matrix
        if not (row["folder"] / "model.safetensors").is_file():
            raise Missing([name])
        patterns = load(row["folder"]).patterns
        return {"rows": len(patterns), "pixels": patterns.window**2} | describe_patterns(patterns)
