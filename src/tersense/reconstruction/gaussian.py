"""The best linear estimate: what can be had from any patterns without training.

Neighbouring pixels are alike. With pixels as a Gaussian process of covariance C, whose correlation
falls by the same factor from one pixel to the next, down and across, the best estimate is

    x̂ = CΦᵀa,   (ΦCΦᵀ + νI)a = y,

solved for the picture as a whole by conjugate gradients: no block edges, any geometry.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tersense.errors import TersenseError
from tersense.reconstruction.base import Reconstructor, register
from tersense.reconstruction.solvers.conjugate_gradient import solve
from tersense.sensing.operator import Geometry, SensingOperator

_PIXELS_SEEN = 32  # farther measurements have no visible influence
_TOLERANCE, _MOST_STEPS = 0.003, 200


@dataclass(frozen=True)
class LinearOptions:
    """What is assumed of pictures.

    Args:
        correlation: Of a pixel with the next one.
        noise: ν, the variance of a measurement's noise, with pixels of variance 1.
    """

    correlation: float = 0.8  # chosen on four pictures among 0.8 … 0.98; lower was not tried
    noise: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.correlation < 1 and 0 < self.noise <= 1e6):
            raise TersenseError(
                f"reconstructor.correlation = {self.correlation:g} and noise = {self.noise:g} are "
                "not possible; correlation lies between 0 and 1, noise above 0"
            )


@register("linear")
class LinearReconstructor(Reconstructor):
    """Estimate the whole picture linearly; there are no weights to train."""

    Options = LinearOptions
    any_rate = True

    def __init__(self, geometry: Geometry, patterns: int, options: LinearOptions) -> None:
        super().__init__(geometry, patterns, options)
        self.halo = -(-_PIXELS_SEEN // geometry.stride)

    @torch.no_grad()
    def forward(self, y: Tensor, operator: SensingOperator, size: tuple[int, int]) -> Tensor:
        """Reconstruct (N, H, V) from y (N, m, h, w); see `Reconstructor`."""
        down, across = (self._covariance(side, y) for side in size)
        own = self._own_inverse(operator)

        def spread(a: Tensor) -> Tensor:
            return down @ operator.adjoint(a, size) @ across

        a = solve(
            lambda a: operator.forward(spread(a)) + self.options.noise * a,
            y,
            lambda r: torch.einsum("rs,nshw->nrhw", own, r),
            _TOLERANCE,
            _MOST_STEPS,
            warn=False,  # what is left by then is far below what the model itself misses
        )
        return spread(a)

    def _own_inverse(self, operator: SensingOperator) -> Tensor:
        """Return (ΦCΦᵀ + νI)⁻¹ of a window that stands alone, to begin with."""
        phi = operator.phi.double()
        window = self._covariance(operator.geometry.window, phi)
        gram = phi.flatten(1) @ (window @ phi @ window).flatten(1).T
        damped = gram + self.options.noise * torch.eye(len(gram), device=phi.device)
        inverse: Tensor = torch.linalg.inv(damped)
        return inverse.to(operator.phi.dtype)

    def _covariance(self, side: int, like: Tensor) -> Tensor:
        place = torch.arange(side, device=like.device)
        distance = (place[:, None] - place).abs().to(like)
        return torch.pow(self.options.correlation, distance)
