"""Codes of a whole image as one stream of bytes, and back.

The three channels of a color image are alike. Where windows have as many measurements in each, they
are therefore coded as brightness and two differences, by steps that integers undo exactly
(YCoCg-R):

    o = R − B,  t = B + ⌊o/2⌋,  g = G − t,  brightness = t + ⌊g/2⌋
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tersense.measurements.codec.maps import put_maps, take_maps
from tersense.measurements.codec.prediction import FRACTION, Prediction
from tersense.measurements.codec.rangecoder import PLACE, finish, open_source, start
from tersense.measurements.codec.tables import cumulative_tables
from tersense.measurements.codec.windows import code_windows
from tersense.measurements.counts import Counts, check_counts
from tersense.measurements.tsm import Header
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns

_MEAN = 116  # of pixels from 0 to 255
_BYTES_PER_VALUE = 12  # that no number exceeds
_BYTES_FOR_LEVELS = 2**19  # that no list of counts exceeds
# The most probable number costs 1/500 of a bit, so that no stream is shorter than this; a damaged
# file cannot claim more memory.
_VALUES_PER_BYTE = 2048

Integers = NDArray[np.int64]


def encode_codes(
    values: NDArray[Any], header: Header, counts: Counts | None, patterns: Patterns
) -> bytes:
    """Return the stream of y (m, h, w) or (3, m, h, w); see `Measurements`."""
    every, maps = _counts_of_all(counts, header), 0 if counts is None else counts[None].shape[-3]
    out = np.zeros(_BYTES_PER_VALUE * (int(every.sum()) + every.size) + _BYTES_FOR_LEVELS, np.uint8)
    state, tables = np.zeros(4, np.uint64), cumulative_tables()
    start(state)
    if counts is not None:
        put_maps(state, out, counts.reshape(maps, *counts.shape[-2:]), tables)
    order, expected = np.argsort(-every, kind="stable"), _expected(header, maps, patterns)
    channels = values.reshape(-1, *header.shape[-3:]).astype(np.int64)
    codes = _side_by_side(_decorrelated(channels) if _alike(header, maps) else channels)
    prediction = _prediction(header, patterns)
    code_windows(state, out, True, codes[:, order], expected[:, order], every[order],
                 prediction.coefficients, prediction.deviations, tables)  # fmt: skip
    finish(state, out)
    stream = out[: int(state[PLACE])].tobytes().rstrip(b"\0")
    return stream.ljust(values.size // _VALUES_PER_BYTE, b"\0")


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
    every = _counts_of_all(counts, header)
    order, expected = np.argsort(-every, kind="stable"), _expected(header, maps, patterns)
    prediction, sorted_codes = _prediction(header, patterns), np.zeros_like(expected)
    fits = code_windows(state, source, False, sorted_codes, expected[:, order], every[order],
                        prediction.coefficients, prediction.deviations, tables)  # fmt: skip
    codes = np.empty_like(sorted_codes)
    codes[:, order] = sorted_codes
    channels = _apart(codes, header)
    if _alike(header, maps):
        channels = _correlated(channels)
    if not fits or np.abs(channels).max() > header.readout.largest_code:
        raise ValueError("its values do not fit their readout, the file is damaged")
    return channels.reshape(header.shape).astype(np.int32), header, counts


def decode_counts(state: Any, source: Any, header: Header, maps: int) -> Counts | None:
    """Begin to decode a stream: return the counts, which take no patterns to read."""
    if np.prod(header.shape, dtype=np.int64) >= _VALUES_PER_BYTE * (len(source) + 1):
        raise ValueError("its image is too large for so few bytes")
    open_source(state, source)
    if not maps:
        return None
    found = take_maps(state, source, (maps, *header.shape[-2:]), cumulative_tables())
    return check_counts(found if maps > 1 else found[0], header.shape)


def _counts_of_all(counts: Counts | None, header: Header) -> Integers:
    """Return the counts of all windows of all channels, side by side."""
    grid = header.shape[-2:]
    if counts is None:
        return np.full(header.channels * grid[0] * grid[1], header.rows, np.int64)
    return np.broadcast_to(counts, (header.channels, *grid)).reshape(-1).astype(np.int64)


def _alike(header: Header, maps: int) -> bool:
    """Whether the channels have the same counts, so that they can be coded by differences."""
    return header.mode == "RGB" and maps < 3


def _expected(header: Header, maps: int, patterns: Patterns) -> Integers:
    """Return the codes (m, n) of an image that is gray all over, with binary places."""
    phi = torch.from_numpy(patterns.phi.astype(np.float64))
    ones = SensingOperator(phi, patterns.stride).sense_ones((header.height, header.width))
    gray = ones.round().numpy().astype(np.int64) * (_MEAN * header.largest_pixel // 255)
    gray = (gray << FRACTION) // _steps(header)[:, None, None]
    channels = np.stack([gray] * header.channels)
    if _alike(header, maps) or header.mode == "YCC":
        channels[1:] = 0
    return _side_by_side(channels)


def _prediction(header: Header, patterns: Patterns) -> Prediction:
    """Return the prediction for the steps of a header, as those of pixels from 0 to 255."""
    return Prediction.of(patterns, np.maximum(_steps(header) * 255 // header.largest_pixel, 1))


def _steps(header: Header) -> Integers:
    steps = header.readout.steps or (header.readout.step,) * header.rows
    return np.array(steps).astype(np.int64)


def _side_by_side(channels: NDArray[Any]) -> Integers:
    """Return (m, c·h·w) of (c, m, h, w)."""
    return np.moveaxis(channels, 0, 1).reshape(channels.shape[1], -1).astype(np.int64)


def _apart(codes: Integers, header: Header) -> Integers:
    """Return (c, m, h, w) of (m, c·h·w)."""
    rows, *grid = header.shape[-3:]
    return np.moveaxis(codes.reshape(rows, -1, *grid), 1, 0)


def _decorrelated(channels: Integers) -> Integers:
    red, green, blue = channels
    orange = red - blue
    middle = blue + (orange >> 1)
    greenness = green - middle
    return np.stack([middle + (greenness >> 1), orange, greenness])


def _correlated(channels: Integers) -> Integers:
    brightness, orange, greenness = channels
    middle = brightness - (greenness >> 1)
    blue = middle - (orange >> 1)
    return np.stack([blue + orange, greenness + middle, blue])
