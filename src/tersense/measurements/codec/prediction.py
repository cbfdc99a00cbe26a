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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.sensing.loops import compiled
from tersense.sensing.patterns import Patterns

FRACTION = 4  # binary places of predictions and their errors, in codes
COEFFICIENT = 14  # binary places of L
_DISTANCE = 60  # pixels, at which the correlation has fallen to a half
_ONE = 1 << 16  # covariance of a pixel with itself
_VARIANCE = 68 * 68  # of pixels from 0 to 255
_MISFIT = 512  # least variance of an error, in the units of _ONE: photographs are not Gaussian
COVARIANCE_BITS = 30
_FACTOR = 30  # binary places of L while it is computed; with the above, sums stay below 2^62
_KEPT = 20  # and of what is kept of it
_MOST = 2**31 - 1
_LARGEST_DEVIATION = 2**30  # with its places
_ENTRIES_AT_ONCE = 2**22

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
        coefficients = np.clip(_round(lower, _KEPT - COEFFICIENT), -_MOST, _MOST).astype(np.int32)
        return cls(coefficients, np.clip(deviations // steps, 1, _LARGEST_DEVIATION))


@lru_cache(maxsize=16)
def _learn(patterns: Patterns, powers: tuple[int, ...]) -> tuple[Integers, Integers]:
    """Return L below its diagonal, with 20 binary places, and the deviations of the errors.

    How steps are rounded to powers of two matters little, and spares most of the work of trying
    several of them.
    """
    rounding = [(3 << power) ** 2 * _ONE // (4 * 12 * _VARIANCE) for power in powers]
    covariance = _covariance(patterns) + np.diag(np.array(rounding, np.int64))
    shift = max(0, int(covariance.max()).bit_length() - COVARIANCE_BITS)
    lower, variances = factors((covariance >> shift) + np.diag([_MISFIT] * len(patterns)))
    inside = (int(variance) << shift for variance in variances)
    deviations = [math.isqrt(v * _VARIANCE * 4**FRACTION // _ONE) for v in inside]
    kept = np.clip(_round(np.tril(lower, -1), _FACTOR - _KEPT), -_MOST, _MOST)
    return kept, np.array(deviations)


@lru_cache(maxsize=4)
def _covariance(patterns: Patterns) -> Integers:
    """Return ΦCΦᵀ (m, m), with variance `_ONE` of a pixel.

    It is computed in floating point and rounded to the whole numbers that it consists of: the error
    of a Fourier transform is far below a half, and products below 2^53 have none.
    """
    window, flat = patterns.window, patterns.phi.reshape(len(patterns), -1)
    side = 2 * window  # so that nothing wraps around into the window
    apart = np.minimum(np.arange(side), side - np.arange(side)).astype(np.float64) ** 2
    # In 256ths of a pixel, so that the root need not be whole.
    half, distance = 256 * _DISTANCE, np.floor(256 * np.sqrt(apart[:, None] + apart))
    spectrum = np.fft.rfft2(np.floor(half * _ONE / (half + distance)))
    covariance = np.zeros((len(patterns), len(patterns)), np.int64)
    most = int(max(map(np.max, patterns.signs_per_row))).bit_length() + 1  # bits of the nonzeros
    unit = 2.0 ** max(0, 2 * most + 16 - 53)  # of what huge windows see
    together = max(1, _ENTRIES_AT_ONCE // side**2)  # rows, so that memory is bounded
    for begin in range(0, len(patterns), together):
        rows = slice(begin, begin + together)
        of_rows = np.fft.rfft2(patterns.phi[rows].astype(np.float64), (side, side))
        smooth = np.rint(np.fft.irfft2(of_rows * spectrum, (side, side))[:, :window, :window])
        smooth = np.floor(smooth / unit).reshape(-1, window**2)
        for other in range(0, len(patterns), together):
            columns = slice(other, other + together)
            product = smooth @ flat[columns].T.astype(np.float64)
            covariance[rows, columns] = product.astype(np.int64) * int(unit)
    return covariance


@compiled
def factors(covariance: Any) -> Any:
    """Return L with 30 binary places and the diagonal of D, none below the misfit."""
    count, half = len(covariance), 1 << (_FACTOR - 1)
    lower = np.zeros((count, count), np.int64)
    scaled = np.zeros((count, count), np.int64)  # L·D
    variances = np.zeros(count, np.int64)
    for j in range(count):
        for i in range(j, count):
            total = np.int64(half)
            for k in range(j):
                total += scaled[i, k] * lower[j, k]
            scaled[i, j] = covariance[i, j] - (total >> _FACTOR)
            if i == j:
                variances[j] = max(_MISFIT, scaled[j, j])
            lower[i, j] = ((scaled[i, j] << _FACTOR) + variances[j] // 2) // variances[j]
    return lower, variances


def to_coefficients(lower: Integers) -> NDArray[np.int32]:
    """Return L below its diagonal, as `factors` gives it, with 14 binary places."""
    kept = _round(np.tril(lower, -1), _FACTOR - COEFFICIENT)
    return np.clip(kept, -_MOST, _MOST).astype(np.int32)


def _round(numbers: Integers, places: int) -> Integers:
    """Return numbers without their last binary places."""
    return (numbers + (1 << (places - 1))) >> places
