"""Where the windows of an image lie, and how a large image is cut into tiles.

An image of H×W pixels has ⌈H/S⌉×⌈W/S⌉ windows of B×B pixels. Window (i, j) starts at pixel
(i·S − (B−S)/2, j·S − (B−S)/2); pixels outside the image add nothing.

A tile is a rectangle of windows. It is reconstructed together with a halo of windows around it, of
which only the influence on the tile is kept, so that the seams do not show.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from tersense.errors import TersenseError

BlockKind = tuple[tuple[slice, slice], tuple[slice, slice], tuple[int, int]]


@dataclass(frozen=True)
class Geometry:
    """Where the windows of an image lie.

    Args:
        window: B, the side of a window in pixels.
        stride: S, the distance between windows; at most B.
    """

    window: int
    stride: int

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.window:
            raise ValueError(f"stride {self.stride} must lie between 1 and window {self.window}")

    @property
    def offset(self) -> int:
        """Return by how many pixels the first window begins before the image."""
        return (self.window - self.stride) // 2

    @property
    def cells(self) -> int:
        """Return how many S×S cells cover a window's side."""
        return -(-self.window // self.stride)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return (h, w), the number of windows down and across."""
        # Not −(−a // b): where a stands for any size, runtimes may divide toward zero.
        more = self.stride - 1
        return (height + more) // self.stride, (width + more) // self.stride

    def padding(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the zeros to add left, right, above and below (the order of `F.pad`)."""
        h, w = self.grid(height, width)
        covered_height = (h - 1 + self.cells) * self.stride
        covered_width = (w - 1 + self.cells) * self.stride
        return (
            self.offset,
            covered_width - width - self.offset,
            self.offset,
            covered_height - height - self.offset,
        )

    def block_kinds(self, size: tuple[int, int]) -> Iterator[BlockKind]:
        """Sort blocks, whole or cut by the end of the image: yield places, pixels and shape.

        Args:
            size: (H, W) of the image.
        """
        if self.stride != self.window:
            raise TersenseError(
                f"windows {self.window} wide and {self.stride} apart overlap; "
                f"use stride {self.window}"
            )

        def kinds(side: int) -> Iterator[tuple[slice, slice, int]]:
            count, rest = divmod(side, self.window)
            if count:
                yield slice(count), slice(count * self.window), self.window
            if rest:
                yield slice(count, None), slice(count * self.window, None), rest

        for (rows, top, height), (columns, left, width) in product(kinds(size[0]), kinds(size[1])):
            yield (rows, columns), (top, left), (height, width)


@dataclass(frozen=True)
class Tile:
    """One tile of an image.

    Args:
        windows: Rows and columns of windows to reconstruct from, the halo included.
        size: Pixels (H, W) that these windows cover.
        inside: The tile's pixels among them.
        place: The tile's pixels in the image.
    """

    windows: tuple[slice, slice]
    size: tuple[int, int]
    inside: tuple[slice, slice]
    place: tuple[slice, slice]


def cut_tiles(
    geometry: Geometry, size: tuple[int, int], halo: int, max_pixels: int
) -> Iterator[Tile]:
    """Cut an image of `size` (H, W) into tiles of at most about `max_pixels` pixels.

    Args:
        geometry: Window and stride.
        size: (H, W) of the image.
        halo: Windows to add on every side.
        max_pixels: Of a tile without its halo.
    """
    step = max(1, math.isqrt(max_pixels) // geometry.stride)
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
    """A tile along one side of the image."""

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
