"""Basis Pursuit and total variation by a primal–dual method.

Both look for the image of smallest norm among those that agree with the measurements:

    min ‖Kx‖  subject to  Φx = y      Basis Pursuit: K = Ψᵀ, the DCT of each window on its own
                                      total variation: K = D, the differences of the whole image

Windows must not overlap (S = B): the projection onto {x : Φx = y} is then known in closed form.
"""

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.reconstruction.solvers.conjugate_gradient import Map
from tersense.sensing.operator import SensingOperator

_RELAXATION = 1.8  # below 2; longer steps than the plain iteration's
_CHECK_EVERY = 20  # iterations; to look at the gap costs about one


class Solution(NamedTuple):
    """What a solver found, and how good the worst of its images is."""

    x: Tensor
    iterations: int
    gap: float  # how far from the optimum; see `_minimize`
    violation: float  # how far from agreeing with y: ‖Φ⁺(Φx − y)‖/‖Φ⁺y‖


def basis_pursuit(
    y: Tensor, phi: Tensor, tolerance: float = 1e-3, iterations: int = 10_000
) -> Solution:
    """Solve min ‖u‖₁ subject to ΦΨu = y for many windows at once (Chen, Donoho, Saunders 1999).

    Args:
        y: (N, m), floating point; its precision is used throughout.
        phi: (m, H, W); windows need not be square, because the end of an image may cut them.
        tolerance: The gap to stop at.
        iterations: The most to take.

    Returns:
        The windows x = Ψu, (N, H, W).
    """
    shape = phi.shape[1:]
    atoms, target = dct_atoms(phi, y)
    atoms = atoms.flatten(1)
    solution = _minimize(
        lambda u: u + (target - u @ atoms.T) @ atoms, y.new_zeros(len(y), atoms.shape[1]),
        lambda u: u[:, None], lambda p: p[:, 0], 2.0, 1.0, tolerance, iterations,
    )  # fmt: skip
    return solution._replace(x=from_dct(solution.x.view(-1, *shape)))


def dct_atoms(phi: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return ΦΨ (r, H, W) with orthonormal rows, and what y (N, m) becomes with it, (N, r)."""
    phi, target = _orthonormal(phi, y)
    down, across = (_dct_matrix(side).to(y) for side in phi.shape[1:])
    return down @ phi @ across.T, target


def from_dct(u: Tensor) -> Tensor:
    """Return the windows x = Ψu of coefficients u, both (N, H, W)."""
    down, across = (_dct_matrix(side).to(u) for side in u.shape[1:])
    return down.T @ u @ across


def total_variation(
    y: Tensor, operator: SensingOperator, size: tuple[int, int],
    tolerance: float = 1e-3, iterations: int = 10_000,
) -> Solution:  # fmt: skip
    """Solve min Σ‖(Dx)ᵢ‖₂ subject to Φx = y, with (Dx)ᵢ the steps down and right from pixel i.

    Args:
        y: (m, h, w), or (N, m, h, w) for images of one size, of the operator's type.
        operator: The camera; its windows must not overlap.
        size: (H, W) of the image.
        tolerance: As in `basis_pursuit`.
        iterations: As in `basis_pursuit`.

    Returns:
        The image x, (H, W) or (N, H, W).
    """
    batch, window, kinds = y.reshape(-1, *y.shape[-3:]), operator.geometry.window, []
    for (rows, columns), place, (height, width) in operator.geometry.block_kinds(size):
        phi, target = _orthonormal(operator.phi[:, :height, :width], batch[..., rows, columns])
        phi = F.pad(phi, (0, window - width, 0, window - height))
        kinds.append((place, SensingOperator(phi, window), target))

    def project(x: Tensor) -> Tensor:
        nearest = x.clone()
        for (rows, columns), camera, target in kinds:
            part = x[:, rows, columns]
            missing = target - camera.forward(part)
            nearest[:, rows, columns] += camera.adjoint(missing, (part.shape[1], part.shape[2]))
        return nearest

    solution = _minimize(
        project, batch.new_zeros(len(batch), *size),
        _steps, _steps_adjoint, 0.05, 8.0, tolerance, iterations,
    )  # fmt: skip
    return solution._replace(x=solution.x.view(*y.shape[:-3], *size))


@torch.no_grad()
def _minimize(
    project: Map, zero: Tensor, analyze: Map, adjoint: Map,
    step: float, bound: float, tolerance: float, iterations: int,
) -> Solution:  # fmt: skip
    """Solve min ‖Kx‖ subject to Φx = y by the method of Chambolle and Pock (2011), over-relaxed.

    `project` maps x (N, …) to the nearest that agrees, `analyze` is K, to (N, d, …), `adjoint` Kᵀ,
    `bound` ‖K‖², `step` relative to Φ⁺y (tuned); ‖·‖ sums the lengths of vectors of d numbers.
    The dual variable p, of vectors no longer than 1, proves x optimal where ⟨p, Kx⟩ = ‖Kx‖ and Kᵀp
    is a combination of the patterns. The gap is the larger of two errors: ‖Kx‖ − ⟨p, Kx⟩ as a
    share of ‖Kx‖, and the root mean square of that part of Kᵀp which the patterns do not span.
    """
    x = shortest = project(zero)  # Φ⁺y
    tiny = torch.finfo(x.dtype).tiny
    p, flat = torch.zeros_like(analyze(x)), 1e-3 * analyze(x).norm(dim=1).flatten(1).sum(1)
    tau = (step * x.flatten(1).abs().mean(1) + tiny**0.5).view(-1, *[1] * (x.ndim - 1))
    for count in range(1, iterations + 1):
        x_next = project(x - tau * adjoint(p))
        ahead = p + analyze(2 * x_next - x) / (bound * tau[:, None])
        p_next = ahead / ahead.norm(dim=1, keepdim=True).clamp(min=1)
        if count % _CHECK_EVERY == 0 or count == iterations:
            norm, back = analyze(x_next).norm(dim=1).flatten(1).sum(1), adjoint(p_next)
            slack = (norm - (back * x_next).flatten(1).sum(1)) / torch.maximum(norm, flat + tiny)
            unseen = (x_next - project(x_next - back)).flatten(1).square().mean(1).sqrt()
            gap = float(torch.maximum(slack, unseen).max())
            if gap <= tolerance:
                break
        x, p = x + _RELAXATION * (x_next - x), p + _RELAXATION * (p_next - p)
    else:
        warnings.warn(f"gap {gap:.1g} after {count} iterations", RuntimeWarning, stacklevel=3)
    distance, scale = (t.flatten(1).norm(dim=1) for t in (x_next - project(x_next), shortest))
    return Solution(x_next, count, gap, float((distance / (scale + tiny)).max()))


def _orthonormal(phi: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Turn phi (m, H, W) into orthonormal patterns (r, H, W), and y (N, m, …) into theirs."""
    # So prepared, single precision will do even where a cut window makes Φ nearly singular.
    rows = phi.double().flatten(1)
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    kept = values > 1e-10 * values[-1]
    whiten = (vectors[:, kept] / values[kept].sqrt()).T
    target = torch.einsum("rm,nm...->nr...", whiten, y.double())
    return (whiten @ rows).view(-1, *phi.shape[1:]).to(y), target.to(y)


def _dct_matrix(n: int) -> Tensor:
    """Return the orthonormal DCT-II, (n, n) float64."""
    k = torch.arange(n, dtype=torch.float64)
    matrix = (math.pi / n * k[:, None] * (k + 0.5)).cos() * math.sqrt(2 / n)
    matrix[0] /= math.sqrt(2)
    return matrix


def _steps(x: Tensor) -> Tensor:
    """Return Dx (N, 2, H, W) of x (N, H, W); 0 where there is no next pixel."""
    return torch.stack((F.pad(x.diff(dim=1), (0, 0, 0, 1)), F.pad(x.diff(dim=2), (0, 1))), dim=1)


def _steps_adjoint(p: Tensor) -> Tensor:
    """Return Dᵀp (N, H, W) of p (N, 2, H, W)."""
    down, right = F.pad(p[:, 0, :-1], (0, 0, 1, 1)), F.pad(p[:, 1, :, :-1], (1, 1))
    return -down.diff(dim=1) - right.diff(dim=2)
