"""What the first rows of a window tell about the next, in integers, the same everywhere.

Neighboring pixels are alike: two pixels at a distance of d are taken to be correlated by
1/(1 + d/60). With A = ΦCΦᵀ + νI, the covariance of a window's measurements and of their rounding,
and A = L·D·Lᵀ (L lower triangular with ones on its diagonal), the best linear prediction of row j
is Σ L_ji·e_i over the rows i before it, where e_i is the error of the prediction of row i. D holds
the variances of these errors.

A decoder repeats the predictions of the encoder and must arrive at the same integers, on any
machine. So the factors are computed in 64-bit integers of fixed point: whatever they round, they
round alike, and a rounding costs some bits, never a measurement.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tersense.sensing.patterns import Patterns

FRACTION = 4  # binary places of predictions and their errors, in codes
COEFFICIENT = 14  # binary places of L
_DISTANCE = 60  # pixels, at which the correlation has fallen to a half
_ONE = 1 << 16  # covariance of a pixel with itself
_VARIANCE = 68 * 68  # of pixels from 0 to 255
_MISFIT = 512  # least variance of an error, in the units of _ONE: photographs are not Gaussian
_COVARIANCE_BITS = 30
_FACTOR = 20  # binary places of L while it is computed
_MOST = 2**31 - 1

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Prediction:
    """How rows are predicted from the rows before them, in codes.

    Args:
        coefficients: L, (m, m) int32 with 14 binary places, zero from the diagonal on.
        deviations: (m,) of the errors, in codes with 4 binary places, at least 1.
    """

    coefficients: NDArray[np.int32]
    deviations: Integers

    @classmethod
    def of(cls, patterns: Patterns, steps: Integers) -> "Prediction":
        """Return the prediction for the codes of these patterns.

        Args:
            patterns: Φ.
            steps: (m,), what one unit of a code stands for, for pixels from 0 to 255.
        """
        powers = tuple(int(step).bit_length() - 1 for step in steps)
        lower, deviations = _learn(patterns, powers)
        if steps.min() != steps.max():
            # Errors of row i in units of its own step become those of row j in units of its.
            lower = (lower * steps + steps[:, None] // 2) // steps[:, None]
        rounded = (lower + (1 << (_FACTOR - COEFFICIENT - 1))) >> (_FACTOR - COEFFICIENT)
        coefficients = np.clip(rounded, -_MOST, _MOST).astype(np.int32)
        return cls(coefficients, np.maximum(deviations // steps, 1))


@lru_cache(maxsize=16)
def _learn(patterns: Patterns, powers: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Return L below its diagonal, with 20 binary places, and the deviations of the errors.

    How steps are rounded to powers of two matters little, and spares most of the work of trying
    several of them.
    """
    covariance = _covariance(patterns)
    rounding = [(3 << power) ** 2 * _ONE // (4 * 12 * _VARIANCE) for power in powers]
    covariance = covariance + np.diag(np.array(rounding, np.int64) + _MISFIT)
    shift = max(0, int(covariance.max()).bit_length() - _COVARIANCE_BITS)
    lower, variances = _factors(covariance >> shift)
    inside = (int(variance) << shift for variance in variances)
    deviations = [math.isqrt(v * _VARIANCE * 4**FRACTION // _ONE) for v in inside]
    return np.tril(lower, -1), np.array(deviations)


@lru_cache(maxsize=4)
def _covariance(patterns: Patterns) -> Integers:
    """Return ΦCΦᵀ (m, m), with variance `_ONE` of a pixel."""
    window = patterns.window
    apart = np.arange(1 - window, window) ** 2
    table = np.empty((2 * window - 1, 2 * window - 1), np.int64)
    for place, squared in np.ndenumerate(apart[:, None] + apart):
        # In 256ths of a pixel, so that the root need not be whole.
        half, distance = 256 * _DISTANCE, math.isqrt(65536 * int(squared))
        table[place] = half * _ONE // (half + distance)
    flat = patterns.phi.reshape(len(patterns), -1)
    smooth = np.zeros((len(patterns), window, window), np.int64)
    for row, pattern in zip(smooth, patterns.phi, strict=True):
        for y, x in np.argwhere(pattern):
            seen = table[window - 1 - y : 2 * window - 1 - y, window - 1 - x : 2 * window - 1 - x]
            row += seen if pattern[y, x] > 0 else -seen
    # Whole numbers below 2^53: products of floating point are exact, and fast.
    product = smooth.reshape(flat.shape).astype(np.float64) @ flat.T.astype(np.float64)
    return product.astype(np.int64)


def _factors(covariance: Integers) -> tuple[Integers, Integers]:
    """Return L with 20 binary places and the diagonal of D, all of them at least 1."""
    count = len(covariance)
    lower = np.zeros((count, count), np.int64)
    scaled = np.zeros((count, count), np.int64)  # L·D
    variances = np.ones(count, np.int64)
    for j in range(count):
        rest = covariance[j:, j] - ((scaled[j:, :j] @ lower[j, :j]) >> _FACTOR)
        variances[j] = max(1, int(rest[0]))
        scaled[j:, j] = rest
        lower[j:, j] = (rest << _FACTOR) // variances[j]
    return lower, variances
