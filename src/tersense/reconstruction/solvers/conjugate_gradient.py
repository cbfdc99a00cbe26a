"""Solve large symmetric systems by conjugate gradients, many images at once."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]


@torch.no_grad()
def solve(
    apply: Map, b: Tensor, precondition: Map, tolerance: float, max_steps: int, warn: bool = True
) -> Tensor:
    """Solve apply(x) = b, each item of a batch on its own.

    Begun at zero, x stays in the range of `apply`: where that is singular and b lies in its range,
    x becomes the shortest solution.

    Args:
        apply: A symmetric positive semi-definite map of (N, …) to (N, …).
        b: (N, …).
        precondition: An approximate inverse of `apply`, symmetric and positive definite.
        tolerance: The residual to stop at, as a share of b.
        max_steps: After which to stop in any case.
        warn: Whether to say so then.
    """
    others = tuple(range(1, b.ndim))

    def dot(p: Tensor, q: Tensor) -> Tensor:
        return (p * q).sum(dim=others, keepdim=True)

    tiny = torch.finfo(b.dtype).tiny  # keeps an item that is solved from dividing 0 by 0
    x, residual, enough = torch.zeros_like(b), b, tolerance**2 * dot(b, b)
    direction = z = precondition(residual)
    power = dot(residual, z)
    for _ in range(max_steps):
        going = dot(residual, residual) > enough  # a solved item would only gather rounding errors
        if not going.any():
            return x
        applied = apply(direction)
        length = going * power / dot(direction, applied).clamp(min=tiny)
        x, residual = x + length * direction, residual - length * applied
        z = precondition(residual)
        before, power = power, dot(residual, z)
        direction = z + power / before.clamp(min=tiny) * direction
    error = float((dot(residual, residual) / dot(b, b).clamp(min=tiny)).max()) ** 0.5
    if warn and error > tolerance:
        warnings.warn(
            f"residual {error:.1g} after {max_steps} steps of conjugate gradients, "
            f"not {tolerance:.1g}",
            RuntimeWarning,
            stacklevel=2,
        )
    return x
