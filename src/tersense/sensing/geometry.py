"""Cut a large picture into tiles that are reconstructed one after the other.

A tile is a rectangle of windows. It is reconstructed together with a halo of windows around it, of
which only the influence on the tile is kept, so that the seams do not show.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tersense.sensing.operator import Geometry


@dataclass(frozen=True)
class Tile:
    """One tile of a picture.

    Args:
        windows: Rows and columns of windows to reconstruct from, the halo included.
        size: Pixels (H, V) that these windows cover.
        inside: The tile's pixels among them.
        place: The tile's pixels in the picture.
    """

    windows: tuple[slice, slice]
    size: tuple[int, int]
    inside: tuple[slice, slice]
    place: tuple[slice, slice]


def cut_tiles(
    geometry: Geometry, size: tuple[int, int], halo: int, most_pixels: int
) -> Iterator[Tile]:
    """Cut a picture of `size` (H, V) into tiles of at most about `most_pixels` pixels.

    Args:
        geometry: Window and stride.
        size: (H, V) of the picture.
        halo: Windows to add on every side.
        most_pixels: Of a tile without its halo.
    """
    step = max(1, math.isqrt(most_pixels) // geometry.stride)
    grid = geometry.grid(*size)
    down, across = (
        [_cut(begin, step, count, halo, geometry.stride, side) for begin in range(0, count, step)]
        for count, side in zip(grid, size, strict=True)
    )
    for row in down:
        for column in across:
            yield Tile(
                (row.windows, column.windows),
                (row.size, column.size),
                (row.inside, column.inside),
                (row.place, column.place),
            )


class _Span(NamedTuple):
    """A tile along one side of the picture."""

    windows: slice
    size: int
    inside: slice
    place: slice


def _cut(begin: int, step: int, count: int, halo: int, stride: int, side: int) -> _Span:
    end = min(begin + step, count)
    first, last = max(0, begin - halo), min(count, end + halo)
    origin = first * stride
    place = slice(begin * stride, min(end * stride, side))
    inside = slice(place.start - origin, place.stop - origin)
    return _Span(slice(first, last), min(last * stride, side) - origin, inside, place)
