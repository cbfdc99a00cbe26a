"""What error a camera expects of its image, and how many measurements a wanted error takes.

The curves of `ErrorPredictor` are logarithms of squared errors, window by window. Their mean over
the pixels is the expected error of the image; the smallest budget whose counts promise a wanted
error is found by halving.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tersense.reconstruction.allocation.curves import Counts, allocate, interpolate

_PEAK = 255.0
_NEXT_SHARE = 0.7  # of what a quality seems to need: later predictions know more,
_MOST_GROWTH = 2.0  # and early ones know so little that they may ask for far too much
_NEARLY = 0.03  # of what is measured; so little is not worth another round
_PRECISION = 1 / 256  # of a budget, relative to all that there is to spend


def expected_error(
    log_errors: NDArray[np.floating],
    levels: Sequence[int],
    counts: Counts,
    pixels: NDArray[np.integer],
) -> float:
    """Return the mean squared error that an image is expected to have.

    Args:
        log_errors: (K, h, w), logarithm of the squared error of each window at each level.
        levels: K counts, increasing.
        counts: (h, w), what each window has or shall have taken.
        pixels: (h, w), how many pixels of the image lie in the cell of each window.
    """
    falling = np.minimum.accumulate(log_errors.reshape(len(levels), -1).astype(np.float64), axis=0)
    at = np.log(np.clip(counts.reshape(1, -1), levels[0], levels[-1]))
    errors = np.exp(interpolate(at, np.log(levels), falling))[0]
    return float(np.average(errors, weights=pixels.reshape(-1)))


def budget_for(
    wanted: float,
    log_errors: NDArray[np.floating],
    levels: Sequence[int],
    counts: Counts,
    pixels: NDArray[np.integer],
    largest: int,
) -> int:
    """Return the smallest budget, those taken included, that promises an error; at most `largest`.

    Args:
        wanted: Mean squared error, in the units of the predictions.
        log_errors: As above.
        levels: As above.
        counts: (h, w), what each window has taken.
        pixels: As above.
        largest: Budget that must not be exceeded.
    """
    low, high = int(counts.sum()), largest
    precision = max(1, int(_PRECISION * largest))
    while high - low > precision:
        middle = (low + high) // 2
        new = allocate(log_errors, levels, counts, middle)
        if expected_error(log_errors, levels, new, pixels) <= wanted:
            high = middle
        else:
            low = middle
    return high


def next_budget(
    wanted: float,
    log_errors: NDArray[np.floating],
    levels: Sequence[int],
    counts: Counts,
    pixels: NDArray[np.integer],
    largest: int,
    last: bool,
) -> int:
    """Return the budget of the next round on the way to an error; what is taken where it is met.

    Args:
        wanted: As in `budget_for`, and so the others.
        log_errors: (K, h, w).
        levels: K counts.
        counts: (h, w).
        pixels: (h, w).
        largest: At most.
        last: Whether there will be no round after it.
    """
    taken = int(counts.sum())
    if expected_error(log_errors, levels, counts, pixels) <= wanted:
        return taken
    whole = budget_for(wanted, log_errors, levels, counts, pixels, largest)
    if last or whole - taken < _NEARLY * taken:
        return whole
    return int(min(taken + max(1, _NEXT_SHARE * (whole - taken)), _MOST_GROWTH * taken))


def to_psnr(squared_error: float) -> float:
    """Return the PSNR of a mean squared error, in pixel values from 0 to 255."""
    return 10 * math.log10(_PEAK**2 / max(squared_error, 1e-9))


def from_psnr(psnr: float) -> float:
    """Return the mean squared error of a PSNR, in pixel values from 0 to 255."""
    return float(_PEAK**2 / 10 ** (psnr / 10))
