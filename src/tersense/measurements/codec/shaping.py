"""Round the sums of a window together, so that their errors disturb the image least.

The rows of Φ overlap. If n are the errors of a window's sums, the smallest change of its pixels
that explains them has the square norm nᵀ(ΦΦᵀ)⁻¹n. With ΦΦᵀ = L·D·Lᵀ and n = L·z that is Σ z_j²/D_j,
where z_j = n_j − Σ L_ji·z_i over the rows i before j. So each sum is first relieved of what the
errors before it do to its row, and then rounded: z_j is at most half a step, where otherwise n_j
would be. This is noise shaping, as audio converters do it. Files do not grow, and decoders do not
know of it.

All in integers of fixed point, like predictions: the same codes on every machine.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.measurements.codec.prediction import (
    COVARIANCE_BITS,
    FRACTION,
    Integers,
    factors,
    to_coefficients,
)
from tersense.measurements.codec.stream import counts_of_all, groups
from tersense.measurements.codec.windows import predict_row
from tersense.measurements.counts import Counts
from tersense.measurements.tsm import Header
from tersense.sensing.loops import compiled
from tersense.sensing.patterns import Patterns

_LARGEST_REST = 2**30 - 1  # with its places, of sums beyond the largest code
_DAMPING = 4  # binary digits by which what is added to ΦΦᵀ is smaller: rows may repeat others


def shape_codes(
    sums: NDArray[Any], step: int, header: Header, counts: Counts | None, patterns: Patterns
) -> NDArray[np.int32]:
    """Return the codes of exact sums (m, h, w) or (3, m, h, w).

    Args:
        sums: Integers.
        step: What one unit of a code stands for, in the units of the sums.
        header: Of the codes; its readout says how large they may be.
        counts: Of them; beyond, codes are zero.
        patterns: Φ.
    """
    every, lower = counts_of_all(counts, header), _overlaps(patterns)
    channels = sums.reshape(header.channels, header.rows, -1)
    codes = np.zeros(channels.shape, np.int32)
    for windows in groups(every):
        place, channel = np.divmod(windows, header.channels)
        of_group = np.ascontiguousarray(channels[channel, :, place].T, np.int64)
        _round_together(of_group, every[windows], step, header.readout.largest_code, lower)
        codes[channel, :, place] = of_group.T
    return codes.reshape(header.shape)


@lru_cache(maxsize=4)
def _overlaps(patterns: Patterns) -> NDArray[np.int32]:
    """Return −L (m, m) with 14 binary places, zero from the diagonal on."""
    flat = patterns.phi.reshape(len(patterns), -1).astype(np.float64)
    gram: Integers = np.rint(flat @ flat.T).astype(np.int64)  # whole numbers, without error
    gram <<= COVARIANCE_BITS - 1 - int(gram.max()).bit_length()
    damping = np.full(len(gram), int(gram.max()) >> _DAMPING)
    return -to_coefficients(factors(gram + np.diag(damping))[0])


@compiled
def _round_together(sums: Any, counts: Any, step: int, largest: int, lower: Any) -> None:
    """Replace sums (m, n) by codes; no window has a larger count than the one before."""
    rows, active = sums.shape
    rests = np.zeros((rows, active), np.int32)
    unit = np.int64(step) << FRACTION
    for j in range(rows):
        while active and counts[active - 1] <= j:
            active -= 1
        sums[j, active:] = 0
        relieved = predict_row(lower[j], rests, sums[j] << FRACTION, j, active)
        for w in range(active):
            code = (2 * relieved[w] + unit) // (2 * unit)
            code = min(max(code, -largest), largest)
            rest = relieved[w] - code * unit
            sums[j, w], rests[j, w] = code, min(max(rest, -_LARGEST_REST), _LARGEST_REST)
