"""What the camera read out: exact integers, and the file that keeps them.

A measurement file (`.tsm`) is a safetensors file. It holds one tensor `y`, in the smallest integer
type that fits, and one metadata entry `tersense`: a JSON object with everything needed to read it.
The checksum in it covers every byte of the file, its own 64 digits taken as zeros.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tersense.errors import TersenseError
from tersense.files import written_whole
from tersense.sensing import Geometry

VERSION = 1
_CHECKSUM = re.compile(rb"sha256:([0-9a-f]{64})")
_BLANK = b"0" * 64


@dataclass(frozen=True)
class Header:
    """How the measurements were made.

    Args:
        height: H of the picture.
        width: V of the picture.
        mode: `L` for gray, `RGB` for colour.
        window: W.
        stride: S.
        patterns: m.
        phi: Hash of the patterns (`Patterns.hash`).
        version: Of the file format.
    """

    height: int
    width: int
    mode: str
    window: int
    stride: int
    patterns: int
    phi: str
    version: int = VERSION

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of y: (m, h, w), or (3, m, h, w) in colour."""
        grid = Geometry(self.window, self.stride).grid(self.height, self.width)
        gray = (self.patterns, *grid)
        return gray if self.mode == "L" else (3, *gray)


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one picture.

    Args:
        values: y, integers of shape (m, h, w), or (3, m, h, w) in colour.
        header: How they were made.
    """

    values: NDArray[Any]
    header: Header = field()

    def __post_init__(self) -> None:
        if self.values.dtype.kind != "i" or self.values.shape != self.header.shape:
            raise ValueError(
                f"measurements of this picture are integers of shape {self.header.shape}, "
                f"not {self.values.dtype} of {self.values.shape}"
            )

    @property
    def per_pixel(self) -> float:
        """Return the true number of measurements a pixel, partly filled windows included."""
        pixels = self.header.height * self.header.width * (1 if self.header.mode == "L" else 3)
        return self.values.size / pixels

    def to_bytes(self) -> bytes:
        """Return the content of a measurement file."""
        compact = self.values.astype(_smallest_type(self.values))
        header = asdict(self.header) | {"checksum": "sha256:" + _BLANK.decode()}
        blank = save({"y": compact}, {"tersense": json.dumps(header, sort_keys=True)})
        return _CHECKSUM.sub(b"sha256:" + _digest(blank), blank, count=1)

    def save(self, path: str | Path) -> None:
        """Write a measurement file (`.tsm`), whole or not at all."""
        content = self.to_bytes()
        with written_whole(path) as partial:
            partial.write_bytes(content)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Measurements":
        """Read the content of a measurement file, checking all of it first."""
        found = _CHECKSUM.search(content)
        if not found:
            raise TersenseError("not a measurement file")
        blank = content[: found.start(1)] + _BLANK + content[found.end(1) :]
        if _digest(blank) != found[1]:
            raise TersenseError("the checksum does not match: the file is damaged")
        try:
            header = _read_header(content)
            return cls(load(content)["y"], header)
        except (KeyError, TypeError, ValueError, SafetensorError) as error:
            raise TersenseError(f"not a usable measurement file: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "Measurements":
        """Read a measurement file (`.tsm`)."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise TersenseError(f"cannot read {path}: {error.strerror}") from error
        except TersenseError as error:
            raise TersenseError(f"{path}: {error}") from error


def _read_header(content: bytes) -> Header:
    """Return the header, checked against itself; `content` has passed its checksum."""
    length = int.from_bytes(content[:8], "little")
    fields = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["tersense"])
    if fields["version"] > VERSION:
        raise TersenseError(
            f"file format {fields['version']} is newer than {VERSION}, the newest this program "
            "knows; update tersense"
        )
    fields.pop("checksum")
    header = Header(**fields)
    if header.mode not in ("L", "RGB") or min(header.height, header.width, header.patterns) < 1:
        raise TersenseError(f"the header is not consistent: {header}")
    return header


def _smallest_type(values: NDArray[Any]) -> np.dtype[Any]:
    lowest, highest = int(values.min(initial=0)), int(values.max(initial=0))
    fitting = (
        t
        for t in (np.int8, np.int16, np.int32, np.int64)
        if np.iinfo(t).min <= lowest and highest <= np.iinfo(t).max
    )
    return np.dtype(next(fitting))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
