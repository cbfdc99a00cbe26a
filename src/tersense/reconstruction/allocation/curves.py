"""From error curves and a budget to the measurements that each window takes.

Every window has a curve: the squared error that it would have after m measurements. The budget of
an image is spent best where all windows gain the same from their last measurement (Lagrange): with
convex curves, cut into short straight pieces, that is to take the steepest pieces first.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tersense.sensing.loops import compiled

LEVELS = 13  # points of a predicted curve
_PIECES = 4  # straight pieces between two of them
# Predicted gain in dB for a whole budget: below stay uniform, above follow it altogether. The best
# of many uncertain predictions promises too much: 0.3 to 0.5 dB on images with nothing to gain.
_NO_GAIN, _SURE_GAIN = 0.4, 1.2

Counts = NDArray[np.int64]


def count_levels(lowest: int, rows: int) -> tuple[int, ...]:
    """Return the counts at which errors are predicted, log-spaced from `lowest` to all rows."""
    if not 1 <= lowest <= rows:
        raise ValueError(f"lowest must lie between 1 and {rows}, got {lowest}")
    spaced = np.geomspace(lowest, rows, LEVELS).round().astype(int)
    return tuple(int(level) for level in np.unique(spaced))


def allocate(
    log_errors: NDArray[np.floating],
    levels: Sequence[int],
    counts: Counts,
    budget: int,
) -> Counts:
    """Spend the rest of a budget where the error falls most.

    Where the curves promise next to nothing over a uniform share, the budget is spent uniformly:
    errors of prediction would cost more than there is to gain.

    Args:
        log_errors: (K, h, w), logarithm of the squared error of each window at each level; they
            need be neither monotone nor convex.
        levels: K counts, increasing; the last is the most that a window can take.
        counts: (h, w), what each window has taken; at most `levels[-1]`.
        budget: Measurements of the image in all, those taken included.

    Returns:
        (h, w) new counts, nowhere lower. Their sum is the budget, or all that the windows can take.
    """
    _check(log_errors, levels, counts, budget)
    uniform = spread_evenly(counts, budget, levels[-1])
    counts = np.maximum(counts, levels[0])
    if counts.sum() >= budget:  # there is no choice
        return uniform
    steps, errors = _curves(log_errors, levels, counts)
    best = _steepest_first(steps, errors, int(budget - counts.sum())).reshape(counts.shape)
    at_stake = 1 - float(counts.sum()) / budget
    trust = _trust(steps, errors, counts + best, uniform, at_stake)
    blend = np.floor(uniform + trust * (counts + best - uniform)).astype(np.int64)
    return spread_evenly(np.maximum(blend, counts), budget, levels[-1])


def spread_evenly(counts: Counts, budget: int, rows: int) -> Counts:
    """Bring the windows with the fewest measurements up to one level, as high as the budget lets.

    Args:
        counts: (h, w), what each window has taken.
        budget: In all, those taken included.
        rows: The most that a window can take.
    """
    low, high = 0, rows
    while low < high:
        middle = (low + high + 1) // 2
        if np.maximum(counts, middle).sum() <= budget:
            low = middle
        else:
            high = middle - 1
    # At level 0 nothing is added; there may not even be budget for that.
    level = np.maximum(counts, low)
    left = max(0, int(budget - level.sum()))
    flat = level.reshape(-1)
    next_ones = np.flatnonzero((flat == low) & (flat < rows))[:left]
    flat[next_ones] += 1
    return level


def _check(
    log_errors: NDArray[np.floating], levels: Sequence[int], counts: Counts, budget: int
) -> None:
    if log_errors.shape != (len(levels), *counts.shape):
        raise ValueError(
            f"log_errors must be {(len(levels), *counts.shape)}, got {log_errors.shape}"
        )
    if not np.isfinite(log_errors).all():
        raise ValueError("log_errors must be finite, got NaN or Inf")
    if counts.size and not 0 <= counts.min() <= counts.max() <= levels[-1]:
        raise ValueError(
            f"counts must lie between 0 and {levels[-1]}, got {counts.min()} to {counts.max()}"
        )
    if counts.sum() > budget:
        raise ValueError(f"budget must be at least the {counts.sum()} taken, got {budget}")


def _curves(
    log_errors: NDArray[np.floating], levels: Sequence[int], counts: Counts
) -> tuple[Counts, NDArray[np.float64]]:
    """Return points of convex curves: counts (P, n) from those taken on, and errors (P, n).

    Errors follow power laws between the levels. Points below what a window has taken are moved
    there.
    """
    falling = np.minimum.accumulate(log_errors.reshape(len(levels), -1).astype(np.float64), axis=0)
    falling -= falling.max(initial=-np.inf)
    fine = np.unique(
        np.concatenate([np.geomspace(a, b, _PIECES + 1) for a, b in pairwise(levels)]).round()
        if len(levels) > 1 else np.array(levels)
    )  # fmt: skip
    points = np.maximum(fine[:, None], counts.reshape(1, -1)).astype(np.int64)
    errors = np.exp(interpolate(np.log(np.maximum(points, levels[0])), np.log(levels), falling))
    return points, convex_below(points, errors)


def convex_below(points: Counts, errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the greatest convex curves below points (P, n), some of which may coincide."""
    below = np.empty_like(errors)
    _draw_below(points, errors, below)
    return below


@compiled
def _draw_below(x: Counts, y: NDArray[np.float64], below: NDArray[np.float64]) -> None:
    """Keep the corners of each curve, from left to right: none lies above a line of two others."""
    corners = np.empty(len(x), np.int64)
    for n in range(x.shape[1]):
        corners[0], last = 0, 0
        for i in range(1, len(x)):
            if x[i, n] == x[corners[last], n]:
                continue
            while last > 0:
                a, b = corners[last - 1], corners[last]
                width, rise = x[b, n] - x[a, n], y[b, n] - y[a, n]
                if rise * (x[i, n] - x[a, n]) < (y[i, n] - y[a, n]) * width:
                    break
                last -= 1
            last += 1
            corners[last] = i
        for corner in range(last):
            a, b = corners[corner], corners[corner + 1]
            slope = (y[b, n] - y[a, n]) / (x[b, n] - x[a, n])
            for i in range(a, b):
                below[i, n] = y[a, n] + slope * (x[i, n] - x[a, n])
        below[corners[last] :, n] = y[corners[last], n]


def interpolate(
    x: NDArray[np.float64], knots: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Interpolate curves (K, n), given at common knots (K,), each at its own x (P, n)."""
    if len(knots) == 1:
        return np.broadcast_to(values, x.shape).copy()
    after = np.clip(np.searchsorted(knots, x, side="right"), 1, len(knots) - 1)
    share = (x - knots[after - 1]) / (knots[after] - knots[after - 1])
    low, high = (np.take_along_axis(values, index, axis=0) for index in (after - 1, after))
    return low + share * (high - low)


def _steepest_first(steps: Counts, errors: NDArray[np.float64], budget: int) -> Counts:
    """Return what each window gains of a budget, (n,): the steepest pieces of all, the last cut."""
    lengths = np.diff(steps, axis=0)
    gains = -np.diff(errors, axis=0) / np.maximum(lengths, 1)
    gains = np.minimum.accumulate(np.where(lengths > 0, gains, np.inf), axis=0)
    order = np.argsort(-gains, axis=None, kind="stable")
    ends = lengths.reshape(-1)[order].cumsum()
    taken = np.zeros(lengths.size, np.int64)
    taken[order] = np.clip(lengths.reshape(-1)[order] - np.maximum(ends - budget, 0), 0, None)
    grown: Counts = taken.reshape(lengths.shape).sum(axis=0)
    return grown


def _trust(
    steps: Counts, errors: NDArray[np.float64], best: Counts, uniform: Counts, at_stake: float
) -> float:
    """Return from 0 to 1 how far to go from the uniform counts to the best ones.

    `at_stake` is the share of the budget that is being spent.
    """
    of_best, of_uniform = (_total_at(some.reshape(-1), steps, errors) for some in (best, uniform))
    if not (of_uniform > 0 and of_best > 0):
        return 0.0
    gain = 10 * math.log10(of_uniform / of_best) / at_stake
    return min(1.0, max(0.0, (gain - _NO_GAIN) / (_SURE_GAIN - _NO_GAIN)))


@compiled
def _total_at(counts: Counts, steps: Counts, errors: NDArray[np.float64]) -> float:
    """Return the sum of the errors of curves (P, n) at their counts (n,)."""
    total = 0.0
    for n, count in enumerate(counts):
        total += np.interp(count, steps[:, n], errors[:, n])
    return total
