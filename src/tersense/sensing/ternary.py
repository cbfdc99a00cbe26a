"""Learn sparse ternary patterns: select, binarize, scale (Algorithm 1, lines 1 to 6).

The paper writes the sensing weights as Θ (n×m), one pattern a column. Here a pattern is a row:
`theta` is Θᵀ, (m, n) or (m, B, B), so that Φ = Θ_sbᵀ needs no transpose. The words *column* and
*row* keep the paper's meaning: a column of Θ is one pattern, a row of Θ is one pixel.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tersense.sensing.patterns import Patterns, nonzeros_for_density, rows_for_rate

Selection = Literal["column", "row", "matrix"]
SELECTIONS: tuple[Selection, ...] = ("column", "row", "matrix")


def top_k_select(theta: Tensor, k: int, selection: Selection = "column") -> Tensor:
    """Mark the entries of largest magnitude: the mask M of Algorithm 1, line 2.

    Args:
        theta: Θᵀ, (m, n).
        k: Entries to keep in each column or row of Θ, or in the whole matrix.
        selection: `column` keeps k pixels per pattern, `row` keeps k patterns per pixel, `matrix`
            keeps k entries wherever they are.

    Returns:
        Boolean mask (m, n) with exactly k entries set a slice, whatever ties or zeros occur.
    """
    magnitude = theta.detach().abs()
    if selection == "matrix":
        return _keep_largest(magnitude.flatten(), k).view_as(theta)
    if selection == "row":
        return _keep_largest(magnitude.T, k).T
    return _keep_largest(magnitude, k)


def _keep_largest(magnitude: Tensor, k: int) -> Tensor:
    """Mark the k largest of the last dimension, by position, so that ties cannot add more."""
    indices = magnitude.topk(k, dim=-1, sorted=False).indices
    return torch.zeros_like(magnitude, dtype=torch.bool).scatter_(-1, indices, True)


def scale_factors(theta: Tensor, mask: Tensor) -> Tensor:
    """Return α (m,): the mean magnitude of each pattern's kept entries (line 5).

    α_j θ_sb(j) is then the best approximation of θ_(j) in the least-squares sense. A pattern
    without entries (possible when selecting over the whole matrix) has α = 0.
    """
    kept = (theta.detach().abs() * mask).sum(dim=1)
    return kept / mask.sum(dim=1).clamp(min=1)


class _StraightThrough(torch.autograd.Function):
    """Use Θ_sb going forward; give its gradient to Θ unchanged, neither masked nor clipped."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, mask: Tensor) -> Tensor:
        # The sign of 0 is taken as +1, so that every kept entry is ±1.
        return torch.where(theta < 0, -1.0, 1.0).to(theta.dtype) * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gradients[0], None


def ternarize(theta: Tensor, k: int, selection: Selection = "column") -> tuple[Tensor, Tensor]:
    """Sparsify and binarize the sensing weights (Algorithm 1, lines 1 to 6).

    Args:
        theta: Θᵀ, (m, n).
        k: As in `top_k_select`.
        selection: As in `top_k_select`.

    Returns:
        Φ (m, n) with entries −1, 0, +1, differentiable straight through to `theta`, and
        α (m,), through which no gradient flows.
    """
    mask = top_k_select(theta, k, selection)
    phi: Tensor = _StraightThrough.apply(theta, mask)  # type: ignore[no-untyped-call]
    return phi, scale_factors(theta, mask)


class TernarySensor(nn.Module):
    """Hold Θ and give Φ and α: the trainable half of the camera.

    Args:
        window: B; a pattern has B×B pixels.
        stride: S; the patterns are applied every S pixels.
        rate: R = m/S², measurements per pixel.
        density: γ, the share of non-zero entries.
        selection: How `top_k_select` spends them.
        learn: Whether Θ is trained; otherwise the patterns stay random.
        learned_scale: Whether the scale of each pattern is a weight of its own instead of α.
    """

    def __init__(
        self,
        window: int = 32,
        stride: int = 32,
        rate: float = 0.25,
        density: float = 0.05,
        selection: Selection = "column",
        learn: bool = True,
        learned_scale: bool = False,
    ) -> None:
        super().__init__()
        m, n = rows_for_rate(rate, stride), window**2
        self.window, self.stride, self.selection = window, stride, selection
        per_pattern = nonzeros_for_density(density, n)
        per_pixel = nonzeros_for_density(density, m)
        self.k = {"column": per_pattern, "row": per_pixel, "matrix": m * per_pattern}[selection]
        theta = nn.init.xavier_uniform_(torch.empty(m, n))
        self.theta = nn.Parameter(theta, requires_grad=learn)
        self.scale = nn.Parameter(ternarize(theta, self.k, selection)[1]) if learned_scale else None

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return Φ (m, B, B) as float, differentiable straight through, and α (m,)."""
        phi, alpha = ternarize(self.theta, self.k, self.selection)
        alpha = alpha if self.scale is None else self.scale
        return phi.view(-1, self.window, self.window), alpha

    @torch.no_grad()
    def start_from(self, patterns: Patterns, alpha: Tensor) -> bool:
        """Begin with trained patterns, as many as there are; say whether they fit.

        Smaller patterns are put into the middle of larger windows. The magnitudes that led to them
        are not kept in a model: entries that are not zero begin around α, the others at up to half
        of it, so that training can still exchange them, and a sparser camera takes some at random.
        """
        margin = self.window - patterns.window
        if margin < 0:
            return False
        count = min(len(patterns), len(self.theta))
        around = (margin // 2, margin - margin // 2)
        phi = torch.from_numpy(np.pad(patterns.phi[:count], ((0, 0), around, around))).flatten(1)
        kept, spread = phi != 0, torch.rand(phi.shape) - 0.5
        around_zero = spread - (spread * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)
        theta = torch.where(kept, phi * (1 + around_zero / 2), spread)
        self.theta[:count] = theta * alpha[:count, None].cpu()
        return True

    def freeze(self) -> Patterns:
        """Return the patterns as they are now, as integers."""
        with torch.no_grad():
            phi, _ = self()
        return Patterns(phi.to(torch.int8).cpu().numpy(), self.stride)
