"""Other ways to spend a budget, to compare with: by change, and by the truth.

*Change*: the rule of SIB-ACS (2025). A share of 2 % everywhere, then four stages; half of each is
spent uniformly, half in proportion to ‖x̂_after − x̂_before‖² of each window, how much the last stage
changed there.

*Oracle*: the errors that each window really has at uniform counts decide. No camera knows them; it
says how much there is to gain.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tersense.measurements.counts import window_means
from tersense.reconstruction.allocation import allocate, spread_evenly
from tersense.sensing.geometry import Geometry

Counts = NDArray[np.int64]
Estimate = NDArray[np.floating]
Reconstruct = Callable[[Counts], Estimate]  # from counts (h, w) to the image (H, W) or (H, W, 3)

_START, _STAGES = 0.02, 4  # measurements per pixel, and stages after them
_LEAST = 1e-3  # squared error, in pixel values


def counts_by_change(
    reconstruct: Reconstruct,
    grid: tuple[int, int],
    stride: int,
    rows: int,
    budget: int,
) -> Counts:
    """Return the counts (h, w) that the rule of SIB-ACS takes.

    Args:
        reconstruct: The camera on this image.
        grid: (h, w), its windows.
        stride: S; the change of a window is that in its S×S cell.
        rows: The most that a window can take.
        budget: Of all windows together.
    """
    windows = grid[0] * grid[1]
    start = min(budget, round(_START * stride**2) * windows)
    counts = spread_evenly(np.zeros(grid, np.int64), start, rows)
    before, after = None, reconstruct(counts)
    for stage in range(1, _STAGES + 1):
        target = start + (budget - start) * stage // _STAGES
        uniform = target if before is None else int(counts.sum() + target) // 2
        counts = spread_evenly(counts, uniform, rows)
        if before is not None:
            change = mean_squares(after - before, stride)
            counts = _in_proportion(counts, change, target, rows)
        if stage < _STAGES:
            before, after = after, reconstruct(counts)
    return counts


def oracle_counts(
    reconstruct: Reconstruct,
    image: NDArray[np.generic],
    stride: int,
    levels: Sequence[int],
    budget: int,
) -> Counts:
    """Return the counts (h, w) that the true errors at uniform counts call for.

    Args:
        reconstruct: The camera on this image.
        image: (H, W) or (H, W, 3), the truth.
        stride: S.
        levels: Counts at which the errors are looked up.
        budget: Of all windows together.
    """
    truth = image.astype(np.float64)
    grid = mean_squares(truth, stride).shape
    errors = [np.clip(reconstruct(np.full(grid, level)), 0, 255) - truth for level in levels]
    logs = np.log(np.stack([mean_squares(error, stride) for error in errors]) + _LEAST)
    return allocate(logs, levels, np.full(grid, levels[0]), budget)


def mean_squares(values: NDArray[np.floating], stride: int) -> NDArray[np.float64]:
    """Return the mean square (h, w) of values over each S×S cell, as far as it is there.

    Args:
        values: (H, W), or (H, W, 3), whose channels are averaged.
        stride: S.
    """
    squares = np.square(values, dtype=np.float64)
    squares = squares.mean(axis=-1) if squares.ndim == 3 else squares
    return window_means(squares, Geometry(stride, stride))


def _in_proportion(counts: Counts, shares: NDArray[np.float64], budget: int, rows: int) -> Counts:
    """Spend the rest of a budget in proportion to shares; what does not fit is spread uniformly."""
    left = int(budget - counts.sum())
    wanted = np.floor(left * shares / max(float(shares.sum()), 1e-12)).astype(np.int64)
    return spread_evenly(np.minimum(counts + wanted, rows), budget, rows)
