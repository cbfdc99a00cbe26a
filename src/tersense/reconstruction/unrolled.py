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
errors are, and trusts them accordingly. Its data step has the inverse for each window alone. Where
windows overlap, their steps add up and overshoot; a *correction* is one more iteration on the
residual that e leaves, e ← e + κ·Φᵀ(ΦΦᵀ+λI)⁻¹(y − Φx − Φe), with κ learned (`corrections`). The
network may end with a data step, so that exact measurements have the last word (`closing`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tersense.io.schema import above, at_least, at_most, require, validate
from tersense.reconstruction.base import Reconstructor, measured_rows, register
from tersense.reconstruction.conditioning import (
    COARSEST,
    Gate,
    Gates,
    Told,
    all_open,
    change_in_place,
    tell,
)
from tersense.reconstruction.growing import places, take_over
from tersense.sensing.geometry import Geometry
from tersense.sensing.gram import convolve_windows, inverse_gram, whitening
from tersense.sensing.operator import SensingOperator

_PIXELS_SEEN = 64  # farther pixels have no visible influence, though the phases reach beyond
_MIN_DAMPING = 0.01


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
        closing: Of a universal network: whether a data step follows the last phase.
        corrections: Of a universal network: how many more iterations on the residual each data step
            takes, since the steps of overlapping windows add up and overshoot. Windows side by side
            need none.
    """

    phases: Annotated[int, at_least(1), at_most(64)] = 6
    channels: Annotated[int, at_least(1), at_most(1024)] = 64
    nested: bool = False
    universal: bool = False
    overlaps: Annotated[int, at_least(1), at_most(3)] = 2
    lowest_rate: Annotated[float, above(0), at_most(1)] = 0.01
    closing: bool = False
    corrections: Annotated[int, at_least(0), at_most(8)] = 0

    def __post_init__(self) -> None:
        validate("reconstructor", self)
        require(
            self.universal or not self.closing, "reconstructor.closing", self.closing,
            "false unless reconstructor.universal is true",
        )  # fmt: skip
        require(
            self.universal or not self.corrections, "reconstructor.corrections", self.corrections,
            "0 unless reconstructor.universal is true",
        )  # fmt: skip


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
            Phase(options.channels, number == 0, options.universal, options.corrections)
            for number in range(options.phases)
        )
        self.closing = DataStep(0.0, -1.2, options.corrections) if options.closing else None

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
            y = y.to(operator.phi.dtype)
            told = tell(operator, size, deviation, counts, self.options.universal)
            y, operator, undo = self._prepared(y, operator, counts)

        def disagreement(x: Tensor | None, step: Phase | DataStep) -> Tensor:
            with torch.autocast(y.device.type, enabled=False):
                rest = y if x is None else y - operator.forward(x)
                error = operator.adjoint(undo(rest), size)
                for share in step.corrections:
                    left = rest - operator.forward(error)
                    error = error + share * operator.adjoint(undo(left), size)
                return error

        state: tuple[Any, Any] = None, None  # image and memory
        phases: Any = self._compiled if self.training and self._compiled else self.phases
        for phase in phases:
            x, memory = state
            state = phase(x, disagreement(x, phase), memory, told)
        if self.closing is not None:
            x, memory = state
            state = self.closing(x, disagreement(x, self.closing), told), memory
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
        """Take over the weights of a network with at most as many phases and channels.

        What it does not have changes nothing to begin with, but for corrections, which are good
        as they are. What it was never told of has no influence yet.
        """
        if not self.options.universal:
            self.load_state_dict(other.state_dict())
            return
        if not isinstance(other, UnrolledReconstructor):
            raise RuntimeError("another network")
        from_phase = places(len(self.phases), len(other.phases))
        for place, phase in enumerate(self.phases):
            if place in from_phase:
                take_over(phase, other.phases[from_phase[place]])
            else:
                phase.do_nothing()  # type: ignore[operator]
        if self.closing is not None and other.closing is not None:
            take_over(self.closing, other.closing)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process; it is found again when it is needed."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_inverses", "_compiled")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._inverses, self._compiled = WeakKeyDictionary(), []

    def _prepared(
        self, y: Tensor, operator: SensingOperator, counts: Tensor | None
    ) -> tuple[Tensor, SensingOperator, Callable[[Tensor], Tensor]]:
        """Return measurements, their operator, and what applies (ΦΦᵀ + λI)⁻¹ to a difference.

        A universal network applies (LLᵀ)⁻¹ to the rows that were measured, the first ones: those of
        L⁻¹y depend on no others. In training L⁻¹ is applied once, to y and to Φ, instead of twice
        in every phase; a finished camera keeps Φ, whose zeros cost it nothing, as far as any window
        was measured with it.
        """
        if not self.options.universal:
            inverse = self._kept(operator, self._inverse)
            return y, operator, lambda rest: convolve_windows(inverse, rest)
        if counts is not None:
            operator = operator.for_counts(counts)
            y = y[:, : len(operator.phi)]
        factor = operator.whitening
        if factor is None:
            factor = self._kept(operator, lambda camera: whitening(camera, _MIN_DAMPING))
        down, back = factor[:, :, None, None], factor.T[:, :, None, None]
        measured = _first_rows(factor, counts)
        if self.training:
            phi = torch.tensordot(factor, operator.phi, 1)
            return (
                convolve_windows(down, y),
                SensingOperator(phi, operator.geometry.stride),
                measured,
            )

        def undo(rest: Tensor) -> Tensor:
            return convolve_windows(back, measured(convolve_windows(down, rest)))

        return y, operator, undo

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


class DataStep(nn.Module):
    """A step toward the measurements, shorter where they have errors.

    Args:
        length: ρ to begin with.
        by_noise: The power of 1 + σ/unit that shortens it, to begin with.
        corrections: How often its error is corrected.
    """

    def __init__(self, length: float, by_noise: float, corrections: int = 0) -> None:
        super().__init__()
        self.corrections = _corrections(corrections)
        self.length = nn.Parameter(torch.tensor(length))
        self.by_noise = nn.Parameter(torch.tensor(by_noise))

    def forward(self, x: Tensor, error: Tensor, told: Told) -> Tensor:
        """Return the image x (N, H, W), moved by its error (N, H, W) in the measured directions."""
        return x + _shortened(self.length, self.by_noise, told) * error


class Phase(nn.Module):
    """One round: a step toward the measurements, then the prior.

    Args:
        channels: Feature maps.
        first: Whether there is no memory yet.
        told_noise: Whether it is told how large the errors of the measurements are.
        corrections: How often its error is corrected.
    """

    def __init__(
        self, channels: int, first: bool, told_noise: bool = False, corrections: int = 0
    ) -> None:
        super().__init__()
        self.corrections = _corrections(corrections)
        self.step = nn.Parameter(torch.tensor(1.0))  # ρ
        self.entry = _convolution(8 if first else 8 + channels, channels)
        self.by_rate = nn.Parameter(torch.zeros(channels))
        if told_noise:
            self.by_noise = nn.Parameter(torch.zeros(channels))
            self.step_noise = nn.Parameter(torch.tensor(0.0))
            self.gates = Gates(channels, shrinks=(2, 4, 4, 2))
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
        step = _shortened(self.step, getattr(self, "step_noise", None), told)
        x = step * error if x is None else x + step * error
        inputs = _to_half_size(torch.stack([x, error], dim=1))
        if memory is not None:
            inputs = torch.cat([inputs.to(memory.dtype), memory], dim=1)
        features = self._enter(inputs, told)
        gates = [all_open] * 4 if told.of_windows is None else self.gates(told)
        # In place where nobody needs what was there: new memory costs more than the sums.
        features = gates[0](self.before(F.relu(features))).add_(features)
        coarse = self.coarse[0](self.down(features), gates[1])
        features = self.up(self.coarse[1](coarse, gates[2])).add_(features)
        features = self.after(features, gates[3])
        change = F.pixel_shuffle(self.exit(F.relu(features)), 2)[:, 0]
        return x + change[:, : x.shape[1], : x.shape[2]].to(x.dtype), features

    def _enter(self, inputs: Tensor, told: Told) -> Tensor:
        """Convolve the inputs; what the network is told is a bias, for all or for each place."""
        bias: Any = self.entry.bias
        if told.rate.ndim == 0:
            bias = bias + self.by_rate * told.rate
        features = F.conv2d(inputs, self.entry.weight, bias, padding=1)
        if torch.is_inference_mode_enabled() and told.rate.ndim and told.of_windows is not None:
            known = self.by_rate[:, None, None] * told.of_windows[:, :1]
            if told.noise is not None:
                known = known + self.by_noise[:, None, None] * told.of_windows[:, 1:]
            known = known.to(features.dtype)
            return change_in_place(Tensor.add_, features, known, told.stride / 2)
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
        told = [self.by_rate, *([self.by_noise] if hasattr(self, "by_noise") else [])]
        for weights in [self.step, *told, *silenced]:
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

    def forward(self, features: Tensor, gate: Gate = all_open) -> Tensor:
        """Return features (N, channels, h, w) of the same shape."""
        return gate(self.second(F.relu_(self.first(F.relu(features))))).add_(features)


def _corrections(number: int) -> Tensor:
    """Return κ of each correction; the files of networks without any do not mention them."""
    return nn.Parameter(torch.ones(number)) if number else torch.ones(0)


def _shortened(step: Tensor, by_noise: Tensor | None, told: Told) -> Tensor:
    """Return the length of a data step, where there are errors times a power of 1 + σ/unit."""
    if by_noise is None or told.noise_at_pixels is None:
        return step
    return step * (by_noise * told.noise_at_pixels).exp()


def _first_rows(factor: Tensor, counts: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return what keeps the rows of L⁻¹y that were measured: all, where `counts` is None."""
    if counts is None:
        return lambda z: z
    there = measured_rows(counts, len(factor)).to(factor.dtype)
    return lambda z: there * z


def _to_half_size(planes: Tensor) -> Tensor:
    """Turn (N, 2, H, W) into (N, 8, h, w): 2×2 pixels per position, whole coarse cells."""
    missing = [-side % COARSEST for side in planes.shape[-2:]]
    if any(missing):
        planes = F.pad(planes, (0, missing[1], 0, missing[0]), mode="replicate")
    return F.pixel_unshuffle(planes, 2).contiguous(memory_format=torch.channels_last)


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
