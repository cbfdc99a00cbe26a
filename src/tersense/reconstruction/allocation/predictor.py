"""Predict, window by window, what error there would be with more measurements.

    images x̂ before and after the newest rows ─┐
    last feature maps of the network ──────────┼─▶ Evidence ──▶ ErrorPredictor ──▶ (N, K, h, w)
    measurements y, counts, noise ─────────────┘

Energy is not need: strong edges have large measurements, and the network knows them already. What
tells most is how well it predicted the newest rows of a window before they were measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tersense.errors import TersenseError
from tersense.io.schema import at_least, at_most, validate
from tersense.reconstruction.allocation.curves import count_levels
from tersense.reconstruction.base import Reconstructor, measured_rows
from tersense.reconstruction.conditioning import mean_noise
from tersense.runtime.device import full_precision
from tersense.sensing.gram import convolve_windows
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import rows_for_rate

FIRST_LOOK = 0.72  # of the first round's rows; how well they predict the others tells most
_LEAST = 1e-6  # energy in deviations of the pixels, squared; below, all is the same
_LEAST_STD = 1e-3  # of an input
_MAPS = 5  # besides features and groups of rows: counts, surprise, its rows, change, noise


class Evidence:
    """What is known of the windows of some images, as measurements come in round by round.

    Args:
        operator: The camera.
        whitening: L⁻¹ (m, m), of `gram.whitening`.
        levels: Counts, increasing; rows between two of them form a group.

    All is on the normalized scale. `counts` (N, h, w) is what was measured last; None at first.
    """

    def __init__(self, operator: SensingOperator, whitening: Tensor, levels: Sequence[int]) -> None:
        self.operator, self.whitening, self.levels = operator, whitening, tuple(levels)
        self.counts: Tensor | None = None
        self._image = self._summary = torch.empty(0)

    def add(
        self,
        y: Tensor,
        counts: Tensor,
        image: Tensor,
        features: Tensor,
        deviation: Tensor | None = None,
    ) -> None:
        """Take in a round.

        Args:
            y: (N, m, h, w), what is measured so far; the rest is ignored.
            counts: (N, h, w), how many of its first rows each window has; none has fewer than
                before.
            image: (N, H, W), reconstructed from all of it.
            features: (N, 2C, h, w), of `pool_features`.
            deviation: Of the errors of y, of a shape that broadcasts to it.
        """
        z = self._whiten(y)
        before = self.counts
        if before is None:
            surprise = change = torch.zeros_like(z[:, 0])
            newest = torch.ones_like(surprise)
        else:
            surprise, newest = self._surprise(z, before, counts)
            change = _log(cell_means((image - self._image).square(), self.operator.geometry.stride))
        self._surprise_kept, self._newest_kept = surprise, newest
        noise = torch.zeros_like(surprise)
        if deviation is not None:
            noise = noise + mean_noise(deviation, counts)
        maps = torch.stack([counts.to(z.dtype).log(), surprise, newest.log(), change, noise], dim=1)
        self._summary = torch.cat([features.to(z.dtype), *self._groups(z, counts), maps], dim=1)
        self.counts, self._image = counts, image

    @property
    def inputs(self) -> Tensor:
        """What the predictor sees, (N, I, h, w)."""
        return self._summary

    def _whiten(self, y: Tensor) -> Tensor:
        return convolve_windows(self.whitening[:, :, None, None], y)

    def _surprise(self, z: Tensor, before: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return how far the newest rows were from what the last image said, and their share.

        Windows without new rows keep what they had.
        """
        there = measured_rows(counts, len(self.whitening)) & ~measured_rows(
            before, len(self.whitening)
        )
        with full_precision():
            said = self._whiten(self.operator.forward(self._image))
        error = (z - said).square()
        fresh = there.sum(dim=1)
        mean = (error * there).sum(dim=1) / fresh.clamp(min=1)
        share = fresh / counts.clamp(min=1)
        new = fresh > 0
        return (
            torch.where(new, _log(mean), self._surprise_kept),
            torch.where(new, share.to(z.dtype), self._newest_kept),
        )

    def _groups(self, z: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log mean energy of the rows measured in each group, and their share of it."""
        there = measured_rows(counts, len(self.whitening)).to(z.dtype)
        edges = [0, *self.levels]
        sizes = [end - begin for begin, end in pairwise(edges)]

        def total(values: Tensor) -> Tensor:
            parts = torch.split(values[:, : edges[-1]], sizes, dim=1)
            return torch.stack([part.sum(dim=1) for part in parts], dim=1)

        known = total(there)
        energy = _log(total(z.square() * there) / known.clamp(min=1))
        return torch.where(known > 0, energy, 0), known / known.new_tensor(sizes)[:, None, None]


def pool_features(features: Tensor, stride: int) -> Tensor:
    """Return mean and deviation (N, 2C, h, w) of features (N, C, H/2, W/2) over each S×S cell."""
    features, side = features.float(), stride // 2
    mean, square = (_pool(values, side) for values in (features, features.square()))
    return torch.cat([mean, (square - mean.square()).clamp(min=0).sqrt()], dim=1)


def cell_means(values: Tensor, stride: int) -> Tensor:
    """Return the means (N, h, w) of values (N, H, W) over each S×S cell, as far as it is there."""
    return _pool(values[:, None], stride)[:, 0]


def _pool(values: Tensor, side: int) -> Tensor:
    return F.avg_pool2d(values, side, ceil_mode=True, count_include_pad=False)


def _log(energy: Tensor) -> Tensor:
    return (energy + _LEAST).log()


@dataclass(frozen=True)
class PredictorOptions:
    """The size of the predictor.

    Args:
        channels: Of its convolutions.
    """

    channels: Annotated[int, at_least(1), at_most(1024)] = 160

    def __post_init__(self) -> None:
        validate("allocation", self)


class ErrorPredictor(nn.Module):
    """Predict log errors at K counts for every window, by convolutions over the grid of windows.

    Args:
        features: C, the feature maps of the network.
        levels: The K counts.
        options: Its size.
    """

    def __init__(self, features: int, levels: Sequence[int], options: PredictorOptions) -> None:
        super().__init__()
        self.levels, self.options = tuple(levels), options
        inputs, width = 2 * features + 2 * len(levels) + _MAPS, options.channels
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("std", torch.ones(inputs))
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, width, 1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, len(levels), 1),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the log squared errors (N, K, h, w), given `Evidence.inputs` (N, I, h, w)."""
        std = self.std.clamp(min=_LEAST_STD)
        errors: Tensor = self.layers((inputs - self.mean[:, None, None]) / std[:, None, None])
        return errors

    @torch.no_grad()
    def expect(self, inputs: Tensor, errors: Tensor) -> None:
        """Begin with the mean and deviation of some inputs, and the mean of some log errors."""
        self.mean.copy_(inputs.mean(dim=(0, 2, 3)))
        self.std.copy_(inputs.std(dim=(0, 2, 3)))
        last = self.layers[-1]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        last.bias.copy_(errors.mean(dim=(0, 2, 3)))


def predictor_for(network: Reconstructor, options: PredictorOptions) -> ErrorPredictor:
    """Return a fresh predictor for a network; refuse one that cannot make use of it."""
    stride, name = network.geometry.stride, network.registered_name
    if not network.any_count or not hasattr(network.options, "channels"):
        raise TersenseError(
            f"allocation needs a network for any count per window, got {name}; train unrolled with "
            "reconstructor.universal=true"
        )
    if stride % 4:
        raise TersenseError(f"allocation needs windows a multiple of 4 pixels apart, got {stride}")
    return ErrorPredictor(network.options.channels, levels_of(network), options)


def levels_of(network: Reconstructor) -> tuple[int, ...]:
    """Return the counts at which errors are predicted: from the fewest rows it knows to all."""
    lowest = max(1, rows_for_rate(network.lowest_rate, network.geometry.stride))
    return count_levels(min(lowest, network.rows), network.rows)
