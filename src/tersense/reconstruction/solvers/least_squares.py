"""The Moore–Penrose inverse of a camera: Φ⁺y, exact up to the border of the image.

Of all images that agree best with y, Φ⁺y is the shortest. Blocks are solved one by one, in closed
form; those that the image cuts off have patterns, and so an inverse, of their own. Lapped windows
hang together, and windows with counts of their own are all different: there the normal equations
ΦᵀΦx = Φᵀy of the whole image are solved step by step.
"""

from typing import Any

import torch
from torch import Tensor

from tersense.reconstruction.solvers.conjugate_gradient import Map, solve
from tersense.sensing.operator import SensingOperator


def least_squares(
    operator: SensingOperator,
    y: Tensor,
    size: tuple[int, int],
    tolerance: float = 1e-8,
    max_steps: int = 2000,
    measured: Tensor | None = None,
) -> Tensor:
    """Return Φ⁺y (…, H, W), differentiable with respect to y.

    Everything is computed in double precision and returned in that of y.

    Args:
        operator: The camera.
        y: (…, m, h, w).
        size: (H, W) of the image.
        tolerance: Where steps are taken, the error in the normal equations to stop at.
        max_steps: The steps after which to stop with a warning.
        measured: Which values of y there are, broadcasting to it; None for all. The others count
            neither for nor against an image.
    """
    batch = y.double().reshape(-1, *y.shape[-3:])
    if measured is not None:
        measured = measured.expand(y.shape).reshape(batch.shape)
    elif operator.geometry.cells == 1:
        x = _invert_blocks(operator.phi.detach().double(), operator, batch, size)
        return x.reshape(*y.shape[:-3], *size).to(y.dtype)
    x = _ByGradients.apply(batch, operator, size, measured, tolerance, max_steps)  # type: ignore[no-untyped-call]
    return x.reshape(*y.shape[:-3], *size).to(y.dtype)  # type: ignore[no-any-return]


def _invert_blocks(
    phi: Tensor, operator: SensingOperator, y: Tensor, size: tuple[int, int]
) -> Tensor:
    """Invert blocks, whole and cut, from y (N, m, h, w)."""
    x = y.new_zeros(len(y), *size)
    for (rows, columns), (top, left), shape in operator.geometry.block_kinds(size):
        inverse = torch.linalg.pinv(phi[:, : shape[0], : shape[1]].flatten(1))
        windows = torch.einsum("pm,nmhw->nhwp", inverse, y[..., rows, columns])
        windows = windows.view(*windows.shape[:3], *shape).transpose(2, 3)
        x[:, top, left] = windows.flatten(3).flatten(1, 2)
    return x


class _ByGradients(torch.autograd.Function):
    """Φ⁺ by conjugate gradients. Its gradient is (Φ⁺)ᵀ = (Φᵀ)⁺: the same, the other way round."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, operator: SensingOperator, size: tuple[int, int],
        measured: Tensor | None, *limits: Any,
    ) -> Tensor:  # fmt: skip
        double = SensingOperator(operator.phi.detach().double(), operator.geometry.stride)
        there: Any = 1.0 if measured is None else measured
        ctx.forward_map, ctx.limits = (lambda x: there * double.forward(x)), limits
        ctx.adjoint_map = lambda v: double.adjoint(there * v, size)
        return _invert(ctx.forward_map, ctx.adjoint_map, y, *limits)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        back = _invert(ctx.adjoint_map, ctx.forward_map, gradients[0], *ctx.limits)
        return back, None, None, None, None, None


def _invert(forward: Map, adjoint: Map, b: Tensor, tolerance: float, max_steps: int) -> Tensor:
    return solve(lambda x: adjoint(forward(x)), adjoint(b), lambda r: r, tolerance, max_steps)
