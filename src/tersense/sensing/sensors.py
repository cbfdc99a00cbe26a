"""Sensors that do not follow Algorithm 1: the user's own patterns, and dense real weights.

`FixedSensor` holds a measurement matrix that is not learned; `DenseSensor` learns real weights, the
baseline that says what ternary and sparse cost.
"""

import numpy as np
import torch
from torch import Tensor, nn

from tersense.sensing.patterns import Patterns, rows_for_rate


class FixedSensor(nn.Module):
    """Hold patterns that nobody trains: the camera that the user has.

    Args:
        patterns: Φ and its stride.
        learned_scale: Whether the scale of each pattern is trained with the reconstructor.
        scale: (m,), that of a trained camera; lengths of 1 where not given.
    """

    theta: Tensor

    def __init__(
        self, patterns: Patterns, learned_scale: bool = False, scale: Tensor | None = None
    ) -> None:
        super().__init__()
        self.window, self.stride = patterns.window, patterns.stride
        phi = torch.from_numpy(patterns.phi.astype(np.float32)).flatten(1)
        self.register_buffer("theta", phi)
        # Rows of length 1: measurements of all patterns then reach the network equally strong.
        scale = 1 / phi.norm(dim=1) if scale is None else scale.clone()
        self.scale = nn.Parameter(scale, requires_grad=learned_scale)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return Φ (m, B, B) as float, and the scale of each pattern (m,)."""
        return self.theta.view(-1, self.window, self.window), self.scale

    def freeze(self) -> Patterns:
        """Return the patterns, as integers."""
        phi, _ = self()
        return Patterns(phi.to(torch.int8).cpu().numpy(), self.stride)


class DenseSensor(nn.Module):
    """Hold Θ and use it as it is, neither sparsified nor binarized.

    Args:
        window: B; a pattern has B×B pixels.
        stride: S; the patterns are applied every S pixels.
        rate: R = m/S², measurements per pixel.
    """

    def __init__(self, window: int = 32, stride: int = 32, rate: float = 0.25) -> None:
        super().__init__()
        self.window, self.stride = window, stride
        rows = rows_for_rate(rate, stride)
        self.theta = nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, window**2)))

    @torch.no_grad()
    def start_from(self, patterns: Patterns, alpha: Tensor) -> None:
        """Begin with ternary patterns of the same window, as many as there are."""
        count = min(len(patterns), len(self.theta))
        if patterns.window == self.window:
            phi = torch.tensor(patterns.phi[:count]).flatten(1)
            self.theta[:count] = phi * alpha[:count, None].cpu()

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return Φ (m, B, B), and ones for α."""
        ones = torch.ones(len(self.theta), device=self.theta.device)
        return self.theta.view(-1, self.window, self.window), ones
