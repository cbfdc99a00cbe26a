"""How far an estimate is from the image, as a number to minimize.

The paper's loss is the squared one; absolute errors (Charbonnier) suit stronger reconstructors, and
their logarithm models that learn several rates at once: errors at 1 % are ten times those at 50 %,
and would decide alone where the network goes.
"""

from collections.abc import Callable

from torch import Tensor, nn

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


def l2_penalty(reconstructor: nn.Module) -> Tensor:
    """Return ½·Σw² over the weight matrices, which the paper adds against over-fitting."""
    matrices = [w for w in reconstructor.parameters() if w.ndim > 1]
    total: Tensor = 0.5 * sum(w.square().sum() for w in matrices)  # type: ignore[assignment]
    return total


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": squared,
    "charbonnier": charbonnier,
    "log": log_charbonnier,
}
