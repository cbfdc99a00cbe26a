"""The figures behind curves: what training runs logged, and PSNR against rate or density."""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tersense.errors import TersenseError, one_line
from tersense.experiments.tables import OVERLAPPING, OWN
from tersense.io.files import read_text

AXES = ("rate", "density")
PAPER = "the paper, its first set"
# What can go wrong with JSON that is not what it should be.
_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass
class Curve:
    """Points to be joined by a line.

    Args:
        name: In the legend.
        x: Their places, rising.
        y: Their heights.
    """

    name: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        self.x.append(x)
        self.y.append(y)

    def sort(self) -> "Curve":
        """Put the points in rising order of x."""
        pairs = sorted(zip(self.x, self.y, strict=True))
        self.x, self.y = [x for x, _ in pairs], [y for _, y in pairs]
        return self


def read_training(run: str | Path) -> dict[str, Curve]:
    """Read what a training run logged.

    Args:
        run: The folder of a training run, or its `metrics.jsonl`.

    Returns:
        `loss` and `validation_psnr` against the step, those of them that were logged.
    """
    path = Path(run) / "metrics.jsonl" if Path(run).is_dir() else Path(run)
    name = path.parent.resolve().name if path.name == "metrics.jsonl" else path.stem
    curves: dict[str, Curve] = {}
    lines = read_text(path).splitlines()
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            step = float(entry["step"])
            values = {key: float(entry[key]) for key in ("loss", "validation_psnr") if key in entry}
        except _WRONG as error:
            if number == len(lines):  # the training was killed while it wrote
                break
            raise TersenseError(f"{path} is no log of a training run: line {number}") from error
        for key, value in values.items():
            curves.setdefault(key, Curve(name)).add(step, value)
    if not curves:
        raise TersenseError(f"{path} holds no loss and no validation; train for an epoch at least")
    return curves


def read_figures(paths: list[Path], against: str) -> list[Curve]:
    """Read PSNR against rate or density from the files of `reproduce` and `evaluate --json`.

    Of a table, the overlapping protocol is taken where it was measured, as the paper did. Files of
    `evaluate` are joined if they differ in the rate of the model only (`own-r10`, `own-r25`).
    Figures that were made in different ways (budget, images, stride) are refused.

    Args:
        paths: JSON files, of either kind.
        against: rate or density.
    """
    if against not in AXES:
        raise TersenseError(f"PSNR is drawn against {' or '.join(AXES)}, not {against!r}")
    curves: dict[str, Curve] = {}
    made: dict[str, dict[str, Any]] = {}
    for path in paths:
        text = read_text(path)
        try:
            result = json.loads(text)
            if "rows" in result:
                title = f"{result['table']}: " if len(paths) > 1 else ""
                _add_table(curves, title, result, against)
            else:
                _add_evaluation(curves, result, against)
            _require_alike(made, result)
        except TersenseError as error:
            raise TersenseError(f"{path}: {error}") from error
        except _WRONG as error:
            raise TersenseError(
                f"{path} is no result of reproduce or of evaluate --json: {one_line(error)}"
            ) from error
    if not any(len(set(curve.x)) > 1 for curve in curves.values()):
        raise TersenseError(f"these figures are all of one {against}; give files of several")
    return [curve.sort() for curve in curves.values()]


def _require_alike(made: dict[str, dict[str, Any]], result: dict[str, Any]) -> None:
    """Refuse figures that were made in another way than those before them."""
    if "rows" in result:
        kind, protocol = "tables", result["rows"][0]["protocol"]
        train, data = (protocol["config"].get(section, {}) for section in ("train", "data"))
        conditions = {f"train.{key}": train.get(key) for key in ("epochs", "seconds", "batch")}
        conditions |= {f"data.{key}": value for key, value in data.items()}
        conditions |= {key: protocol.get(key) for key in ("quick", "tests", "protocols")}
        conditions |= {f"images of {k}": v for k, v in protocol.get("pictures", {}).items()}
    else:
        kind = f"evaluations of {result['data']}, {result['protocol']}"
        conditions = {"images": [image["name"] for image in result.get("images", [])]}
        if result["protocol"] == OVERLAPPING:
            conditions["stride"] = result["stride"]
    before = made.setdefault(kind, conditions)
    for key, value in conditions.items():
        if before.get(key, value) != value:
            said = "" if "images" in key else f", {value} and not {before[key]}"
            raise TersenseError(f"made with other {key} than the file before{said}; draw it apart")


def table_curves(result: dict[str, Any], against: str) -> list[Curve]:
    """Return the curves of one table of `reproduce`, the paper's figures the last."""
    curves: dict[str, Curve] = {}
    _add_table(curves, "", result, against)
    return [curve.sort() for curve in curves.values()]


def _add_table(curves: dict[str, Curve], title: str, result: dict[str, Any], against: str) -> None:
    published = Curve(PAPER)
    for row in result["rows"]:
        place = float(row["protocol"]["config"]["sensing"][against])
        for name, figures in row["sets"].items():
            protocol = OVERLAPPING if OVERLAPPING in figures else OWN
            _add_point(curves, f"{title}{name}, {protocol}", place, figures[protocol])
        if row["published"][0] is not None:
            published.add(place, float(row["published"][0]))
    if published.x:
        curves.setdefault(PAPER, published)


def _add_evaluation(curves: dict[str, Curve], result: dict[str, Any], against: str) -> None:
    if against != "rate":
        raise TersenseError("files of evaluate tell the rate; for density give a table's JSON")
    family = re.sub(r"-r\d+$", "", result["model"])
    name = f"{family}: {result['data']}, {result['protocol']}"
    _add_point(curves, name, float(result["rate"]), result)


def _add_point(curves: dict[str, Curve], name: str, x: float, figures: dict[str, Any]) -> None:
    value = figures["mean"]["psnr"]
    if value is not None and math.isfinite(value):
        curves.setdefault(name, Curve(name)).add(x, float(value))
