"""O-NL-SDA of Mousavi, Patel and Baraniuk (2015): a stacked denoising autoencoder.

    x ──Θ──▶ T(· + b) = measurements ──▶ T(FC, n) ──▶ T(FC, m) ──▶ T(FC, n) = x̂,   T the sigmoid

The camera of this baseline measures T(Θx + b), dense, real-valued and non-linear. It is trained as
a dense sensor (`sensing.kind = "float"`) with this reconstructor, whose first step is the camera's
non-linearity. Assumptions where the paper leaves a choice: n, m, n units behind the measurements;
each layer pre-trained as an autoencoder of its masked input, decoder weights of its own; the output
of the last sigmoid stretched to the range of pixels by two learned numbers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.reconstruction.base import Reconstructor, register
from tersense.reconstruction.mlp import average_windows, fully_connected
from tersense.sensing.operator import Geometry, SensingOperator


@dataclass(frozen=True)
class SdaOptions:
    """How each layer is pre-trained.

    Args:
        corruption: Share of a layer's input that is set to zero.
        pretrain_steps: Steps of Adam a layer.
        pretrain_lr: Its learning rate.
    """

    corruption: float = 0.1
    pretrain_steps: int = 2000
    pretrain_lr: float = 0.001

    def __post_init__(self) -> None:
        if not (0 <= self.corruption < 1 and self.pretrain_steps >= 0 and self.pretrain_lr > 0):
            raise TersenseError(
                f"{self} is not possible: corruption lies between 0 and 1, "
                "pretrain_steps is 0 or more, pretrain_lr above 0"
            )


@register("sda")
class SdaReconstructor(Reconstructor):
    """Reconstruct every window by the upper layers of a stacked denoising autoencoder."""

    Options = SdaOptions

    def __init__(self, geometry: Geometry, patterns: int, options: SdaOptions) -> None:
        super().__init__(geometry, patterns, options)
        n = geometry.window**2
        self.halo = geometry.cells - 1
        self.bias = nn.Parameter(torch.zeros(patterns))
        sizes = pairwise((patterns, n, patterns, n))
        self.layers = nn.ModuleList(fully_connected(*size) for size in sizes)
        self.range = nn.Parameter(torch.tensor([-1.8, 4.2]))  # black, and from black to white

    def forward(self, y: Tensor, operator: SensingOperator, size: tuple[int, int]) -> Tensor:
        """Reconstruct (N, H, V) from y (N, m, h, w); see `Reconstructor`."""
        hidden = torch.sigmoid(y.movedim(1, -1).flatten(0, 2) + self.bias)
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden))
        windows = self.range[0] + self.range[1] * hidden
        return average_windows(windows.view(y.shape[0], *y.shape[-2:], -1), self.geometry, size)

    def prepare(self, theta: Tensor, batches: Iterable[Tensor]) -> None:
        """Pre-train the layers one after the other, each on what the ones below it give."""
        stages: list[tuple[Tensor, Tensor]] = [(theta, self.bias)]
        stages += [(layer.weight, layer.bias) for layer in self.layers]  # type: ignore[misc]
        crops = iter(batches)
        for depth in range(len(stages)):
            self._pretrain(stages[: depth + 1], crops, last=depth + 1 == len(stages))

    def _pretrain(
        self, stages: list[tuple[Tensor, Tensor]], crops: Iterator[Tensor], last: bool
    ) -> None:
        """Train the topmost of some layers on a masked copy of its input.

        It learns to tell the input itself (through a decoder that is then thrown away); the last
        layer of all learns to tell the picture.
        """
        *below, (weight, bias) = stages
        decoder = fully_connected(weight.shape[0], weight.shape[1]).to(weight.device)
        trained = [weight, bias, *([self.range] if last else decoder.parameters())]
        optimizer = torch.optim.Adam(trained, lr=self.options.pretrain_lr, fused=True)
        for _ in range(self.options.pretrain_steps):
            x = next(crops).flatten(1)
            with torch.no_grad():
                clean = x
                for lower, offset in below:
                    clean = torch.sigmoid(clean @ lower.T + offset)
                masked = clean * (torch.rand_like(clean) >= self.options.corruption)
            code = torch.sigmoid(masked @ weight.T + bias)
            if last:
                error = self.range[0] + self.range[1] * code - x
            else:
                # Pixels are real numbers around zero; what lower layers give lies in 0 to 1.
                error = (torch.sigmoid(decoder(code)) if below else decoder(code)) - clean
            optimizer.zero_grad()
            (error.square().sum() / len(x)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
