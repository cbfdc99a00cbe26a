"""A plan of exposures: which mirrors are lit when, and what the detectors' readings mean.

A mirror is on or off, so a pattern becomes two exposures, one of its +1 and one of its −1, and a
measurement is the difference of two readings. Windows that are shown at the same time form a *set*:

- with a *single* detector a set is one window: 2·m exposures for each window;
- with an *array*, one detector per window, a set is every c-th window down and across, c = ⌈B/S⌉.
  Such windows do not overlap, so that one frame shows a pattern in all of them: 2·m exposures for
  blocks whatever the size of the image, c² sets of them for lapped windows. From set to set the
  fields of the detectors move by S pixels.

Exposure 2·(set·m + row) shows the +1 of a row of Φ, the next one its −1.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.sensing.geometry import Geometry

CAMERAS = ("array", "single")
Frame = NDArray[np.bool_]


class WindowSet(NamedTuple):
    """Windows that are shown together: these rows of windows, in these columns."""

    down: range
    across: range

    def windows(self) -> list[tuple[int, int]]:
        """List the windows, one for each detector, in raster order."""
        return [(i, j) for i in self.down for j in self.across]


@dataclass(frozen=True)
class Plan:
    """How an image is measured with mirrors.

    Args:
        camera: `array` or `single`.
        rows: m, the number of patterns.
        window: B.
        stride: S.
        height: H of the image, in pixels.
        width: W of the image.
        mirrors_down: Rows of mirrors.
        mirrors_across: Columns of mirrors.
        scale: A pixel is shown by so many mirrors squared.
    """

    camera: str
    rows: int
    window: int
    stride: int
    height: int
    width: int
    mirrors_down: int
    mirrors_across: int
    scale: int

    def __post_init__(self) -> None:
        if self.camera not in CAMERAS:
            raise TersenseError(f"no camera is called {self.camera!r}; there is: array, single")
        if min(self.rows, self.height, self.width, self.scale) < 1:
            raise TersenseError(f"a plan of nothing: {self}")
        if self.height * self.scale > self.mirrors_down or (
            self.width * self.scale > self.mirrors_across
        ):
            raise TersenseError(
                f"an image of {self.width}×{self.height} pixels with {self.scale}×{self.scale} "
                f"mirrors each does not fit on {self.mirrors_across}×{self.mirrors_down} mirrors"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return what `Plan(**…)` needs to be the same plan again."""
        return asdict(self)

    @property
    def geometry(self) -> Geometry:
        """Window and stride."""
        return Geometry(self.window, self.stride)

    @property
    def origin(self) -> tuple[int, int]:
        """The mirror where the image begins, so that it lies in the middle."""
        spare = (
            self.mirrors_down - self.height * self.scale,
            self.mirrors_across - self.width * self.scale,
        )
        return spare[0] // 2, spare[1] // 2

    @cached_property
    def sets(self) -> list[WindowSet]:
        """The sets of windows, in the order in which they are shown."""
        h, w = self.geometry.grid(self.height, self.width)
        if self.camera == "single":
            return [WindowSet(range(i, i + 1), range(j, j + 1)) for i in range(h) for j in range(w)]
        c = self.geometry.cells
        return [
            WindowSet(range(i, h, c), range(j, w, c))
            for i in range(min(c, h))
            for j in range(min(c, w))
        ]

    @property
    def exposures(self) -> int:
        """The number of frames."""
        return 2 * self.rows * len(self.sets)

    @property
    def detectors(self) -> int:
        """The most detectors that a set needs: the columns of a table of readings."""
        return max(len(group.windows()) for group in self.sets)

    def exposure_table(self) -> NDArray[np.int32]:
        """Return the set, the row of Φ and the sign (+1, −1) of each exposure, (E, 3)."""
        every = [(s, row, sign) for s in range(len(self.sets)) for row in range(self.rows)
                 for sign in (1, -1)]  # fmt: skip
        return np.array(every, np.int32)

    def detector_table(self) -> NDArray[np.int32]:
        """Return what each detector sees in each set, one line each.

        The columns are: set, detector, window down (i), window across (j), and the field in
        mirrors: first row, first column, row and column behind the last. A single detector sees
        all mirrors.
        """
        lines = []
        for s, group in enumerate(self.sets):
            for detector, (i, j) in enumerate(group.windows()):
                lines.append((s, detector, i, j, *self._field(i, j)))
        return np.array(lines, np.int32)

    def _field(self, i: int, j: int) -> tuple[int, int, int, int]:
        if self.camera == "single":
            return 0, 0, self.mirrors_down, self.mirrors_across
        top, left = (k * self.stride - self.geometry.offset for k in (i, j))
        pixels = (
            max(0, top),
            max(0, left),
            min(self.height, top + self.window),
            min(self.width, left + self.window),
        )
        first_row, first_column, last_row, last_column = (self.scale * p for p in pixels)
        down, across = self.origin
        return first_row + down, first_column + across, last_row + down, last_column + across

    def frames(self, phi: NDArray[np.int8]) -> Iterator[Frame]:
        """Show the patterns (m, B, B): yield the lit mirrors of one exposure after the other."""
        for group in self.sets:
            for pattern in phi:
                for sign in (1, -1):
                    yield self.on_mirrors(self._tiled(group, pattern == sign))

    def on_mirrors(self, lit: Frame) -> Frame:
        """Return the mirrors that show an image (H, W) of pixels that are lit or not."""
        top, left = self.origin
        upscaled = lit.repeat(self.scale, axis=0).repeat(self.scale, axis=1)
        frame = np.zeros((self.mirrors_down, self.mirrors_across), np.bool_)
        frame[top:, left:][: upscaled.shape[0], : upscaled.shape[1]] = upscaled
        return frame

    def _tiled(self, group: WindowSet, lit: Frame) -> Frame:
        """Show a pattern in all windows of a set: (H, W), cut off where the image ends."""
        side = self.geometry.cells * self.stride  # from one window of a set to the next
        cell = np.zeros((side, side), np.bool_)
        cell[: self.window, : self.window] = lit
        tiles = np.tile(cell, (len(group.down), len(group.across)))
        top = group.down[0] * self.stride - self.geometry.offset
        left = group.across[0] * self.stride - self.geometry.offset
        inside = tiles[max(0, -top) :, max(0, -left) :]
        image = np.zeros((self.height, self.width), np.bool_)
        place = image[max(0, top) :, max(0, left) :]
        height, width = (min(pair) for pair in zip(place.shape, inside.shape, strict=True))
        place[:height, :width] = inside[:height, :width]
        return image

    def measurements(self, readings: NDArray[Any]) -> NDArray[np.float64]:
        """Turn readings (exposures, detectors) into y (m, h, w), +1 reading minus −1 reading.

        The light of all mirrors of a pixel counts as the pixel's value. Detectors that a set does
        not need may read anything.
        """
        expected = self.exposures, self.detectors
        if readings.shape != expected:
            raise TersenseError(
                f"readings of this plan are a table of {expected[0]} exposures × {expected[1]} "
                f"detectors, not {' × '.join(map(str, readings.shape))}"
            )
        pairs = readings.astype(np.float64).reshape(len(self.sets), self.rows, 2, -1)
        differences = (pairs[:, :, 0] - pairs[:, :, 1]) / self.scale**2
        y = np.empty((self.rows, *self.geometry.grid(self.height, self.width)))
        for group, values in zip(self.sets, differences, strict=True):
            for detector, (i, j) in enumerate(group.windows()):
                y[:, i, j] = values[:, detector]
        return y


def make_plan(
    geometry: Geometry,
    rows: int,
    camera: str = "array",
    mirrors: tuple[int, int] = (768, 1024),
    image: tuple[int, int] | None = None,
    scale: int | None = None,
) -> Plan:
    """Make a plan, filling in what is not said.

    Args:
        geometry: Window and stride.
        rows: m.
        camera: `array` or `single`.
        mirrors: (rows, columns) of the device.
        image: (H, W); by default one window for a single detector, and for an array as much as
            fits with whole strides.
        scale: Mirrors per pixel, down and across; by default as many as fit, or 4 where the image
            is not said either.
    """
    if image is None and camera == "single":
        image = geometry.window, geometry.window
    if image is None:
        scale = 4 if scale is None else scale
        step = scale * geometry.stride
        if scale < 1 or step > min(mirrors):
            raise TersenseError(
                f"windows every {geometry.stride} pixels do not fit with {scale}×{scale} mirrors "
                f"a pixel on {mirrors[1]}×{mirrors[0]} mirrors; use a smaller scale"
            )
        image = mirrors[0] // step * geometry.stride, mirrors[1] // step * geometry.stride
    if min(image) < 1:
        raise TersenseError(f"an image of {image[1]}×{image[0]} pixels cannot be shown")
    if scale is None:
        scale = max(1, min(mirrors[0] // image[0], mirrors[1] // image[1]))
    return Plan(camera, rows, geometry.window, geometry.stride, *image, *mirrors, scale)
