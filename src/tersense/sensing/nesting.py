"""Order patterns so that the first ones alone are already a good camera.

A nested camera works at every rate: the first m of its patterns are the camera at that rate.
Training settles what they look like; this is how they begin.
"""

import numpy as np
from numpy.typing import NDArray

from tersense.sensing.ternary import Patterns

LOWEST_SHARE = 1 / 50  # of its patterns; with fewer a nested camera is not trained, and fails
_CORRELATION = 0.95  # of neighbouring pixels in photographs


def most_telling_first(patterns: Patterns) -> NDArray[np.intp]:
    """Return an order of the patterns, each the one that tells most about what is still unknown.

    Pixels are taken for Gaussian with covariance C = ρ^(|Δrow| + |Δcolumn|). Measuring φ lowers
    the variance of the whole window by ‖Cφ‖²/φᵀCφ, and leaves C − Cφφᵀ C/φᵀCφ.
    """
    count, window = len(patterns), patterns.window
    apart = np.abs(np.subtract.outer(np.arange(window), np.arange(window)))
    covariance = _CORRELATION**apart
    phi = patterns.phi.astype(np.float64)
    known = (covariance @ phi @ covariance).reshape(count, -1)  # row i is φᵢᵀC
    phi = phi.reshape(count, -1)
    order: list[int] = []
    for _ in range(count):
        variances = np.einsum("ij,ij->i", known, phi)
        tells = np.einsum("ij,ij->i", known, known) / np.maximum(variances, 1e-9)
        tells[order] = -1.0
        best = int(np.argmax(tells))
        order.append(best)
        known -= np.outer(known @ phi[best], known[best]) / max(variances[best], 1e-9)
    return np.array(order)
