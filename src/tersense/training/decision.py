"""Fit the integer decision of a sensor without a network to what `allocation.gather` noted.

A small network with one hidden layer learns, in floating point, what a measurement gains in each
window from one level to the next, given the logarithms of the groups of rows that are known. Its
weights are then rounded to 8 bits.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tersense.reconstruction.allocation.curves import convex_below
from tersense.reconstruction.allocation.decision import (
    HIDDEN,
    HIDDEN_SHIFT,
    IntegerDecision,
    linear_prediction,
)
from tersense.training.losses import mean_of_logs

_STEPS, _BATCH, _RATE = 2000, 8, 1e-2
_LEAST_GAIN = 1e-7  # squared error per measurement, in deviations of the pixels
_LARGEST_WEIGHT = 127
_MOST_SHIFT = 12


def fit_decision(
    phi: NDArray[np.int8],
    levels: Sequence[int],
    y: NDArray[np.integer],
    errors: NDArray[np.floating],
    steps: int = _STEPS,
    seed: int = 0,
) -> IntegerDecision:
    """Return the decision of a camera.

    Args:
        phi: (m, B, B).
        levels: K counts.
        y: (n, m, h, w) exact measurements of n crops.
        errors: (n, K, h, w), logarithms of the squared errors of their windows at the levels.
        steps: Of training, for every number of groups that may be known.
        seed: Of everything random.
    """
    decision = IntegerDecision(len(phi), levels)
    first_rows = decision.prediction.shape[1]
    decision.prediction.copy_(torch.from_numpy(linear_prediction(phi, first_rows)))
    logs = np.stack([decision.logs(one) for one in y])
    inputs = torch.from_numpy(logs).float().flatten(2).mT  # (n, h·w, K)
    gains = log_gains(errors, levels)
    for groups in range(1, len(levels) + 1):
        torch.manual_seed(seed)
        net = _train(inputs[..., :groups], gains, steps)
        _store(decision, groups, net)
    return decision


def log_gains(errors: NDArray[np.floating], levels: Sequence[int]) -> Tensor:
    """Return 8·log₂ of what a measurement gains from level to level, (n, h·w, K − 1).

    Error curves are made monotone and convex first: gains that come late are earned by all the
    measurements before them.
    """
    flat = np.moveaxis(errors, 1, 0).reshape(len(levels), -1).astype(np.float64)
    counts = np.broadcast_to(np.array(levels)[:, None], flat.shape)
    convex = convex_below(counts, np.exp(np.minimum.accumulate(flat, axis=0)))
    gains = -np.diff(convex, axis=0) / np.diff(levels)[:, None]
    logs = torch.from_numpy(8 * np.log2(gains.T + _LEAST_GAIN)).float()
    return logs.view(len(errors), -1, len(levels) - 1)


class _Net(nn.Module):
    """The decision in floating point; inputs and results in eighths of log₂."""

    def __init__(self, inputs: Tensor, gains: Tensor) -> None:
        super().__init__()
        self.mean, self.std = inputs.mean(dim=(0, 1)), inputs.std(dim=(0, 1)).clamp(min=1)
        self.first = nn.Linear(inputs.shape[-1], HIDDEN)
        self.second = nn.Linear(HIDDEN, gains.shape[-1])
        with torch.no_grad():
            self.second.bias.copy_(gains.mean(dim=(0, 1)) / 8)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first((inputs - self.mean) / self.std).relu()
        scores: Tensor = 8 * self.second(hidden)
        return scores


def _train(inputs: Tensor, gains: Tensor, steps: int) -> _Net:
    """Fit the logarithms of mean gains."""
    net = _Net(inputs, gains)
    optimizer = torch.optim.Adam(net.parameters(), lr=_RATE, weight_decay=1e-4)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        chosen = torch.randint(len(inputs), (_BATCH,))
        missed = (gains[chosen] - net(inputs[chosen])) * math.log(2) / 8
        loss = mean_of_logs(missed)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return net


@torch.no_grad()
def _store(decision: IntegerDecision, groups: int, net: _Net) -> None:
    """Round the weights to 8 bits, each hidden number scaled so that its own just fit."""
    weights = net.first.weight / net.std  # (H, G), for inputs as they come
    bias = net.first.bias - weights @ net.mean
    largest = weights.abs().amax(dim=1).clamp(min=1e-6)
    scale = _LARGEST_WEIGHT / 2**HIDDEN_SHIFT / largest
    first = (weights * scale[:, None] * 2**HIDDEN_SHIFT).round()
    first_bias = (bias * scale * 2**HIDDEN_SHIFT).round()
    after = 8 * net.second.weight / scale
    peak = max(float(after.abs().max()), 1e-6)
    shift = min(_MOST_SHIFT, max(0, math.floor(math.log2(_LARGEST_WEIGHT / peak))))
    second = (after * 2**shift).round().clamp(-_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    # Shifts round down, by a half on average.
    lost = 0.5 * second.sum(dim=1)
    second_bias = (8 * net.second.bias * 2**shift + lost + 2**shift / 2).round()
    place = groups - 1
    decision.first[place, :, :groups] = first.to(torch.int8)
    decision.first_bias[place] = first_bias.int()
    decision.second[place] = second.to(torch.int8)
    decision.second_bias[place] = second_bias.int()
    decision.shift[place] = shift
