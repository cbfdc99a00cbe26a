"""Codes of a whole image as one stream of bytes, and back.

The three channels of a color image are alike. Where windows have as many measurements in each, they
are therefore coded as brightness and two differences, by steps that integers undo exactly
(YCoCg-R):

    o = R − B,  t = B + ⌊o/2⌋,  g = G − t,  brightness = t + ⌊g/2⌋
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.measurements.codec.maps import put_maps, take_maps
from tersense.measurements.codec.prediction import FRACTION, Prediction
from tersense.measurements.codec.rangecoder import PLACE, finish, open_source, start
from tersense.measurements.codec.tables import cumulative_tables
from tersense.measurements.codec.windows import GROUP, code_group
from tersense.measurements.counts import Counts, check_counts
from tersense.measurements.readout import LARGEST_VALUE
from tersense.measurements.tsm import Header
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

_MEAN = 116  # of pixels from 0 to 255
_BYTES_PER_NUMBER = 12  # that none exceeds
_BYTES_FOR_LEVELS = 2**19  # that no list of counts exceeds
# The most probable number costs 1/500 of a bit, so that no stream is shorter than this; a damaged
# file cannot claim more memory.
_VALUES_PER_BYTE = 2048

Integers = NDArray[np.int64]


def encode_codes(
    values: NDArray[Any], header: Header, counts: Counts | None, patterns: Patterns
) -> bytes:
    """Return the stream of y (m, h, w) or (3, m, h, w); see `Measurements`."""
    every, maps = counts_of_all(counts, header), 0 if counts is None else counts[None].shape[-3]
    numbers = max(every.size, header.rows * min(GROUP, every.size))
    out = np.zeros(_BYTES_PER_NUMBER * numbers + _BYTES_FOR_LEVELS, np.uint8)
    state, tables = np.zeros(4, np.uint64), cumulative_tables()
    start(state)
    if counts is not None:
        put_maps(state, out, counts.reshape(maps, *counts.shape[-2:]), tables)
    channels = values.reshape(header.channels, header.rows, -1)
    expect, prediction = _expectation(header, maps, patterns), _prediction(header, patterns)
    content = _taken(state, out)
    for windows in groups(every):
        codes = _gather(channels, windows, _alike(header, maps))
        code_group(state, out, True, codes, expect(windows), every[windows],
                   prediction.coefficients, prediction.deviations, tables)  # fmt: skip
        content += _taken(state, out)
    finish(state, out)
    content += _taken(state, out)
    return bytes(content.rstrip(b"\0").ljust(values.size // _VALUES_PER_BYTE, b"\0"))


def decode_codes(
    stream: bytes, header: Header, maps: int, patterns: Patterns
) -> tuple[NDArray[np.int32], Header, Counts | None]:
    """Return y, its header and its counts, from what `encode_codes` made.

    Args:
        stream: The bytes.
        header: Of the image.
        maps: Of counts: 0 where there are none, 1, or 3 in color.
        patterns: Φ.
    """
    state, tables = np.zeros(4, np.uint64), cumulative_tables()
    source = np.frombuffer(bytearray(stream), np.uint8)
    counts = decode_counts(state, source, header, maps)
    every, alike = counts_of_all(counts, header), _alike(header, maps)
    expect, prediction = _expectation(header, maps, patterns), _prediction(header, patterns)
    channels = np.zeros((header.channels, header.rows, every.size // header.channels), np.int32)
    for windows in groups(every):
        codes = np.zeros((header.rows, windows.size), np.int64)
        fits = code_group(state, source, False, codes, expect(windows), every[windows],
                          prediction.coefficients, prediction.deviations, tables)  # fmt: skip
        codes = _in_threes(_correlated, codes) if alike else codes
        _require(fits and np.abs(codes).max() <= header.readout.largest_code)
        place, channel = np.divmod(windows, header.channels)
        channels[channel, :, place] = codes.T
    return channels.reshape(header.shape), header, counts


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError("its values do not fit their readout, the file is damaged")


def decode_counts(state: Any, source: Any, header: Header, maps: int) -> Counts | None:
    """Begin to decode a stream: return the counts, which take no patterns to read."""
    if math.prod(header.shape) >= _VALUES_PER_BYTE * (len(source) + 1):
        raise ValueError("its image is too large for so few bytes")
    open_source(state, source)
    if not maps:
        return None
    found = take_maps(state, source, (maps, *header.shape[-2:]), cumulative_tables())
    return check_counts(found if maps > 1 else found[0], header.shape)


def counts_of_all(counts: Counts | None, header: Header) -> Integers:
    """Return the counts of all windows, the channels of each side by side."""
    grid = header.shape[-2:]
    if counts is None:
        return np.full(header.channels * grid[0] * grid[1], header.rows, np.int64)
    of_channels = np.broadcast_to(counts, (header.channels, *grid)).reshape(header.channels, -1)
    return of_channels.T.astype(np.int64).reshape(-1)


def _alike(header: Header, maps: int) -> bool:
    """Whether the channels have the same counts, so that they can be coded by differences."""
    return header.mode == "RGB" and maps < 3


def groups(every: Integers) -> Iterator[Integers]:
    """Yield which windows are coded together, those with the most rows first."""
    order = np.argsort(-every, kind="stable")
    for begin in range(0, order.size, GROUP):
        yield order[begin : begin + GROUP]


def _taken(state: Any, out: NDArray[np.uint8]) -> bytearray:
    """Return the bytes that were written, none of which can change any more; begin anew."""
    content = bytearray(out[: int(state[PLACE])])
    state[PLACE] = 0
    return content


def _gather(channels: NDArray[Any], windows: Integers, alike: bool) -> Integers:
    """Return the codes (m, n) of some windows of channels (c, m, h·w)."""
    place, channel = np.divmod(windows, len(channels))
    codes = np.ascontiguousarray(channels[channel, :, place].T, np.int64)
    return _in_threes(_decorrelated, codes) if alike else codes


def _in_threes(change: Callable[..., list[Integers]], codes: Integers) -> Integers:
    """Change the three channels of windows, which stand side by side."""
    return np.stack(change(*(codes[:, k::3] for k in range(3))), axis=-1).reshape(codes.shape)


def _expectation(header: Header, maps: int, patterns: Patterns) -> Callable[[Integers], Integers]:
    """Return what gives the codes (m, n), with binary places, of windows that see gray only.

    Windows differ by how much of them lies in the image, and few differ.
    """
    geometry = Geometry(patterns.window, patterns.stride)
    (down, rows), (across, columns) = (
        _kinds(geometry, side) for side in (header.height, header.width)
    )
    ones = rows @ patterns.phi.astype(np.int64) @ columns.T
    gray = (ones * (_MEAN * header.largest_pixel // 255)) << FRACTION
    gray //= _steps(header)[:, None, None]
    gray -= np.asarray(header.readout.offset) << FRACTION
    differences = _alike(header, maps) or header.mode == "YCC"

    def expect(windows: Integers) -> Integers:
        place, channel = np.divmod(windows, header.channels)
        i, j = np.divmod(place, across.size)
        codes: Integers = gray[:, down[i], across[j]]
        return np.where(channel > 0, 0, codes) if differences else codes

    return expect


def _kinds(geometry: Geometry, side: int) -> tuple[Integers, Integers]:
    """Return the kind of each window along a side, and of each kind (k, B) what is inside."""
    begin = np.arange(geometry.grid(side, 1)[0]) * geometry.stride - geometry.offset
    cuts = np.clip(np.stack([-begin, side - begin]), 0, geometry.window)
    kinds, numbers = np.unique(cuts[0] * (geometry.window + 1) + cuts[1], return_inverse=True)
    first, end = np.divmod(kinds[:, None], geometry.window + 1)
    place = np.arange(geometry.window)
    return numbers, ((first <= place) & (place < end)).astype(np.int64)


def _prediction(header: Header, patterns: Patterns) -> Prediction:
    """Return the prediction for the steps of a header, as those of pixels from 0 to 255."""
    return Prediction.of(patterns, np.maximum(_steps(header) * 255 // header.largest_pixel, 1))


def _steps(header: Header) -> Integers:
    steps = header.readout.steps or (header.readout.step,) * header.rows
    return np.clip(steps, 1, LARGEST_VALUE).astype(np.int64)


def _decorrelated(red: Integers, green: Integers, blue: Integers) -> list[Integers]:
    orange = red - blue
    middle = blue + (orange >> 1)
    greenness = green - middle
    return [middle + (greenness >> 1), orange, greenness]


def _correlated(brightness: Integers, orange: Integers, greenness: Integers) -> list[Integers]:
    middle = brightness - (greenness >> 1)
    blue = middle - (orange >> 1)
    return [blue + orange, greenness + middle, blue]
