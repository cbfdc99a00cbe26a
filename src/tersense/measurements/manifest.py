"""The page that goes with every export: what the numbers mean, and a checksum of every file.

Orders are the same in all exports. *Pixels* of a window count row by row from its upper left
corner (`raster`). *Rows* of Φ, that is measurements of a window, count as in the model
(`natural`). *Windows* of an image count row by row (`raster`); window (i, j) begins at pixel
(i·S − offset, j·S − offset), and pixels outside the image add nothing.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from tersense import __version__
from tersense.errors import TersenseError
from tersense.io.files import read_text, written_whole
from tersense.io.schema import above, at_least, at_most, build
from tersense.sensing.geometry import Geometry

FORMAT = 1
NAME = "manifest.json"
PIXEL_ORDER = WINDOW_ORDER = "raster"
ROW_ORDER = "natural"
_KEYS = {"rows": "patterns"}  # what the file calls a field


@dataclass(frozen=True)
class Manifest:
    """What an export says about itself.

    Args:
        kind: Of the export.
        model: The camera's name.
        window: B.
        stride: S.
        offset: By how many pixels the first window begins before the image.
        rows: m, the rows of Φ (`patterns` in the file).
        rate: m/S², measurements per pixel.
        nonzeros: Of all patterns together.
        nonzeros_per_pattern: The least and the most; equal where every pattern has K.
        accumulator_bits: Of a two's-complement accumulator that no image overflows.
        mean: μ, and
        std: σ of normalized pixels: (y − μ·Φ⋆1)/σ goes into the reconstruction.
        alpha: (m,), the scale of each pattern.
        phi: The hash of Φ.
        files: Size and SHA-256 of every other file of the export.
        details: What belongs to this kind alone.
        pixel_bits: Bits of a pixel, 8 to 16.
    """

    kind: str
    model: str
    window: Annotated[int, at_least(1)]
    stride: Annotated[int, at_least(1)]
    offset: Annotated[int, at_least(0)]
    rows: Annotated[int, at_least(1)]
    rate: Annotated[float, above(0)]
    nonzeros: Annotated[int, at_least(0)]
    nonzeros_per_pattern: tuple[int, ...]
    accumulator_bits: Annotated[int, at_least(1), at_most(32)]
    mean: float
    std: Annotated[float, above(0)]
    alpha: tuple[float, ...]
    phi: str
    files: dict[str, dict[str, Any]]
    details: dict[str, Any] = field(default_factory=dict)
    pixel_bits: int = 8
    pixel_order: str = PIXEL_ORDER
    row_order: str = ROW_ORDER
    window_order: str = WINDOW_ORDER
    format: int = FORMAT
    tersense: str = __version__

    def __post_init__(self) -> None:
        geometry = Geometry(self.window, self.stride)
        orders = self.pixel_order, self.row_order, self.window_order
        fewest, most = self.nonzeros_per_pattern
        right = {
            "offset": self.offset == geometry.offset,
            "rate": abs(self.rate * self.stride**2 - self.rows) < 1e-6,
            "alpha": len(self.alpha) == self.rows,
            "nonzeros": fewest * self.rows <= self.nonzeros <= most * self.rows,
            "phi": len(bytes.fromhex(self.phi)) == 32,
            "order": orders == (PIXEL_ORDER, ROW_ORDER, WINDOW_ORDER),
            "pixel_bits": 8 <= self.pixel_bits <= 16,
        }
        for name, holds in right.items():
            if not holds:
                raise ValueError(f"its {name} cannot be right")

    def write(self, folder: Path) -> None:
        """Write `manifest.json` into the folder of the export."""
        with written_whole(folder / NAME) as partial:
            content = {_KEYS.get(key, key): value for key, value in asdict(self).items()}
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path, check_files: bool = True) -> "Manifest":
        """Read the manifest of an export and check it, by default with every file that it names.

        Args:
            path: The folder of the export, or the manifest itself.
            check_files: Whether the other files must be there as they were written.
        """
        path = Path(path) / NAME if Path(path).is_dir() else Path(path)
        text = read_text(path)
        try:
            content = json.loads(text)
            manifest = build("manifest", cls, _known(content), _KEYS)
            if check_files:
                _check_files(manifest.files, path.parent)
        except OSError as error:
            raise TersenseError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise TersenseError(f"{path} is not a usable manifest: {_reason(error)}") from error
        return manifest


def _known(content: Any) -> dict[str, Any]:
    """Return the fields of a manifest; entries of a later program are left out."""
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise ValueError("it has no format version")
    if content["format"] > FORMAT:
        raise ValueError(
            f"its format {content['format']} is newer than {FORMAT}, the newest known here; "
            "update tersense"
        )
    counts = content.get("nonzeros_per_pattern")
    if not isinstance(counts, list) or len(counts) != 2:
        raise ValueError(f"its nonzeros_per_pattern must be two numbers, got {counts!r}")
    return {f.name: content[_KEYS.get(f.name, f.name)] for f in fields(Manifest)}


def _reason(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:300]


def fingerprints(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _fingerprint(path) for path in paths}


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:  # frames of a mirror device may be large
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _check_files(files: dict[str, Any], folder: Path) -> None:
    for name, expected in files.items():
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"the file {name} lies outside of its folder")
        if not (folder / name).is_file():
            raise ValueError(f"the file {name} is missing")
        if _fingerprint(folder / name) != expected:
            raise ValueError(f"the file {name} was changed or damaged")
