"""Dense sensing with learned real weights: what being ternary and sparse costs."""

import torch
from torch import Tensor, nn

from tersense.sensing.ternary import Patterns, rows_for_rate


class DenseSensor(nn.Module):
    """Hold Θ and use it as it is, neither sparsified nor binarised.

    Args:
        window: W; a pattern has W×W pixels.
        stride: S; the patterns are applied every S pixels.
        rate: R = m/S², measurements a pixel.
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
        """Return Φ (m, W, W), and ones for α."""
        ones = torch.ones(len(self.theta), device=self.theta.device)
        return self.theta.view(-1, self.window, self.window), ones
