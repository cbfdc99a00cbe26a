"""How far an estimate is from the image, as a number to minimize.

The paper's loss is the squared one; absolute errors (Charbonnier) suit stronger reconstructors, and
their logarithm models that learn several rates at once: errors at 1 % are ten times those at 50 %,
and would decide alone where the network goes. The logarithm of squared errors is PSNR, but
for a factor and a constant; a network that has nearly finished may aim at it.
"""

import math
from collections.abc import Callable

from torch import Tensor, nn

_FAR, _ABSOLUTE = 2.0, 0.3
_SMOOTH = 1e-3  # below this the Charbonnier loss is a squared one; in deviations of the pixels


def squared(x: Tensor, estimate: Tensor) -> Tensor:
    """Return the mean over crops of ‖x − x̂‖², given x and x̂ (N, H, W)."""
    return (x - estimate).square().sum() / len(x)


def charbonnier(x: Tensor, estimate: Tensor) -> Tensor:
    """Return the mean of √((x − x̂)² + ε²), a smooth absolute error."""
    return ((x - estimate).square() + _SMOOTH**2).sqrt().mean()


def log_charbonnier(x: Tensor, estimate: Tensor) -> Tensor:
    """Return the mean over crops of the logarithm of their Charbonnier loss."""
    smooth = ((x - estimate).square() + _SMOOTH**2).sqrt()
    return smooth.mean(dim=(-2, -1)).log().mean()


def log_squared(x: Tensor, estimate: Tensor) -> Tensor:
    """Return the mean over crops of log ‖x − x̂‖²/HW: but for a constant, minus their mean PSNR."""
    squares = (x - estimate).square().mean(dim=(-2, -1))
    return (squares + _SMOOTH**2).log().mean()


def mean_of_logs(missed: Tensor) -> Tensor:
    """Return the loss of predicted logarithms of errors, given by how much they are too low.

    A prediction p of values e is best where exp(p) is the mean of those exp(e) that look alike: an
    image's PSNR counts squared errors, not their logarithms. What decides between the windows of
    an image does not depend on a constant that all share, and the first term does not count it; the
    second does, a little, so that distant parts of a large image agree.

    Args:
        missed: (N, …), e − p; the first dimension is that of images.
    """
    flat = missed.flatten(1)
    within = flat.logsumexp(dim=1) - math.log(flat.shape[1]) - flat.mean(dim=1)
    low = missed.clamp(max=_FAR)  # beyond, a straight line: one outlier shall not decide
    absolute = low.exp() * (1 + missed - low) - missed - 1
    return within.mean() + _ABSOLUTE * absolute.mean()


def l2_penalty(reconstructor: nn.Module) -> Tensor:
    """Return ½·Σw² over the weight matrices, which the paper adds against over-fitting."""
    matrices = [w for w in reconstructor.parameters() if w.ndim > 1]
    total: Tensor = 0.5 * sum(w.square().sum() for w in matrices)  # type: ignore[assignment]
    return total


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": squared,
    "charbonnier": charbonnier,
    "log": log_charbonnier,
    "log_squared": log_squared,
}
