"""The best linear estimate of an image (LMMSE), and of measurements that are missing.

Neighboring pixels are alike. With pixels as a Gaussian process of covariance C, whose correlation
falls by the same factor from one pixel to the next, down and across, the best estimate is

    x̂ = CΦᵀa,   (ΦCΦᵀ + νI)a = y,

over the measurements y that are there, solved for the image as a whole by conjugate gradients: no
block edges, any geometry, any measurement missing. ν is the variance of a measurement's error, that
of the readout included. What is missing is best estimated as Φx̂.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from tersense.io.schema import above, at_least, at_most, below, validate
from tersense.reconstruction.base import Reconstructor, measured_rows, register
from tersense.reconstruction.solvers.conjugate_gradient import solve
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator

_PIXELS_SEEN = 32  # farther measurements have no visible influence


@dataclass(frozen=True)
class LinearOptions:
    """What is assumed of images.

    Args:
        correlation: Of a pixel with the next one.
        noise: ν, the variance of a measurement's error, with pixels of variance 1; that of the
            readout comes on top.
    """

    # Chosen on four images among 0.8 … 0.98, and for missing rows among 0.75 … 0.98.
    correlation: Annotated[float, at_least(0), below(1)] = 0.8
    noise: Annotated[float, above(0), at_most(1e6)] = 1.0

    def __post_init__(self) -> None:
        validate("reconstructor", self)


@register("linear")
class LinearReconstructor(Reconstructor):
    """Estimate the whole image linearly; there are no weights to train."""

    Options = LinearOptions
    any_rate = any_count = True
    half_precision = False

    def __init__(self, geometry: Geometry, rows: int, options: LinearOptions) -> None:
        super().__init__(geometry, rows, options)
        self.halo = -(-_PIXELS_SEEN // geometry.stride)

    @torch.no_grad()
    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); see `Reconstructor`."""
        noise = y.new_tensor(self.options.noise)
        if deviation is not None:
            noise = noise + deviation**2
        model = _GaussianModel(operator, size, self.options.correlation, noise)
        there = None if counts is None else measured_rows(counts, y.shape[1])
        # What is left of the residual by then is far below what the model itself misses.
        return model.spread(model.solve(y, there, tolerance=0.003, max_steps=200))


@torch.no_grad()
def fill_missing(
    y: Tensor, operator: SensingOperator, size: tuple[int, int], tolerance: float = 0.02
) -> Tensor:
    """Replace NaN by the best linear estimate.

    Args:
        y: (N, m, h, w), Φ applied to pixels of zero mean and unit deviation, NaN where missing.
        operator: Φ.
        size: (H, W) of the image.
        tolerance: Of the residual, as a share of y.

    Returns:
        (N, m, h, w) without NaN; what was there is unchanged.
    """
    there, usual = ~y.isnan(), LinearOptions()
    model = _GaussianModel(operator, size, usual.correlation, y.new_tensor(usual.noise))
    weights = model.solve(y, there, tolerance, max_steps=100)
    return torch.where(there, y, operator.forward(model.spread(weights)))


class _GaussianModel:
    """Pixels of covariance C, sensed by Φ with errors of variance ν, which broadcasts to y."""

    def __init__(
        self, operator: SensingOperator, size: tuple[int, int], correlation: float, noise: Tensor
    ) -> None:
        self.operator, self.size, self.noise = operator, size, noise
        self.down, self.across = (_covariance(side, correlation, operator.phi) for side in size)
        phi = operator.phi.double()
        window = _covariance(operator.geometry.window, correlation, phi)
        gram = phi.flatten(1) @ (window @ phi @ window).flatten(1).T
        damped = gram + noise.mean() * torch.eye(len(gram), device=phi.device)
        self.window_inverse = torch.linalg.inv(damped).to(operator.phi)

    def spread(self, a: Tensor) -> Tensor:
        """Return CΦᵀa (N, H, W)."""
        return self.down @ self.operator.adjoint(a, self.size) @ self.across

    def solve(self, y: Tensor, there: Tensor | None, tolerance: float, max_steps: int) -> Tensor:
        """Return a (N, m, h, w), zero where a measurement is not there."""

        def known(values: Tensor) -> Tensor:
            return values if there is None else torch.where(there, values, 0)

        def apply(a: Tensor) -> Tensor:
            return known(self.operator.forward(self.spread(a))) + self.noise * a

        def precondition(a: Tensor) -> Tensor:  # as if each window stood alone and was complete
            return known(torch.einsum("rs,nshw->nrhw", self.window_inverse, a))

        return solve(apply, known(y), precondition, tolerance, max_steps, warn=False)


def _covariance(side: int, correlation: float, like: Tensor) -> Tensor:
    place = torch.arange(side, device=like.device)
    distance = (place[:, None] - place).abs().to(like)
    return torch.pow(correlation, distance)
