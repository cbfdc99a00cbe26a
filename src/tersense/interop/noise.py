"""What deepinv's noise models say of the errors of y, in the words of a readout.

Our networks are told how exact their measurements are. deepinv keeps that in the noise model: its
levels count in units of y, and there may be one for each image of a batch. deepinv itself is not
imported here; a model is known by its name.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tersense.measurements.readout import Readout

# The deviation of what is added to y, and the gain of what counts photons.
_LEVELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "GaussianNoise": lambda model: (model.sigma, 0.0),
    "UniformNoise": lambda model: (model.a / 3**0.5, 0.0),
    "LaplaceNoise": lambda model: (model.b * 2**0.5, 0.0),
    "PoissonNoise": lambda model: (0.0, model.gain),
    "PoissonGaussianNoise": lambda model: (model.sigma, model.gain),
}


def readouts_of(model: Any, unit: float) -> list[Readout]:
    """Return what a noise model does as readouts: one for all images, or one for each.

    Of a model that is not in the table nothing is known: an exact readout.

    Args:
        model: A noise model of deepinv, or one derived from it.
        unit: What y has for one pixel value.
    """
    names = [cls.__name__ for cls in type(model).__mro__]
    levels = next((_LEVELS[name](model) for name in names if name in _LEVELS), (0.0, 0.0))
    sigmas, gains = (
        level.flatten().tolist() if isinstance(level, Tensor) else [level] for level in levels
    )
    number = max(len(sigmas), len(gains))
    sigmas, gains = (v * number if len(v) == 1 else v for v in (sigmas, gains))
    return [
        Readout(noise=sigma / unit, photons=unit / gain if gain else 0.0)
        for sigma, gain in zip(sigmas, gains, strict=True)
    ]


def for_each(shared: Tensor | None, y: Tensor) -> list[Any]:
    """Return for each image of y (N, …) what holds for it; without N it holds for all."""
    if shared is None:
        return [None] * len(y)
    return list(shared) if shared.ndim == y.ndim else [shared] * len(y)


def ranged(readout: Readout, sums: Tensor, which: Tensor | None) -> Readout:
    """Return the readout with the steps for the sums (C, m, h, w) of an image.

    Args:
        readout: That follows the image, or not.
        sums: Whole pixel values.
        which: What was measured of them; None for all.
    """
    measured = None if which is None else which.cpu().numpy()
    return readout.ranged(sums.detach().cpu().numpy(), measured)
