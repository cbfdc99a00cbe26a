"""One round of an adaptive capture: which rows of which windows, and how mirrors show them.

A frame shows one row of Φ in all windows of a set that want it; the others stay dark. Rows that no
window of a set wants are not shown at all. As in `exposures`, the +1 of a row come first, then its
−1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.measurements.exposures import Frame, Plan

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Request:
    """What to measure next.

    Args:
        before: (h, w), rows that each window has been measured with.
        after: (h, w), rows that it shall have; nowhere fewer.
        rows: m, all that there are.
        channels: Of the image, 1 or 3.
    """

    before: Counts
    after: Counts
    rows: int
    channels: int = 1

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which rows of which windows are asked for: `y[mask]` is what `add` takes.

        (m, h, w), in color (3, m, h, w), as `Measurements.values`.
        """
        row = np.arange(self.rows)[:, None, None]
        wanted: NDArray[np.bool_] = (row >= self.before) & (row < self.after)
        return wanted if self.channels == 1 else np.stack([wanted] * self.channels)

    def __len__(self) -> int:
        return int((self.after - self.before).sum()) * self.channels


@dataclass(frozen=True, eq=False)
class RoundPlan:
    """How mirrors measure what a request asks for.

    Args:
        plan: The camera and its mirrors.
        request: Of a gray image.
    """

    plan: Plan
    request: Request

    def __post_init__(self) -> None:
        if self.request.channels != 1:
            raise TersenseError("mirrors measure gray images; capture each channel on its own")

    @cached_property
    def exposures(self) -> list[tuple[int, int, int]]:
        """The set, the row of Φ and the sign (+1, −1) of each exposure."""
        mask = self.request.mask
        found = []
        for number, group in enumerate(self.plan.sets):
            wanted = mask[:, group.down][:, :, group.across].any(axis=(1, 2))
            found += [(number, int(row), sign) for row in np.flatnonzero(wanted)
                      for sign in (1, -1)]  # fmt: skip
        return found

    def frames(self, phi: NDArray[np.int8]) -> Iterator[Frame]:
        """Yield the lit mirrors of one exposure after the other, given the patterns (m, B, B)."""
        mask = self.request.mask
        for number, row, sign in self.exposures:
            windows = [w for w in self.plan.sets[number].windows() if mask[row][w]]
            yield self.plan.on_mirrors(self._lit(phi[row] == sign, windows))

    def _lit(self, pattern: Frame, windows: list[tuple[int, int]]) -> Frame:
        """Show a pattern in some windows: (H, W), cut off where the image ends."""
        plan, border = self.plan, self.plan.window
        image = np.zeros((plan.height + 2 * border, plan.width + 2 * border), np.bool_)
        for window in windows:
            top, left = (k * plan.stride - plan.geometry.offset + border for k in window)
            image[top : top + border, left : left + border] |= pattern
        return image[border:-border, border:-border]

    def values(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """Return what `Capture.add` takes, given what was measured.

        Args:
            table: The readings, exposures × detectors, where detectors that a set does not need or
                whose window stays dark may read anything; or the measurements themselves, one
                after the other.
        """
        asked, shape = len(self.request), (len(self.exposures), self.plan.detectors)
        numbers = np.asarray(table, np.float64)
        if numbers.size == asked and max(numbers.shape, default=0) == asked:
            return numbers.reshape(-1)
        if numbers.shape != shape:
            raise TersenseError(
                f"values of this round must be readings, {shape[0]} exposures × {shape[1]} "
                f"detectors, or {asked} measurements, got {' × '.join(map(str, numbers.shape))}"
            )
        y = np.full(self.request.mask.shape, np.nan)
        differences = (numbers[::2] - numbers[1::2]) / self.plan.scale**2
        for (number, row, _), of_windows in zip(self.exposures[::2], differences, strict=True):
            for detector, window in enumerate(self.plan.sets[number].windows()):
                y[row][window] = of_windows[detector]
        return y[self.request.mask]
