"""A network with the arithmetic of OPINE-Net+, to measure a machine by.

Zhang, Zhao, Gao, *Optimization-inspired compact deep compressive sensing*, 2020: nine phases, each
a gradient step toward the measurements of 33×33 blocks and eight 3×3 convolutions of 32 feature
maps at the image's full size. Layers, sizes and order are those of the published network at 25 %;
the weights are random. Its time and its multiply-adds mean something, its images do not.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

BLOCK, ROWS, PHASES, MAPS = 33, 272, 9, 32


class Yardstick(nn.Module):
    """Reconstruct (N, 1, 33h, 33w) from measurements (N, 272, h, w)."""

    phi: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phi", torch.randn(ROWS, 1, BLOCK, BLOCK) / BLOCK)
        self.phases = nn.ModuleList(_Phase() for _ in range(PHASES))

    def forward(self, y: Tensor) -> Tensor:
        """Begin with Φᵀy, and improve it phase by phase."""
        spread = self._spread(y)
        x = spread
        for phase in self.phases:
            again = self._spread(F.conv2d(x, self.phi, stride=BLOCK))
            x = phase(x, again - spread)
        return x

    def _spread(self, y: Tensor) -> Tensor:
        """Return Φᵀy."""
        columns = self.phi.flatten(1).T[:, :, None, None]
        return F.pixel_shuffle(F.conv2d(y, columns), BLOCK)


class _Phase(nn.Module):
    """A gradient step and the learned proximal step after it.

    The published program also applies two of the convolutions backwards; only the loss of its
    training looks at that, and it is left out here.
    """

    def __init__(self) -> None:
        super().__init__()
        convolution = partial(nn.Conv2d, kernel_size=3, padding=1, bias=False)
        self.step = nn.Parameter(torch.tensor(0.5))
        self.enter = convolution(1, MAPS)
        self.forth = nn.Sequential(convolution(MAPS, MAPS), nn.ReLU(), convolution(MAPS, MAPS))
        self.shrink = nn.Softshrink(0.01)
        self.back = nn.Sequential(convolution(MAPS, MAPS), nn.ReLU(), convolution(MAPS, MAPS))
        self.leave = nn.Sequential(
            nn.ReLU(), convolution(MAPS, MAPS), nn.ReLU(), convolution(MAPS, MAPS),
            convolution(MAPS, 1),
        )  # fmt: skip

    def forward(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return a better image (N, 1, H, W)."""
        x = x - self.step * gradient
        change: Tensor = self.leave(self.back(self.shrink(self.forth(self.enter(x)))))
        return x + change
