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
from typing import Annotated

import torch
from torch import Tensor, nn

from tersense.io.schema import above, at_least, below, validate
from tersense.reconstruction.base import Reconstructor, register
from tersense.reconstruction.mlp import average_windows, fully_connected
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator


@dataclass(frozen=True)
class SdaOptions:
    """How each layer is pre-trained.

    Args:
        corruption: Fraction of a layer's input that is set to zero.
        pretrain_steps: Steps of Adam per layer.
        pretrain_lr: Its learning rate.
    """

    corruption: Annotated[float, at_least(0), below(1)] = 0.1
    pretrain_steps: Annotated[int, at_least(0)] = 2000
    pretrain_lr: Annotated[float, above(0)] = 0.001

    def __post_init__(self) -> None:
        validate("reconstructor", self)


@register("sda")
class SdaReconstructor(Reconstructor):
    """Reconstruct every window by the upper layers of a stacked denoising autoencoder."""

    Options = SdaOptions

    def __init__(self, geometry: Geometry, rows: int, options: SdaOptions) -> None:
        super().__init__(geometry, rows, options)
        n = geometry.window**2
        self.halo = geometry.cells - 1
        self.bias = nn.Parameter(torch.zeros(rows))
        sizes = pairwise((rows, n, rows, n))
        self.layers = nn.ModuleList(fully_connected(*size) for size in sizes)
        self.range = nn.Parameter(torch.tensor([-1.8, 4.2]))  # black, and from black to white

    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); see `Reconstructor`."""
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
        layer of all learns to tell the image.
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
