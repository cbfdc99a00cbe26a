"""The paper's reconstructor: each window on its own, through fully connected layers.

    y ──×α──▶ [FC → ReLU → BN] × L ──▶ FC → BN ──▶ B×B pixels

The order inside a layer (normalization behind the non-linearity) is that of the authors' code.
Where windows overlap, their images are averaged.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tersense.io.schema import above, at_least, at_most, require, validate
from tersense.reconstruction.base import Reconstructor, register
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator


@dataclass(frozen=True)
class MlpOptions:
    """The layers.

    Args:
        hidden: Units of each hidden layer; L = 2 of 2048 in the paper, at most 64.
        eps: Added to variances in batch normalization; 0.001 in the authors' code.
    """

    hidden: tuple[Annotated[int, at_least(1), at_most(2**20)], ...] = (2048, 2048)
    eps: Annotated[float, above(0), at_most(1)] = 1e-5

    def __post_init__(self) -> None:
        validate("reconstructor", self)
        require(len(self.hidden) <= 64, "reconstructor.hidden", len(self.hidden),
                "a list of at most 64 layers")  # fmt: skip


@register("mlp")
class MlpReconstructor(Reconstructor):
    """Reconstruct every window from its m measurements alone."""

    Options = MlpOptions

    def __init__(self, geometry: Geometry, rows: int, options: MlpOptions) -> None:
        super().__init__(geometry, rows, options)
        self.halo = geometry.cells - 1  # the windows that share a pixel
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((rows, *options.hidden)):
            normalized = nn.BatchNorm1d(outputs, options.eps)
            layers += [fully_connected(inputs, outputs), nn.ReLU(), normalized]
        inputs, outputs = (rows, *options.hidden)[-1], geometry.window**2
        self.layers = nn.Sequential(
            *layers, fully_connected(inputs, outputs), nn.BatchNorm1d(outputs, options.eps)
        )

    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); see `Reconstructor`."""
        scaled = y * operator.alpha[:, None, None]
        windows = self.layers(scaled.movedim(1, -1).flatten(0, 2))  # (N·h·w, B²)
        return average_windows(windows.view(y.shape[0], *y.shape[-2:], -1), self.geometry, size)


def average_windows(windows: Tensor, geometry: Geometry, size: tuple[int, int]) -> Tensor:
    """Put windows (N, h, w, B²) in their places and average where they overlap: (N, H, W)."""
    if (geometry.window, geometry.window) == size and geometry.cells == 1:
        return windows.view(-1, *size)  # one window is the image: the case that trains
    left, right, top, bottom = geometry.padding(*size)
    extended = (size[0] + top + bottom, size[1] + left + right)
    # The extension is made of whole cells; windows may end before the last of them does.
    covered = tuple(side - geometry.cells * geometry.stride + geometry.window for side in extended)

    def place(columns: Tensor) -> Tensor:
        return F.fold(columns, covered, geometry.window, stride=geometry.stride)

    columns = windows.flatten(1, 2).movedim(1, 2)
    counts = place(torch.ones_like(columns[:1]))
    image = (place(columns) / counts)[:, 0, top:, left:]
    return image[:, : size[0], : size[1]]


def fully_connected(inputs: int, outputs: int) -> nn.Linear:
    """Return a layer with Xavier weights and no bias to begin with."""
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
