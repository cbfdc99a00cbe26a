"""How probable the errors of a prediction are, as tables of integers.

Errors of measurements follow Student's distribution with four degrees of freedom closely: most are
small, some are large. Its scale is the mean of |error|, and its distribution function has a closed
form of additions, multiplications, divisions and a square root, all of which every machine rounds
alike. There is a table for each scale, in quarters of an octave from 1/16 to 8 codes, and for each
quarter of a code by which the prediction lies beside a whole number. Larger errors are coded
without their last bits, which follow as they are.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.measurements.codec.rangecoder import look, put, take
from tersense.sensing.loops import compiled

REACH = 127  # the largest code of a table; beyond lies the escape
SYMBOLS = 2 * REACH + 3  # with an escape on either side
TOTAL_BITS = 24  # of all frequencies of a table together
PHASES = 4  # places of the prediction between two codes
_QUARTERS = 4  # tables of an octave
_LEAST, _OCTAVES = -4, 7  # log₂ of the smallest scale, and octaves from there
SCALES = _QUARTERS * _OCTAVES
SCALE_FRACTION = 8  # binary places of a scale
_RAW = 16  # bits that are coded at once as they are
_LENGTH = 6  # bits that tell how long an escaped number is
_LONGEST = 40  # bits of one, whatever a damaged file says


@lru_cache(maxsize=1)
def cumulative_tables() -> NDArray[np.uint32]:
    """Return (SCALES · PHASES, SYMBOLS + 1): frequencies of the codes −128 … 128, added up."""
    tables = np.zeros((SCALES, PHASES, SYMBOLS + 1), np.uint32)
    borders = np.arange(-REACH - 0.5, REACH + 1.0)
    spare = (1 << TOTAL_BITS) - SYMBOLS  # every symbol has a frequency of at least one
    for scale in range(SCALES):
        octave, quarter = divmod(scale, _QUARTERS)
        width = 2.0 ** (octave + _LEAST) * (1 + (quarter + 0.5) / _QUARTERS)
        for phase in range(PHASES):
            below = _student((borders - phase / PHASES) / width)
            ends = np.floor(below * spare).astype(np.int64) + np.arange(1, SYMBOLS)
            tables[scale, phase, 1:-1], tables[scale, phase, -1] = ends, 1 << TOTAL_BITS
    return tables.reshape(-1, SYMBOLS + 1)


def _student(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distribution function of Student's t with four degrees of freedom."""
    square = t * t / (1 + t * t / 4)
    return 0.5 + 0.375 * (t / np.sqrt(1 + t * t / 4)) * (1 - square / 12)


@compiled
def choose_table(scale: int) -> Any:
    """Return the number of the scale's first table, and how many last bits are not in it."""
    scale = max(scale, 1 << (SCALE_FRACTION + _LEAST))
    place = 0  # of the leading bit
    while scale >> (place + 1):
        place += 1
    octave, quarter = place - SCALE_FRACTION - _LEAST, ((scale << 2) >> place) & 3
    beyond = max(0, octave - (_OCTAVES - 1))
    return (_QUARTERS * (octave - beyond) + quarter) * PHASES, beyond


@compiled
def put_number(state: Any, out: Any, number: int, table: Any, beyond: int) -> None:
    """Encode a number with a table, and as they are the last bits that are not in it."""
    symbol, last = number >> beyond, number & ((1 << beyond) - 1)
    place = min(max(symbol, -REACH - 1), REACH + 1) + REACH + 1
    begin = np.int64(table[place])
    put(state, out, begin, np.int64(table[place + 1]) - begin, TOTAL_BITS)
    if place == 0 or place == SYMBOLS - 1:
        rest = abs(symbol) - REACH - 1
        length = 0
        while rest >> length:
            length += 1
        put(state, out, length, 1, _LENGTH)
        put_raw(state, out, rest, length)
    put_raw(state, out, last, beyond)


@compiled
def put_raw(state: Any, out: Any, number: int, length: int) -> None:
    """Encode the bits of a number as they are."""
    while length > 0:
        part = min(length, _RAW)
        length -= part
        put(state, out, (number >> length) & ((1 << part) - 1), 1, part)


@compiled
def take_number(state: Any, source: Any, table: Any, beyond: int) -> Any:
    """Decode what `put_number` encoded."""
    seen = look(state, TOTAL_BITS)
    low, high = 0, SYMBOLS
    while high - low > 1:
        middle = (low + high) >> 1
        if np.int64(table[middle]) <= seen:
            low = middle
        else:
            high = middle
    begin = np.int64(table[low])
    take(state, source, begin, np.int64(table[low + 1]) - begin, TOTAL_BITS)
    symbol = np.int64(low) - REACH - 1
    if low == 0 or low == SYMBOLS - 1:
        length = look(state, _LENGTH)
        take(state, source, length, 1, _LENGTH)
        rest = take_raw(state, source, min(length, _LONGEST))
        symbol += rest if low else -rest
    return (symbol << beyond) + take_raw(state, source, beyond)


@compiled
def take_raw(state: Any, source: Any, length: int) -> Any:
    """Decode what `put_raw` encoded."""
    number = np.int64(0)
    while length > 0:
        part = min(length, _RAW)
        length -= part
        bits = look(state, part)
        take(state, source, bits, 1, part)
        number = (number << part) | bits
    return number
