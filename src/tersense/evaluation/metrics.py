"""How close two images are: PSNR and SSIM, one number an image.

Averages over a set are means of these numbers, never a number of pooled errors.
"""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseWarning

_SIGMA, _RADIUS = 1.5, 5


def psnr(estimate: NDArray[Any], reference: NDArray[Any], peak: float = 255.0) -> float:
    """Return the peak signal-to-noise ratio in dB; infinite for equal images.

    Args:
        estimate: (H, W) or (H, W, 3), any real type; used as it is, neither rounded nor clipped.
        reference: The same shape.
        peak: The largest possible pixel value.
    """
    _check(estimate, reference, peak)
    error = np.mean((estimate.astype(np.float64) - reference.astype(np.float64)) ** 2)
    return math.inf if error == 0 else float(10 * np.log10(peak**2 / error))


def ssim(estimate: NDArray[Any], reference: NDArray[Any], peak: float = 255.0) -> float:
    """Return the structural similarity of Wang et al. (2004); color is averaged over channels.

    Gaussian window of σ = 1.5 and 11×11 pixels, population covariance, windows inside the
    image only. Images below 11×11 pixels have none: the result is NaN.

    Args:
        estimate: (H, W) or (H, W, 3), any real type.
        reference: The same shape.
        peak: The largest possible pixel value.
    """
    _check(estimate, reference, peak)
    if min(reference.shape[:2]) <= 2 * _RADIUS:
        return math.nan
    a, b = estimate.astype(np.float64), reference.astype(np.float64)
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    mean_a, mean_b = _blur(a), _blur(b)
    variance_a = _blur(a * a) - mean_a**2
    variance_b = _blur(b * b) - mean_b**2
    covariance = _blur(a * b) - mean_a * mean_b
    similarity = ((2 * mean_a * mean_b + c1) * (2 * covariance + c2)) / (
        (mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2)
    )
    return float(similarity.mean())


def _blur(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Filter by the Gaussian window along both sides, where it fits."""
    taps = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
    taps /= taps.sum()
    for axis in (0, 1):
        length = image.shape[axis] - 2 * _RADIUS
        shifted = (np.take(image, range(start, start + length), axis) for start in range(taps.size))
        image = sum(tap * part for tap, part in zip(taps, shifted, strict=True))
    return image


def _check(estimate: NDArray[Any], reference: NDArray[Any], peak: float) -> None:
    if estimate.shape != reference.shape:
        raise ValueError(
            f"images must have one shape to be compared, got {estimate.shape} and {reference.shape}"
        )
    if peak == 255 and reference.dtype == np.uint16 and np.max(reference, initial=0) > 255:
        warnings.warn(
            "pixels above 255 are compared with a peak of 255; pass peak=2**depth - 1",
            TersenseWarning,
            stacklevel=3,
        )
    floats = estimate.dtype.kind == reference.dtype.kind == "f"
    if peak == 255 and floats and 0 < np.max(reference, initial=0) <= 1:
        warnings.warn(
            "pixels between 0 and 1 are compared with a peak of 255; pass peak=1",
            TersenseWarning,
            stacklevel=3,
        )
