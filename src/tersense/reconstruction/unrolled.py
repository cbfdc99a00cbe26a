"""Our reconstructor: a few rounds of fitting the measurements and repairing the image.

         ┌──────────────────────────── phase, × 6 ────────────────────────────┐
    y ──▶│ data:  e = Φᵀ(ΦΦᵀ+λI)⁻¹(y − Φx),   x ← x + ρe                       │──▶ x̂
         │ prior: (x, e, memory) ──▶ small U-Net at half size ──▶ x, memory    │
         └─────────────────────────────────────────────────────────────────────┘

The data step moves the image to where it agrees with the measurements, in as many directions as
there are patterns; the prior, a convolutional network that sees the whole image, fills in the
rest. What it finds out is kept in a memory of feature maps for the next phase. No weight depends on
the camera's geometry or rate: a network trained for one camera is a good start for another.

A *universal* network is told, window by window, how many measurements there are and how large their
errors are, and trusts them accordingly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tersense.io.schema import above, at_least, at_most, validate
from tersense.reconstruction.base import Reconstructor, register
from tersense.sensing.geometry import Geometry
from tersense.sensing.gram import convolve_windows, inverse_gram, whitening
from tersense.sensing.operator import SensingOperator

_PIXELS_SEEN = 64  # farther pixels have no visible influence, though the phases reach beyond
_MIN_DAMPING = 0.01
_COARSEST = 4  # pixels per side of the coarsest level's cells
_ERROR_UNIT = 0.05  # deviation of a measurement's error, in those of pixels, that begins to matter


@dataclass(frozen=True)
class UnrolledOptions:
    """The size of the network.

    Args:
        phases: Rounds of data step and prior.
        channels: Feature maps, at half and at quarter size.
        nested: Whether it is trained to do with the first patterns alone, at any lower rate.
        universal: Whether it is also trained for any number of first patterns window by window, and
            for measurements with errors, and is told of both.
        overlaps: How far lapped measurements correct each other in the data step, 1 to 3 windows
            that overlap. With 1 it is faster, and the network makes up for the rest; patterns at
            random of a rate of 0.5 or more need 2. A universal network corrects windows one by one.
        lowest_rate: Of a nested or universal network: the lowest rate that it is trained for.
    """

    phases: Annotated[int, at_least(1), at_most(64)] = 6
    channels: Annotated[int, at_least(1), at_most(1024)] = 64
    nested: bool = False
    universal: bool = False
    overlaps: Annotated[int, at_least(1), at_most(3)] = 2
    lowest_rate: Annotated[float, above(0), at_most(1)] = 0.01

    def __post_init__(self) -> None:
        validate("reconstructor", self)


class Told(NamedTuple):
    """What a network knows of its measurements; numbers, or maps of them.

    Args:
        rate: log(m_b/S²), m_b the measurements of a window; () or (N, 1, H/2, W/2).
        noise: log(1 + σ/unit), mean over patterns, σ the deviation of their errors; None, or (N or
            1, 1, H/2, W/2) or with a single position.
        noise_at_pixels: The same as (N or 1, H, W).
    """

    rate: Tensor
    noise: Tensor | None = None
    noise_at_pixels: Tensor | None = None


@register("unrolled")
class UnrolledReconstructor(Reconstructor):
    """Reconstruct the whole image by unrolled optimization with a learned prior."""

    Options = UnrolledOptions

    def __init__(self, geometry: Geometry, rows: int, options: UnrolledOptions) -> None:
        super().__init__(geometry, rows, options)
        self.halo = -(-_PIXELS_SEEN // geometry.stride)
        self.any_count = options.universal
        self.any_rate = options.nested or options.universal
        self.lowest_rate = options.lowest_rate if self.any_rate else 0.0
        if not options.universal:
            self.damping = nn.Parameter(torch.tensor(-3.0))  # log(λ − least λ)
        self._compiled: list[Any] = []
        self._inverses: WeakKeyDictionary[SensingOperator, tuple[int, Tensor]] = WeakKeyDictionary()
        self.phases = nn.ModuleList(
            Phase(options.channels, number == 0, options.universal)
            for number in range(options.phases)
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
        return self.examine(y, operator, size, deviation, counts)[0]

    def examine(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Reconstruct, and return the memory of the last phase too; see `Reconstructor`."""
        # Measurements are sums of many pixels: half precision would drown them.
        with torch.autocast(y.device.type, enabled=False):
            y, undo = y.float(), self._undo(operator, counts)
            told = self._tell(operator, size, deviation, counts)

        def disagreement(x: Tensor | None) -> Tensor:
            with torch.autocast(y.device.type, enabled=False):
                rest = y if x is None else y - operator.forward(x)
                return operator.adjoint(undo(rest), size)

        state: tuple[Any, Any] = None, None  # image and memory
        for phase in self._compiled if self.training and self._compiled else self.phases:
            x, memory = state
            state = phase(x, disagreement(x), memory, told)
        return state

    def compile_parts(self) -> bool:
        """Compile the phases: all but the first are alike, and the same for every camera."""
        self._compiled = [torch.compile(phase, dynamic=False) for phase in self.phases]
        return True

    def whitening(self, operator: SensingOperator) -> Tensor | None:
        """Return what a universal network undoes the overlap of patterns with, or None."""
        return whitening(operator, _MIN_DAMPING) if self.options.universal else None

    @torch.no_grad()
    def start_from(self, other: Reconstructor) -> None:
        """Take over the weights of a network with at most as many phases, just as wide.

        Phases that it does not have change nothing to begin with; they lie between its own. What it
        was never told of has no influence yet.
        """
        theirs = other.state_dict()
        theirs.pop("damping", None) if self.options.universal else None
        ours, given = len(self.phases), len(getattr(other, "phases", self.phases))
        if given > ours:
            raise RuntimeError(f"it has {given} phases")
        places = {number * ours // given: number for number in range(given)}
        for place, phase in enumerate(self.phases):
            if place not in places:
                phase.do_nothing()  # type: ignore[operator]
        moved = {f"phases.{number}.": f"phases.{place}." for place, number in places.items()}
        weights = {
            next((new + key[len(old) :] for old, new in moved.items() if key.startswith(old)), key):
            value for key, value in theirs.items()
        }  # fmt: skip
        self.load_state_dict(self.state_dict() | weights)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process; it is found again when it is needed."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_inverses", "_compiled")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._inverses, self._compiled = WeakKeyDictionary(), []

    def _undo(self, operator: SensingOperator, counts: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return what applies (ΦΦᵀ + λI)⁻¹ to measurements, those that there are."""
        if not self.options.universal:
            inverse = self._kept(operator, self._inverse)
            return lambda rest: convolve_windows(inverse, rest)
        factor = operator.whitening
        if factor is None:
            factor = self._kept(operator, lambda camera: whitening(camera, _MIN_DAMPING))
        down, back = factor[:, :, None, None], factor.T[:, :, None, None]
        if counts is None:
            return lambda rest: convolve_windows(back, convolve_windows(down, rest))
        rows = torch.arange(len(factor), device=factor.device)[:, None, None]
        there = (rows < counts[:, None]).to(factor.dtype)
        return lambda rest: convolve_windows(back, there * convolve_windows(down, rest))

    def _inverse(self, operator: SensingOperator) -> Tensor:
        damping = _MIN_DAMPING + self.damping.exp()
        return inverse_gram(operator, damping, self.options.overlaps)

    def _kept(
        self, operator: SensingOperator, compute: Callable[[SensingOperator], Tensor]
    ) -> Tensor:
        """Return what is computed of a camera; outside of training only once for each."""
        if torch.is_grad_enabled() or self.training:
            return compute(operator)
        # It may be trained on between two images.
        version = 0 if self.options.universal else self.damping._version
        kept = self._inverses.get(operator)
        if kept is None or kept[0] != version:
            kept = version, compute(operator)
            self._inverses[operator] = kept
        return kept[1]

    def _tell(
        self,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None,
        counts: Tensor | None,
    ) -> Told:
        stride = operator.geometry.stride
        if counts is None:
            rows = (operator.phi.abs().amax(dim=(1, 2)) > 0).sum()
            rate = (rows / stride**2).log()
        else:
            of_windows = (counts.clamp(min=0.5) / stride**2).log()
            rate = _spread(of_windows, _half(size), stride / 2)[:, None]
        if deviation is None or not self.options.universal:
            return Told(rate)
        # The mean of logarithms: a few patterns of large steps must not discredit all the others.
        noise = (1 + deviation / _ERROR_UNIT).log().mean(dim=1)  # (N, h, w)
        coarse = _spread(noise, _half(size), stride / 2)[:, None]
        return Told(rate, coarse, _spread(noise, size, stride))


def _half(size: tuple[int, int]) -> tuple[int, int]:
    """Return the size of the feature maps for an image of (H, W): whole coarse cells."""
    height, width = (-(-side // _COARSEST) * _COARSEST // 2 for side in size)
    return height, width


def _spread(of_windows: Tensor, size: tuple[int, int], stride: float) -> Tensor:
    """Turn one value a window (N, h, w) into a map (N, H, W); a single one stays alone."""
    if of_windows.shape[-2:] == (1, 1):
        return of_windows
    down, across = (
        (torch.arange(side, device=of_windows.device) / stride).long().clamp(max=count - 1)
        for side, count in zip(size, of_windows.shape[-2:], strict=True)
    )
    return of_windows[:, down[:, None], across]


class Phase(nn.Module):
    """One round: a step toward the measurements, then the prior.

    Args:
        channels: Feature maps.
        first: Whether there is no memory yet.
        told_noise: Whether it is told how large the errors of the measurements are.
    """

    def __init__(self, channels: int, first: bool, told_noise: bool = False) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.tensor(1.0))  # ρ
        self.entry = _convolution(8 if first else 8 + channels, channels)
        self.by_rate = nn.Parameter(torch.zeros(channels))
        if told_noise:
            self.by_noise = nn.Parameter(torch.zeros(channels))
            self.step_noise = nn.Parameter(torch.tensor(0.0))
        self.before = _convolution(channels, channels)
        self.down = nn.Conv2d(channels, channels, 2, stride=2)
        self.coarse = nn.Sequential(Residual(channels), Residual(channels))
        self.up = nn.ConvTranspose2d(channels, channels, 2, stride=2)
        self.after = Residual(channels)
        self.exit = _convolution(channels, 4)
        nn.init.zeros_(self.exit.weight)

    def forward(
        self, x: Tensor | None, error: Tensor, memory: Tensor | None, told: Told
    ) -> tuple[Tensor, Tensor]:
        """Improve the image x (N, H, W), given its error (N, H, W) in the measured directions.

        Returns:
            The better image, and the memory (N, channels, H/2, W/2) for the next phase.
        """
        step: Tensor = self.step
        if told.noise_at_pixels is not None:
            step = step * (self.step_noise * told.noise_at_pixels).exp()
        x = step * error if x is None else x + step * error
        inputs = _to_half_size(torch.stack([x, error], dim=1))
        if memory is not None:
            inputs = torch.cat([inputs.to(memory.dtype), memory], dim=1)
        features = self._enter(inputs, told)
        # In place where nobody needs what was there: new memory costs more than the sums.
        features = self.before(F.relu(features)).add_(features)
        features = self.up(self.coarse(self.down(features))).add_(features)
        features = self.after(features)
        change = F.pixel_shuffle(self.exit(F.relu(features)), 2)[:, 0]
        return x + change[:, : x.shape[1], : x.shape[2]].float(), features

    def _enter(self, inputs: Tensor, told: Told) -> Tensor:
        """Convolve the inputs; what the network is told is a bias, for all or for each place."""
        bias: Any = self.entry.bias
        if told.rate.ndim == 0:
            bias = bias + self.by_rate * told.rate
        features = F.conv2d(inputs, self.entry.weight, bias, padding=1)
        if told.rate.ndim:
            features = features + (self.by_rate[:, None, None] * told.rate).to(features.dtype)
        if told.noise is not None:
            features = features + (self.by_noise[:, None, None] * told.noise).to(features.dtype)
        return features

    @torch.no_grad()
    def do_nothing(self) -> None:
        """Pass image and memory on as they are, until training finds something to do."""
        last = (self.entry, self.before, self.up, self.after.second, self.exit)
        silenced = [weights for layer in last for weights in layer.parameters()]
        for weights in [self.step, self.by_rate, *silenced]:
            nn.init.zeros_(weights)
        kept = torch.arange(len(self.entry.weight))
        self.entry.weight[kept, kept + 8, 1, 1] = 1


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
