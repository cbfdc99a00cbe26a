"""Our reconstructor: a few rounds of fitting the measurements and repairing the image.

         ┌──────────────────────────── phase, × 6 ────────────────────────────┐
    y ──▶│ data:  e = Φᵀ(ΦΦᵀ+λI)⁻¹(y − Φx),   x ← x + ρe                       │──▶ x̂
         │ prior: (x, e, memory) ──▶ small U-Net at half size ──▶ x, memory    │
         └─────────────────────────────────────────────────────────────────────┘

The data step moves the image to where it agrees with the measurements, in as many directions as
there are patterns; the prior, a convolutional network that sees the whole image, fills in the
rest. What it finds out is kept in a memory of feature maps for the next phase. No weight depends on
the camera's geometry or rate: a network trained for one camera is a good start for another.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tersense.io.schema import above, at_least, at_most, validate
from tersense.measurements.readout import Readout
from tersense.reconstruction.base import Reconstructor, register
from tersense.sensing.geometry import Geometry
from tersense.sensing.gram import convolve_windows, inverse_gram
from tersense.sensing.operator import SensingOperator

_PIXELS_SEEN = 64  # farther pixels have no visible influence, though the phases reach beyond
_MIN_DAMPING = 0.01
_COARSEST = 4  # pixels per side of the coarsest level's cells


@dataclass(frozen=True)
class UnrolledOptions:
    """The size of the network.

    Args:
        phases: Rounds of data step and prior.
        channels: Feature maps, at half and at quarter size.
        nested: Whether it is trained to do with the first patterns alone, at any lower rate.
        overlaps: How far lapped measurements correct each other in the data step, 1 to 3 windows
            that overlap. With 1 it is faster, and the network makes up for the rest; patterns at
            random of a rate of 0.5 or more need 2.
        lowest_rate: Of a nested network: the lowest rate that it is trained for.
    """

    phases: Annotated[int, at_least(1), at_most(64)] = 6
    channels: Annotated[int, at_least(1), at_most(1024)] = 64
    nested: bool = False
    overlaps: Annotated[int, at_least(1), at_most(3)] = 2
    lowest_rate: Annotated[float, above(0), at_most(1)] = 0.01

    def __post_init__(self) -> None:
        validate("reconstructor", self)


@register("unrolled")
class UnrolledReconstructor(Reconstructor):
    """Reconstruct the whole image by unrolled optimization with a learned prior."""

    Options = UnrolledOptions

    def __init__(self, geometry: Geometry, rows: int, options: UnrolledOptions) -> None:
        super().__init__(geometry, rows, options)
        self.halo = -(-_PIXELS_SEEN // geometry.stride)
        self.any_rate = options.nested
        self.lowest_rate = options.lowest_rate if options.nested else 0.0
        self.damping = nn.Parameter(torch.tensor(-3.0))  # log(λ − least λ)
        self._compiled: list[Any] = []
        self._inverses: WeakKeyDictionary[SensingOperator, tuple[int, Tensor]] = WeakKeyDictionary()
        self.phases = nn.ModuleList(
            Phase(options.channels, first=number == 0) for number in range(options.phases)
        )

    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        readout: Readout | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); see `Reconstructor`."""
        # Measurements are sums of many pixels: half precision would drown them.
        with torch.autocast(y.device.type, enabled=False):
            y, inverse = y.float(), self._inverse(operator)
            rate = (operator.phi.abs().amax(dim=(1, 2)) > 0).sum() / operator.geometry.stride**2

        def disagreement(x: Tensor | None) -> Tensor:
            with torch.autocast(y.device.type, enabled=False):
                rest = y if x is None else y - operator.forward(x)
                return operator.adjoint(convolve_windows(inverse, rest), size)

        state: tuple[Any, Any] = None, None  # image and memory
        for phase in self._compiled if self.training and self._compiled else self.phases:
            x, memory = state
            state = phase(x, disagreement(x), memory, rate.log())
        image: Tensor = state[0]
        return image

    def compile_parts(self) -> bool:
        """Compile the phases: all but the first are alike, and the same for every camera."""
        self._compiled = [torch.compile(phase, dynamic=False) for phase in self.phases]
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process; it is found again when it is needed."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_inverses", "_compiled")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._inverses, self._compiled = WeakKeyDictionary(), []

    def _inverse(self, operator: SensingOperator) -> Tensor:
        """Return (ΦΦᵀ + λI)⁻¹; outside of training it is found once for each camera."""
        damping = _MIN_DAMPING + self.damping.exp()
        if torch.is_grad_enabled() or self.training:
            return inverse_gram(operator, damping, self.options.overlaps)
        version = self.damping._version  # it may be trained on between two images
        kept = self._inverses.get(operator)
        if kept is None or kept[0] != version:
            kept = version, inverse_gram(operator, damping, self.options.overlaps)
            self._inverses[operator] = kept
        return kept[1]


class Phase(nn.Module):
    """One round: a step toward the measurements, then the prior.

    Args:
        channels: Feature maps.
        first: Whether there is no memory yet.
    """

    def __init__(self, channels: int, first: bool) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.tensor(1.0))  # ρ
        self.entry = _convolution(8 if first else 8 + channels, channels)
        self.by_rate = nn.Parameter(torch.zeros(channels))
        self.before = _convolution(channels, channels)
        self.down = nn.Conv2d(channels, channels, 2, stride=2)
        self.coarse = nn.Sequential(Residual(channels), Residual(channels))
        self.up = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.after = Residual(channels)
        self.exit = _convolution(channels, 4)
        nn.init.zeros_(self.exit.weight)

    def forward(
        self, x: Tensor | None, error: Tensor, memory: Tensor | None, log_rate: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Improve the image x (N, H, W), given its error (N, H, W) in the measured directions.

        Returns:
            The better image, and the memory (N, channels, H/2, W/2) for the next phase.
        """
        x = self.step * error if x is None else x + self.step * error
        inputs = _to_half_size(torch.stack([x, error], dim=1))
        if memory is not None:
            inputs = torch.cat([inputs.to(memory.dtype), memory], dim=1)
        bias = self.entry.bias + self.by_rate * log_rate  # type: ignore[operator]
        features = F.conv2d(inputs, self.entry.weight, bias, padding=1)
        # In place where nobody needs what was there: new memory costs more than the sums.
        features = self.before(F.relu(features)).add_(features)
        features = self.up(self.coarse(self.down(features))).add_(features)
        features = self.after(features)
        change = F.pixel_shuffle(self.exit(F.relu(features)), 2)[:, 0]
        return x + change[:, : x.shape[1], : x.shape[2]].float(), features


class Residual(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolution(channels, channels)
        self.second = _convolution(channels, channels)
        nn.init.zeros_(self.second.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return features (N, channels, h, w) of the same shape."""
        result: Tensor = self.second(F.relu_(self.first(F.relu(features))))
        return result.add_(features)


def _to_half_size(planes: Tensor) -> Tensor:
    """Turn (N, 2, H, W) into (N, 8, h, w): 2×2 pixels per position, whole coarse cells."""
    missing = [-side % _COARSEST for side in planes.shape[-2:]]
    if any(missing):
        planes = F.pad(planes, (0, missing[1], 0, missing[0]), mode="replicate")
    return F.pixel_unshuffle(planes, 2).contiguous(memory_format=torch.channels_last)


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
