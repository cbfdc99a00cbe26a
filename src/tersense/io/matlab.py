"""Read matrices from MATLAB files (versions 5 to 7): numbers only, every length checked.

The usual reader, scipy's, ends the whole program on some damaged files. A file is a header of 128
bytes and elements, each a tag (type, length) and its bytes; a matrix is an element that holds
others: flags, dimensions, name, values. Version 7 packs each matrix by deflate.
"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.io.files import require_file

_MATRIX, _PACKED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
          13: "u8"}  # fmt: skip
_SPARSE, _NUMERIC = 5, range(6, 16)  # classes of matrices; others are texts, cells, structures
_MAX_BYTES = 2**31
_HEAD = 2**12  # bytes that hold flags, dimensions and name


@dataclass(frozen=True)
class Matrix:
    """A matrix in a file, not read yet.

    Args:
        name: Of the variable.
        shape: Its dimensions.
        sparse: Whether only its non-zeros are stored.
        content: Its element, packed or not.
        packed: Whether it is packed.
        order: `<` or `>`, of its bytes.
    """

    name: str
    shape: tuple[int, ...]
    sparse: bool
    content: bytes
    packed: bool
    order: str

    def read(self) -> NDArray[Any]:
        """Return the values; the caller has looked at the shape."""
        most = 16 * math.prod(self.shape) + 8 * self.shape[-1] + 2 * _HEAD
        whole = _unpack(self.content, most) if self.packed else self.content
        parts = [_numbers(kind, part, self.order) for kind, part in _parts(whole, self.order)]
        if self.sparse:
            return self._spread(*parts[3:6])
        values = parts[3]
        if values.size != math.prod(self.shape):
            raise ValueError(f"{self.name} has {values.size} values for a shape of {self.shape}")
        return values.reshape(self.shape, order="F")

    def _spread(
        self, rows: NDArray[Any], starts: NDArray[Any], values: NDArray[Any]
    ) -> NDArray[Any]:
        """Put non-zeros, given column by column, into a full matrix."""
        height, width = self.shape
        counts = starts[1:].astype(np.int64) - starts[:-1].astype(np.int64)
        if len(starts) != width + 1 or starts[0] != 0 or (counts < 0).any():
            raise ValueError(f"the columns of {self.name} do not follow each other")
        used = int(starts[-1])
        if used > min(len(rows), len(values)):
            raise ValueError(f"{self.name} has fewer values than it says")
        if used and not 0 <= rows[:used].min() <= rows[:used].max() < height:
            raise ValueError(f"{self.name} has rows outside of it")
        full = np.zeros(self.shape, values.dtype)
        full[rows[:used], np.repeat(np.arange(width), counts)] = values[:used]
        return full


def list_matrices(path: Path) -> list[Matrix]:
    """Return the matrices of numbers in a file."""
    require_file(path, _MAX_BYTES)
    content = path.read_bytes()
    marks = {b"IM": "<", b"MI": ">"}
    if not content.startswith(b"MATLAB") or content[126:128] not in marks:
        raise TersenseError(f"{path} is no MATLAB file of version 5 to 7; save it with -v7")
    order = marks[content[126:128]]
    version = content[124:126] if order == ">" else content[125:123:-1]
    if version != b"\x01\x00":
        raise TersenseError(f"{path} is of MATLAB's version 7.3; save it with -v7")
    found = []
    for kind, element in _parts(content[128:], order, padded=False):
        packed = kind == _PACKED
        head = _unpack(element, _HEAD + 8) if packed else element[:_HEAD]
        if kind in (_MATRIX, _PACKED):
            found.append(_describe(head, element, packed, order))
    return [matrix for matrix in found if matrix]


def _describe(head: bytes, element: bytes, packed: bool, order: str) -> Matrix | None:
    """Read flags, dimensions and name; return nothing for what holds no numbers."""
    parts = _parts(head, order, whole=False)
    flags, sizes, name = (_numbers(*next(parts), order) for _ in range(3))
    kind = int(flags[0]) & 0xFF
    if kind != _SPARSE and kind not in _NUMERIC:
        return None
    shape = tuple(int(size) for size in sizes)
    if min(shape) < 0 or (kind == _SPARSE and len(shape) != 2):
        raise ValueError(f"impossible dimensions {shape}")
    text = bytes(name.astype(np.uint8)).decode("ascii", "replace")
    return Matrix(text, shape, kind == _SPARSE, element, packed, order)


def _unpack(element: bytes, most: int) -> bytes:
    """Return the inside of a packed matrix, at most so many bytes of it."""
    return zlib.decompressobj().decompress(element, most)[8:]


def _parts(
    content: bytes, order: str, padded: bool = True, whole: bool = True
) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the bytes of one element after the other.

    Args:
        content: Elements side by side.
        order: Of the bytes.
        padded: Whether each begins at a multiple of 8 bytes.
        whole: Whether all of it is there; otherwise the last may be cut off.
    """
    at = 0
    while at + 8 <= len(content):
        first, length = (int(n) for n in np.frombuffer(content, f"{order}u4", 2, at))
        if first >> 16:  # a short one: type and length share a word, four bytes follow
            kind, length, begin = first & 0xFFFF, first >> 16, at + 4
            if length > 4:
                raise ValueError(f"a short element of {length} bytes")
            step = 8
        else:
            kind, begin = first, at + 8
            step = 8 + (-(-length // 8) * 8 if padded else length)
        if whole and begin + length > len(content):
            raise ValueError(f"an element of {length:,} bytes is cut off")
        yield kind, content[begin : begin + length]
        at += step


def _numbers(kind: int, part: bytes, order: str) -> NDArray[Any]:
    if kind not in _TYPES:
        raise ValueError(f"no numbers are of type {kind}")
    return np.frombuffer(part, order + _TYPES[kind])
