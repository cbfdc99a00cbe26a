"""Undo the overlap of patterns: (ΦΦᵀ + λI)⁻¹, for windows side by side and for overlapping ones.

ΦΦᵀ tells how much each measurement repeats the others of its window and of the windows that overlap
it. It is the same everywhere inside an image, that is, a convolution over the grid of windows: one
m×m matrix for blocks, a few of them for lapped windows. A convolution is inverted frequency by
frequency; the inverse fades within a few windows, so that a small grid is enough to find it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.sensing.operator import SensingOperator

_REACH = 3  # how many overlaps away measurements still correct each other
_ITERATIONS = 20  # enough for a condition number of some ten thousand
_LONGEST_STEP = 1.5  # of what would be exact; beyond 2, repeated steps grow without end


def inverse_gram(
    operator: SensingOperator, damping: float | Tensor = 0.01, kept: int = 2
) -> Tensor:
    """Return (ΦΦᵀ + λI)⁻¹ as a convolution over windows, (m, m, t, t) with t odd.

    It is exact for blocks. For lapped windows it is the middle of that of a torus, close to exact
    inside an image and less so at its border, where windows lose pixels and neighbors. Where they
    overlap so much that steps there would be far too long, all are made shorter.

    Args:
        operator: The camera; gradients flow through its Φ.
        damping: λ, as a share of the largest energy of a pattern; at least about 0.01.
        kept: How many overlaps away measurements correct each other, 1 to 3. The third is worth
            0.002 dB and half of the arithmetic; without the second, steps of random cameras of high
            rates go astray.
    """
    reach = operator.geometry.cells - 1
    identity = torch.eye(len(operator.phi), dtype=operator.phi.dtype, device=operator.phi.device)
    gram = _gram(operator, identity)
    damped = damping * gram[..., reach, reach].diagonal().amax() * identity
    if reach == 0:
        return invert(gram[:, :, 0, 0] + damped)[:, :, None, None]
    grid = 2 * _REACH * reach + 1
    around = (grid - gram.shape[-1]) // 2
    torus = torch.fft.ifftshift(F.pad(gram, (around,) * 4), dim=(-2, -1))
    waves = torch.fft.rfft2(torus).permute(2, 3, 0, 1)  # an m×m matrix for every frequency
    inverse = invert(waves + damped).permute(2, 3, 0, 1)
    kernel: Tensor = torch.fft.fftshift(torch.fft.irfft2(inverse, s=(grid, grid)), dim=(-2, -1))
    middle = slice((_REACH - kept) * reach, grid - (_REACH - kept) * reach)
    kernel = kernel[..., middle, middle].contiguous()
    return kernel / (_longest_step(operator, kernel) / _LONGEST_STEP).clamp(min=1)


@torch.no_grad()
def _longest_step(operator: SensingOperator, kernel: Tensor) -> Tensor:
    """Return the largest eigenvalue of Φᵀ·kernel·Φ on a small image, by power iteration."""
    side = (kernel.shape[-1] + 1) * operator.geometry.stride
    x = torch.arange(side * side, dtype=kernel.dtype, device=kernel.device).sin()
    x = x.view(1, side, side)  # any image that is not smooth
    for _ in range(10):
        x = x / x.norm()
        x = operator.adjoint(convolve_windows(kernel, operator.forward(x)), (side, side))
    longest: Tensor = torch.linalg.vector_norm(x)
    return longest


@torch.no_grad()
def whitening(operator: SensingOperator, damping: float) -> Tensor:
    """Return L⁻¹ (m, m), where LLᵀ = ΦΦᵀ + λI is that of one window's own measurements.

    L⁻¹ is lower triangular: its first rows and columns belong to the camera that has only the first
    patterns. With M, which leaves out what a window was not measured with, L⁻ᵀML⁻¹ is the inverse
    for any number of measurements per window at once. It is exact for blocks; lapped windows also
    repeat each other, which it does not know.

    Args:
        operator: The camera.
        damping: λ, as a share of the largest energy of a pattern.
    """
    phi = operator.phi.flatten(1).double()
    gram = phi @ phi.T
    identity = torch.eye(len(phi), dtype=phi.dtype, device=phi.device)
    factor = torch.linalg.cholesky(gram + damping * gram.diagonal().amax() * identity)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
    return inverse.to(operator.phi.dtype)


def convolve_windows(kernel: Tensor, y: Tensor) -> Tensor:
    """Apply a convolution over windows (m, m, t, t) to measurements y (N, m, h, w)."""
    if kernel.shape[-1] == 1:
        return F.linear(y.movedim(1, -1), kernel[:, :, 0, 0]).movedim(-1, 1)
    return F.conv2d(y, kernel, padding=kernel.shape[-1] // 2)


def invert(matrices: Tensor) -> Tensor:
    """Invert Hermitian positive definite matrices (…, m, m), differentiably."""
    inverse: Tensor = _Inverse.apply(matrices)  # type: ignore[no-untyped-call]
    return inverse


class _Inverse(torch.autograd.Function):
    """The inverse; on a GPU by products alone.

    There the factorization of complex matrices, which lapped windows need, could not be recorded as
    part of a CUDA graph.
    """

    @staticmethod
    def forward(ctx: Any, matrices: Tensor) -> Tensor:
        inverse = _newton_schulz(matrices) if matrices.is_cuda else _factorized(matrices)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tensor:
        (inverse,) = ctx.saved_tensors
        adjoint, gradient = inverse.mH, gradients[0]
        return -(adjoint @ gradient @ adjoint)  # type: ignore[no-any-return]


def _factorized(matrices: Tensor) -> Tensor:
    """Invert on a CPU, by Cholesky's factors; NaN stay NaN, for the training to notice.

    `torch.linalg.inv` takes Gauss's: given several matrices of hundreds of rows and two threads,
    it never ends (MKL: "Parameter 6 was incorrect on entry to SLASWP").
    """
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(matrices).L)


def _newton_schulz(matrices: Tensor) -> Tensor:
    """Invert by X ← 2X − XAX, whose error is squared in every round."""
    largest = matrices.abs().sum(-1).amax(-1)  # no eigenvalue is above it
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    inverse = identity / largest[..., None, None]
    for _ in range(_ITERATIONS):
        inverse = 2 * inverse - inverse @ matrices @ inverse
    return inverse


def _gram(operator: SensingOperator, identity: Tensor) -> Tensor:
    """Return ΦΦᵀ as a convolution: what a single measurement of one pattern gives in all others."""
    reach = operator.geometry.cells - 1
    impulses = F.pad(identity[:, :, None, None], (reach,) * 4)
    side = (2 * reach + 1) * operator.geometry.stride
    return operator.forward(operator.adjoint(impulses, (side, side)))
