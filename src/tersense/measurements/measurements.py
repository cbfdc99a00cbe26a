"""What the camera read out: exact integers, and the file that keeps them.

A measurement file (`.tsm`) is a safetensors file. It holds one tensor `y`, in the smallest integer
type that fits, and one metadata entry `tersense`: a JSON object, the header. The checksum in the
header covers every byte of the file, its own 64 digits taken as zeros.
"""

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, get_type_hints

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from tersense.errors import TersenseError
from tersense.io.files import require_file, written_whole
from tersense.sensing.operator import Geometry

VERSION = 1
_CHECKSUM = re.compile(rb"sha256:([0-9a-f]{64})")
_BLANK = b"0" * 64
_LONGEST_HEADER = 2**16
_LARGEST_NOISE = 1e7  # so that the noisiest measurement fits 32 bits
_TYPES: dict[str, np.dtype[Any]] = {
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
}


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
        bits: Of the readout, if it was quantised; 0 if it was exact.
        step: Of the quantiser: a value v stands for v·step. 1 if the readout was exact.
        noise: Standard deviation of the noise that was added, in units of a pixel value.
        seed: Of that noise.
        version: Of the file format.
    """

    height: int
    width: int
    mode: str
    window: int
    stride: int
    patterns: int
    phi: str
    bits: int = 0
    step: float = 1.0
    noise: float = 0.0
    seed: int = 0
    version: int = VERSION

    def __post_init__(self) -> None:
        for name, wanted in get_type_hints(type(self)).items():
            if type(getattr(self, name)) is not wanted:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not {wanted.__name__}")
        sizes = self.height, self.width, self.patterns, self.stride
        if min(sizes) < 1 or self.stride > self.window or self.mode not in ("L", "RGB"):
            raise ValueError(f"impossible geometry: {self}")
        if min(self.bits, self.noise, self.seed) < 0 or not math.isfinite(self.noise):
            raise ValueError(f"impossible readout: {self}")
        if not (math.isfinite(self.step) and self.step >= 1):
            raise ValueError(f"impossible step of the quantiser: {self.step}")

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
        values: Integers of shape (m, h, w), or (3, m, h, w) in colour: y itself, or the codes of
            a quantised readout, to be multiplied by `header.step`.
        header: How they were made.
    """

    values: NDArray[Any]
    header: Header

    def __post_init__(self) -> None:
        if self.values.dtype.kind != "i" or self.values.shape != self.header.shape:
            raise ValueError(
                f"measurements of this picture are integers of shape {self.header.shape}, "
                f"not {self.values.dtype} of {self.values.shape}"
            )

    @property
    def per_pixel(self) -> float:
        """Return the true number of measurements a pixel (of each channel, in colour).

        Windows that are partly outside the picture count in full.
        """
        pixels = self.header.height * self.header.width * (1 if self.header.mode == "L" else 3)
        return self.values.size / pixels

    @property
    def bits_per_pixel(self) -> float:
        """Return the bits of readout a pixel, as a plain stream of equally long numbers."""
        width = self.header.bits or 8 * _smallest_type(self.values).itemsize
        return self.per_pixel * width

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.values.shape))
        return (
            f"<Measurements {shape} of {self.header.height}×{self.header.width} {self.header.mode}>"
        )

    def with_noise(self, sigma: float, seed: int = 0) -> "Measurements":
        """Model a noisy sensor: add Gaussian noise, then read out whole numbers.

        Args:
            sigma: Standard deviation, in units of a pixel value (0 to 255).
            seed: The same seed gives the same noise.
        """
        if not 0 <= sigma <= _LARGEST_NOISE or seed < 0:
            raise ValueError(
                f"noise {sigma:g} with seed {seed}: noise lies between 0 and {_LARGEST_NOISE:g}, "
                "a seed is 0 or more"
            )
        if self.header.bits:
            raise ValueError("noise comes before the readout; add it before quantising")
        noise = np.random.default_rng(seed).normal(0.0, sigma, self.values.shape)
        noisy = np.rint(self.values + noise).astype(np.int32)
        return Measurements(noisy, replace(self.header, noise=float(sigma), seed=seed))

    def quantized(self, bits: int, full_scale: int) -> "Measurements":
        """Model a readout of few bits: a uniform quantiser that reaches ±`full_scale`.

        Args:
            bits: B, at least 2. The codes lie between −(2^(B−1) − 1) and 2^(B−1) − 1.
            full_scale: The largest magnitude to represent; what exceeds it is clipped.
        """
        if not 2 <= bits <= 32:
            raise ValueError(f"a readout has 2 to 32 bits, not {bits}")
        if self.header.bits:
            raise ValueError(
                f"these measurements were read out with {self.header.bits} bits before"
            )
        largest = 2 ** (bits - 1) - 1
        step = max(1.0, full_scale / largest)
        codes = np.clip(np.rint(self.values / step), -largest, largest).astype(np.int32)
        return Measurements(codes, replace(self.header, bits=bits, step=step))

    def to_bytes(self) -> bytes:
        """Return the content of a measurement file."""
        compact = np.ascontiguousarray(self.values.astype(_smallest_type(self.values)))
        header = asdict(self.header) | {"checksum": "sha256:" + _BLANK.decode()}
        content = save({"y": compact}, {"tersense": json.dumps(header, sort_keys=True)})
        at = _checksum_place(content[: 8 + _LONGEST_HEADER])
        return b"".join((content[:at], _digest(content, at), content[at + 64 :]))

    def save(self, path: str | Path) -> None:
        """Write a measurement file (`.tsm`), whole or not at all."""
        content = self.to_bytes()
        with written_whole(path) as partial:
            partial.write_bytes(content)

    @classmethod
    def load(cls, path: str | Path) -> "Measurements":
        """Read a measurement file (`.tsm`), checking all of it."""
        size = require_file(path)
        try:
            with Path(path).open("rb") as file:
                return _read(file, size)
        except OSError as error:
            raise TersenseError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise TersenseError(f"{path} is not a usable measurement file: {reason}") from error


@dataclass(frozen=True, eq=False)
class MeasuredValues:
    """What a real camera delivered: real numbers, and some perhaps not at all.

    Args:
        values: (m, h, w), or (3, m, h, w) in colour: y as far as it is known, NaN where it is
            missing.
        header: How they were made.
    """

    values: NDArray[np.floating[Any]]
    header: Header

    def __post_init__(self) -> None:
        if self.values.dtype.kind != "f" or self.values.shape != self.header.shape:
            raise ValueError(
                f"values of this picture are real numbers of shape {self.header.shape}, "
                f"not {self.values.dtype} of {self.values.shape}"
            )
        if np.isinf(self.values).any():
            raise ValueError("infinite measurements cannot be right; write NaN for missing ones")

    @property
    def missing(self) -> float:
        """Return the share of measurements that are missing."""
        return float(np.isnan(self.values).mean())


def _read(file: BinaryIO, size: int) -> Measurements:
    """Read measurements from a file of `size` bytes; nothing is allocated on its word alone."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(_LONGEST_HEADER, size - 8):
        raise ValueError("it does not begin like one")
    text = file.read(length)
    outer = json.loads(text)
    inner = json.loads(outer["__metadata__"]["tersense"])
    version = inner["version"]
    if type(version) is not int or version > VERSION:
        raise ValueError(
            f"its format {version} is newer than {VERSION}, the newest known here; update tersense"
        )
    tensor = outer["y"]
    dtype, shape = _TYPES[tensor["dtype"]], tuple(tensor["shape"])
    names = {field.name for field in fields(Header)}
    header = Header(**{key: value for key, value in inner.items() if key in names})
    if shape != header.shape:
        raise ValueError(f"y has shape {shape}, but its picture gives {header.shape}")
    count = math.prod(shape)
    if size != 8 + length + count * dtype.itemsize:
        raise ValueError(f"it has {size} bytes, not {8 + length + count * dtype.itemsize}")
    if tensor["data_offsets"] != [0, count * dtype.itemsize] or len(outer) != 2:
        raise ValueError("it holds something else than y")
    content = start + text + file.read()
    at = _checksum_place(start + text)
    if _digest(content, at) != content[at : at + 64]:
        raise ValueError("the checksum does not match, the file is damaged")
    values = np.frombuffer(content, dtype.newbyteorder("<"), offset=8 + length)
    return Measurements(values.astype(dtype).reshape(shape), header)


def _checksum_place(head: bytes) -> int:
    """Return where the 64 digits of the checksum begin."""
    found = _CHECKSUM.search(head)
    if not found:
        raise ValueError("it has no checksum")
    return found.start(1)


def _digest(content: bytes, at: int) -> bytes:
    """Return the checksum of a file whose own checksum stands at `at`."""
    digest = hashlib.sha256(memoryview(content)[:at])
    digest.update(_BLANK)
    digest.update(memoryview(content)[at + 64 :])
    return digest.hexdigest().encode()


def _smallest_type(values: NDArray[Any]) -> np.dtype[Any]:
    """Return the narrowest of int8, int16 and int32 that holds all values."""
    lowest, highest = int(values.min()), int(values.max())
    for candidate in _TYPES.values():
        if np.iinfo(candidate).min <= lowest and highest <= np.iinfo(candidate).max:
            return candidate
    raise ValueError(f"measurements from {lowest} to {highest} do not fit 32 bits")
