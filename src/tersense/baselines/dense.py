"""Dense sensing with learned real weights: what being ternary and sparse costs."""

import torch
from torch import Tensor, nn

from tersense.ternary import rows_for_rate


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

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return Φ (m, W, W), and ones for α."""
        ones = torch.ones(len(self.theta), device=self.theta.device)
        return self.theta.view(-1, self.window, self.window), ones
