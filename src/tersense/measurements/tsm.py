"""The measurement file (`.tsm`): exact integers and the header that says how they were made.

It is a safetensors file. It holds one tensor `y` and one metadata entry `tersense`: a JSON object,
the header. Exact values are integers of the smallest type that fits. Codes of B bits are packed
into a plain stream of bytes (see `packing`); where each row of Φ has a step of its own, a tensor
`steps` holds them, and a tensor `offsets` where codes are counted from. Where windows differ in how
many measurements they took, a tensor `counts` holds these, deflated (see `counts`), and y is one
stream: window after window, the first m_b values of each. The checksum in the header covers every
byte of the file, its own 64 digits taken as zeros.

Format 2 is written only where programs that know format 1 would read the file wrongly: for packed
codes, for counts per window, for pixels of more than 8 bits, and for color differences; format 4
for the same reason, where there are offsets. Format 3 is another file, for the same content in
fewer bytes: see `codec`.
"""

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from tersense.errors import TersenseError
from tersense.io.deep import DEEPEST, USUAL, largest_pixel
from tersense.io.schema import at_least, at_most, build, validate
from tersense.measurements.counts import (
    Counts,
    compress,
    count_all,
    decompress,
    from_stream,
    to_stream,
)
from tersense.measurements.packing import pack, packed_size, unpack
from tersense.measurements.readout import Readout
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

VERSION = 4  # the newest that is read
PACKED = 2  # the first format that packs codes
COUNTED = 2  # the first format with counts per window
_DEEP_VERSION = 2
_CODED = 3  # the format of coded files
OFFSET = 4  # the first format with offsets
CODED_MAGIC = b"\x89TSM"  # how coded files begin (see `codec`)
_CHECKSUM = re.compile(rb"sha256:([0-9a-f]{64})")
_BLANK = b"0" * 64
_LONGEST_HEADER = 2**16
MAX_PIXELS = 2**28  # of an image, unless the caller says otherwise
_TYPES: dict[str, np.dtype[Any]] = {
    "I8": np.dtype(np.int8),
    "I16": np.dtype(np.int16),
    "I32": np.dtype(np.int32),
}
_OF_ROWS: dict[str, dict[str, np.dtype[Any]]] = {  # what belongs to a row of Φ
    "steps": {"U16": np.dtype(np.uint16), "I32": np.dtype(np.int32)},
    "offsets": _TYPES,
}
_Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]  # types and shapes of tensors
_KEYS = {"rows": "patterns"}  # what the file calls a field


@dataclass(frozen=True)
class Header:
    """How the measurements of one image were made.

    Args:
        height: H of the image.
        width: W of the image.
        mode: `L` for gray, `RGB` for color, `YCC` for brightness and differences (see `color`).
        window: B.
        stride: S.
        rows: m, the rows of Φ: measurements per window.
        phi: Hash of Φ (`Patterns.hash`).
        readout: Noise and bits; exact integers by default.
        version: Of the file format: 1, or 2 or 4 where something needs it.
        depth: Bits per pixel of the image.
    """

    height: Annotated[int, at_least(1)]
    width: Annotated[int, at_least(1)]
    mode: Literal["L", "RGB", "YCC"]
    window: Annotated[int, at_least(1)]
    stride: Annotated[int, at_least(1)]
    rows: Annotated[int, at_least(1)]
    phi: str
    readout: Readout = field(default_factory=Readout)
    version: Annotated[int, at_least(1), at_most(VERSION)] = 1
    depth: Annotated[int, at_least(USUAL), at_most(DEEPEST)] = USUAL

    def __post_init__(self) -> None:
        validate("header", self)
        if self.depth != USUAL or self.mode == "YCC":
            object.__setattr__(self, "version", max(self.version, _DEEP_VERSION))
        if self.readout.offsets:
            object.__setattr__(self, "version", OFFSET)
        Geometry(self.window, self.stride)
        steps = self.readout.steps
        if min(self.readout.step, *steps, 1) < 1:
            raise ValueError(f"header.step must be at least 1, got {self.readout.step:g}")
        if steps and (len(steps) != self.rows or any(step % 1 for step in steps)):
            raise ValueError(f"header.steps must be {self.rows} whole numbers, got {len(steps)}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of y: (m, h, w), or (3, m, h, w) in color."""
        grid = Geometry(self.window, self.stride).grid(self.height, self.width)
        gray = (self.rows, *grid)
        return gray if self.channels == 1 else (self.channels, *gray)

    @property
    def channels(self) -> int:
        """How many channels the image has: 1, or 3 in color."""
        return 1 if self.mode == "L" else 3

    @property
    def packed(self) -> bool:
        """Whether the file keeps codes as a stream of bits."""
        return self.version >= PACKED and self.readout.bits > 0

    @property
    def largest_pixel(self) -> int:
        """The largest value that a pixel can have."""
        return largest_pixel(self.depth)

    def require_taken_with(self, patterns: Patterns, name: str) -> None:
        """Refuse measurements that another camera has taken than `name`, which has these."""
        if self.phi != patterns.hash:
            raise TersenseError(
                f"these measurements were taken with patterns {self.phi[:12]}…, but "
                f"{name} has {patterns.hash[:12]}…; use the model that sensed them "
                "(`tersense info` names it where it is built in)"
            )
        own = self.window, self.stride, self.rows
        if own != (patterns.window, patterns.stride, len(patterns)):
            raise TersenseError(
                f"these measurements have window {self.window}, stride {self.stride} and "
                f"{self.rows} rows, but {name} has {patterns.window}, {patterns.stride} and "
                f"{len(patterns)}; use the model that sensed them"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the header as the file keeps it, all in one flat table."""
        unsaid = {"readout"} | ({"depth"} if self.depth == USUAL else set())
        flat = {key: value for key, value in asdict(self).items() if key not in unsaid}
        return {_KEYS.get(key, key): value for key, value in flat.items()} | self.readout.to_dict()

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Header":
        """Build the header from what a file says; entries of a later program are left out."""
        readout = {f.name: content[f.name] for f in fields(Readout)
                   if f.name in content and f.name not in _OF_ROWS}  # fmt: skip
        named = ((f.name, _KEYS.get(f.name, f.name)) for f in fields(cls) if f.name != "readout")
        own = {name: content[key] for name, key in named if key in content}
        return replace(build("header", cls, own, _KEYS), readout=build("header", Readout, readout))


def encode(values: NDArray[Any], header: Header, counts: Counts | None = None) -> bytes:
    """Return the content of a measurement file."""
    tensors, described = _tensors(values, header, counts), header.to_dict()
    described = {key: value for key, value in described.items() if key not in _OF_ROWS}
    described["checksum"] = "sha256:" + _BLANK.decode()
    content = save(tensors, {"tersense": json.dumps(described, sort_keys=True)})
    at = _checksum_place(content[: 8 + _LONGEST_HEADER])
    return b"".join((content[:at], _digest(content, at), content[at + 64 :]))


def _tensors(
    values: NDArray[Any], header: Header, counts: Counts | None
) -> dict[str, NDArray[Any]]:
    tensors = {}
    if counts is not None:
        values, tensors["counts"] = to_stream(values, counts), compress(counts)
    if not header.packed:
        return tensors | {"y": np.ascontiguousarray(values.astype(smallest_type(values)))}
    return tensors | _of_rows(header.readout) | {"y": pack(values, header.readout.bits)}


def _of_rows(readout: Readout) -> dict[str, NDArray[Any]]:
    """Return steps and offsets, where there are any, in the narrowest of their types."""
    found = {}
    for name, types in _OF_ROWS.items():
        numbers = np.array(getattr(readout, name), np.int64)
        if numbers.size:
            narrowest = next(t for t in types.values() if (numbers.astype(t) == numbers).all())
            found[name] = numbers.astype(narrowest)
    return found


def payload_bytes(values: NDArray[Any], header: Header, counts: Counts | None = None) -> int:
    """Return how many bytes of a file are not its header: y, counts, steps and offsets."""
    taken = values.size if counts is None else count_all(counts, values.shape)
    of_counts = 0 if counts is None else compress(counts).size
    if not header.packed:
        return taken * smallest_type(values).itemsize + of_counts
    of_rows = sum(numbers.nbytes for numbers in _of_rows(header.readout).values())
    return packed_size(taken, header.readout.bits) + of_rows + of_counts


def decode(
    file: BinaryIO, size: int, max_pixels: int = MAX_PIXELS
) -> tuple[NDArray[Any], Header, Counts | None]:
    """Read values, header and counts of a file of `size` bytes.

    Nothing is allocated on its word alone.
    """
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(_LONGEST_HEADER, size - 8):
        raise ValueError("it does not begin like one")
    text = file.read(length)
    outer = json.loads(text)
    header = read_header(json.loads(outer["__metadata__"]["tersense"]), max_pixels)
    expected = _layout(outer, header)
    payload = sum(math.prod(shape) * dtype.itemsize for dtype, shape in expected.values())
    if size != 8 + length + payload:
        raise ValueError(f"it has {size} bytes, not {8 + length + payload}")
    if set(outer) != {"__metadata__", *expected}:
        raise ValueError("it holds something else than y")
    content = start + text + file.read()
    at = _checksum_place(start + text)
    if _digest(content, at) != content[at : at + 64]:
        raise ValueError("the checksum does not match, the file is damaged")
    return _unpacked(_read_tensors(content, 8 + length, outer, expected), header)


def read_header(inner: dict[str, Any], max_pixels: int) -> Header:
    """Build the header from what a file says; refuse formats that are too new, and large images."""
    version = inner["version"]
    if type(version) is not int or version > VERSION:
        raise ValueError(
            f"its format {version} is newer than {VERSION}, the newest known here; update tersense"
        )
    if version == _CODED:
        raise ValueError(f"its format must not be {_CODED}, that of coded files; sense it anew")
    if version < _DEEP_VERSION and inner.get("depth", USUAL) != USUAL:
        raise ValueError(
            f"depth must be {USUAL} in format {version}, got {inner['depth']!r}; sense it anew"
        )
    header = Header.from_dict(inner)
    if header.height * header.width > max_pixels:
        raise ValueError(
            f"its image must have at most {max_pixels:,} pixels, got {header.width}×{header.height}"
        )
    return header


def _layout(outer: dict[str, Any], header: Header) -> _Layout:
    """Return types and shapes of the tensors, in the order in which the file must hold them."""
    tensor, counted = outer["y"], header.version >= COUNTED and "counts" in outer
    if header.packed and tensor["dtype"] != "U8":
        raise ValueError(f"packed y must be U8, got {tensor['dtype']}")
    shape: tuple[int, ...] = header.shape
    if counted:  # how long y is, the counts will tell
        shape = (_length(outer, "y"),)
    elif header.packed:
        shape = (packed_size(math.prod(header.shape), header.readout.bits),)
    if tuple(tensor["shape"]) != shape:
        raise ValueError(f"y has shape {tuple(tensor['shape'])}, but its image gives {shape}")
    layout = {"y": (np.dtype(np.uint8) if header.packed else _TYPES[tensor["dtype"]], shape)}
    if counted:
        if outer["counts"]["dtype"] != "U8":
            raise ValueError(f"counts must be U8, got {outer['counts']['dtype']}")
        layout["counts"] = np.dtype(np.uint8), (_length(outer, "counts"),)
    known = ("steps", "offsets") if header.version >= OFFSET else ("steps",)
    for name in (name for name in known if header.packed and name in outer):
        of_rows = outer[name]
        if of_rows["shape"] != [header.rows]:
            raise ValueError(
                f"{name} have shape {of_rows['shape']}, but there are {header.rows} patterns"
            )
        layout[name] = _OF_ROWS[name][of_rows["dtype"]], (header.rows,)
    # As safetensors writes them; nothing is between them.
    return dict(sorted(layout.items(), key=lambda item: outer[item[0]]["data_offsets"]))


def _length(outer: dict[str, Any], name: str) -> int:
    """Return how long a stream is that the header describes."""
    shape = outer[name]["shape"]
    if len(shape) != 1 or type(shape[0]) is not int or shape[0] < 1:
        raise ValueError(f"{name} with counts per window must be one stream, got shape {shape}")
    return shape[0]


def _read_tensors(
    content: bytes, place: int, outer: dict[str, Any], expected: _Layout
) -> dict[str, NDArray[Any]]:
    first, tensors = place, {}
    for name, (dtype, shape) in expected.items():
        count = math.prod(shape)
        end = place + count * dtype.itemsize
        if outer[name]["data_offsets"] != [place - first, end - first]:
            raise ValueError("it holds something else than y")
        flat = np.frombuffer(content, dtype.newbyteorder("<"), count, place)
        tensors[name] = flat.astype(dtype).reshape(shape)
        place = end
    return tensors


def _unpacked(
    tensors: dict[str, NDArray[Any]], header: Header
) -> tuple[NDArray[Any], Header, Counts | None]:
    """Return values, header and counts from the tensors of a file."""
    y, counts, taken = tensors["y"], None, math.prod(header.shape)
    if "counts" in tensors:
        counts = decompress(tensors["counts"].tobytes(), header.shape)
        taken = count_all(counts, header.shape)
    own: dict[str, Any] = {
        name: tuple(tensors[name].tolist()) for name in _OF_ROWS if name in tensors
    }
    if own:
        own |= {"steps": tuple(map(float, own.get("steps", ())))}
        header = replace(header, readout=replace(header.readout, **own))
    if header.packed:
        y = unpack(y, taken, header.readout.bits)
    if y.size != taken:
        raise ValueError(f"y has {y.size:,} values, but the counts per window give {taken:,}")
    if counts is None:
        return y.reshape(header.shape), header, None
    return from_stream(y, counts, header.shape), header, counts


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


def smallest_type(values: NDArray[Any]) -> np.dtype[Any]:
    """Return the narrowest of int8, int16 and int32 that holds all values."""
    lowest, highest = int(values.min()), int(values.max())
    for candidate in _TYPES.values():
        if np.iinfo(candidate).min <= lowest and highest <= np.iinfo(candidate).max:
            return candidate
    raise ValueError(f"measurements from {lowest} to {highest} do not fit 32 bits")
