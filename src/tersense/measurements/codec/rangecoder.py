"""A range coder: numbers of known frequencies become bytes, at the cost of their surprise.

The interval [low, low + range) of 64-bit integers shrinks with every number to the part that its
frequency has. Leading bytes that cannot change any more are written. Should the interval shrink
around a carry that has not been decided, it is cut at the carry instead (as in D. Subbotin's range
coder), which is rare and costs two bytes.

State is three 64-bit integers in an array: low, range, and the place in the bytes; of a decoder, a
fourth has the bytes that are being looked at.
"""

from typing import Any

import numpy as np

from tersense.sensing.loops import compiled

LOW, RANGE, PLACE, WINDOW = 0, 1, 2, 3
_TOP = np.uint64(1 << 56)
_BOTTOM = np.uint64(1 << 40)
_EIGHT, _TOP_SHIFT, _MASK = np.uint64(8), np.uint64(56), np.uint64((1 << 40) - 1)
_ALL = np.uint64(2**64 - 1)
_ZERO, _ONE, _BYTE = np.uint64(0), np.uint64(1), np.uint64(255)

State = Any  # NDArray[np.uint64]


@compiled
def start(state: State) -> None:
    """Begin to encode."""
    state[LOW], state[RANGE], state[PLACE] = _ZERO, _ALL, _ZERO


@compiled
def _shrink(state: State) -> bool:
    """Tell whether a byte is decided; cut the interval where a carry keeps it from being so."""
    low, size = state[LOW], state[RANGE]
    if (low ^ (low + size)) < _TOP:
        return True
    if size < _BOTTOM:
        state[RANGE] = (_ZERO - low) & _MASK
        return True
    return False


@compiled
def put(state: State, out: Any, begin: int, count: int, total_bits: int) -> None:
    """Encode what has frequencies from `begin` to `begin + count` of 2^total_bits."""
    part = state[RANGE] >> np.uint64(total_bits)
    state[LOW] += part * np.uint64(begin)
    state[RANGE] = part * np.uint64(count)
    while _shrink(state):
        out[state[PLACE]] = state[LOW] >> _TOP_SHIFT
        state[PLACE] += _ONE
        state[LOW] <<= _EIGHT
        state[RANGE] <<= _EIGHT


@compiled
def finish(state: State, out: Any) -> None:
    """Write what decides the last numbers; zeros beyond the end need not be written."""
    # The shortest number of the interval: as many leading bytes as tell it apart.
    low, high = state[LOW], state[LOW] + (state[RANGE] - _ONE)
    kept = 0
    while kept < 8:
        shift = np.uint64(64 - 8 * (kept + 1))
        cut = ((low >> shift) + (_ONE if (low >> shift) << shift != low else _ZERO)) << shift
        if low <= cut <= high:
            low = cut
            break
        kept += 1
    for k in range(kept + 1):
        out[state[PLACE]] = (low >> np.uint64(56 - 8 * k)) & _BYTE
        state[PLACE] += _ONE


@compiled
def _next_byte(state: State, source: Any) -> Any:
    place = state[PLACE]
    state[PLACE] += _ONE
    return np.uint64(source[place]) if place < source.size else _ZERO


@compiled
def open_source(state: State, source: Any) -> None:
    """Begin to decode."""
    state[LOW], state[RANGE], state[PLACE], state[WINDOW] = _ZERO, _ALL, _ZERO, _ZERO
    for _ in range(8):
        state[WINDOW] = (state[WINDOW] << _EIGHT) | _next_byte(state, source)


@compiled
def look(state: State, total_bits: int) -> Any:
    """Return the frequency, of 2^total_bits, that the next number's range contains."""
    part = state[RANGE] >> np.uint64(total_bits)
    found = (state[WINDOW] - state[LOW]) // part
    return min(np.int64(found), (1 << total_bits) - 1)  # a damaged source may lie outside


@compiled
def take(state: State, source: Any, begin: int, count: int, total_bits: int) -> None:
    """Go on behind the number that has frequencies from `begin` to `begin + count`."""
    part = state[RANGE] >> np.uint64(total_bits)
    state[LOW] += part * np.uint64(begin)
    state[RANGE] = part * np.uint64(count)
    while _shrink(state):
        state[WINDOW] = (state[WINDOW] << _EIGHT) | _next_byte(state, source)
        state[LOW] <<= _EIGHT
        state[RANGE] <<= _EIGHT
