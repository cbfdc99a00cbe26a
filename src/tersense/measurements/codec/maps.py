"""Code counts per window: how many rows each was measured with.

Counts take few different values, mostly the levels of a decision, and neighbors are alike. So the
values are listed once, and of each window the number in the list is coded, predicted by the windows
to the left and above.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.measurements.codec.tables import (
    PHASES,
    SCALE_FRACTION,
    choose_table,
    put_number,
    put_raw,
    take_number,
    take_raw,
)
from tersense.sensing.loops import compiled

_COUNT_BITS = 16
_LENGTH_BITS = 5  # of the length of a step between two values
_FIRST_SCALE = 2 << SCALE_FRACTION
_MEMORY = 12  # windows, about, over which it is learned how much neighbors differ


def put_maps(state: Any, out: Any, maps: NDArray[Any], tables: NDArray[Any]) -> None:
    """Encode maps of counts, (c, h, w)."""
    levels, places = np.unique(maps, return_inverse=True)
    put_raw(state, out, len(levels) - 1, _COUNT_BITS)
    for step in np.diff(levels, prepend=0).tolist():
        put_raw(state, out, step.bit_length(), _LENGTH_BITS)
        put_raw(state, out, step, step.bit_length())
    for places_of_map in places.reshape(maps.shape).astype(np.int32):
        _code_places(state, out, True, places_of_map, len(levels) - 1, tables)


def take_maps(
    state: Any, source: Any, shape: tuple[int, ...], tables: NDArray[Any]
) -> NDArray[np.int32]:
    """Decode what `put_maps` encoded; a damaged source may give any numbers."""
    number = take_raw(state, source, _COUNT_BITS) + 1
    levels, value = np.zeros(number, np.int32), 0
    for place in range(number):
        value += take_raw(state, source, min(take_raw(state, source, _LENGTH_BITS), _COUNT_BITS))
        levels[place] = min(value, 1 << _COUNT_BITS)
    places = np.zeros(shape, np.int32)
    for places_of_map in places:
        _code_places(state, source, False, places_of_map, len(levels) - 1, tables)
    return levels[places]


@compiled
def _code_places(
    state: Any, content: Any, encoding: bool, places: Any, last: int, tables: Any
) -> None:
    """Encode or decode a map (h, w) of numbers from 0 to `last`."""
    height, width = places.shape
    scale = np.int64(_FIRST_SCALE)
    for i in range(height):
        for j in range(width):
            left = places[i, j - 1] if j else places[i - 1, j] if i else last >> 1
            above = places[i - 1, j] if i else left
            twice = np.int64(left) + np.int64(above)
            first, beyond = choose_table(scale)
            table = tables[first + (0 if beyond else (twice & 1) * (PHASES >> 1))]
            base = (twice >> 1) - ((1 << beyond) >> 1)
            if encoding:
                put_number(state, content, np.int64(places[i, j]) - base, table, beyond)
            else:
                place = base + take_number(state, content, table, beyond)
                places[i, j] = min(max(place, 0), last)
            error = abs(2 * np.int64(places[i, j]) - twice) << (SCALE_FRACTION - 1)
            scale += (error - scale) // _MEMORY
