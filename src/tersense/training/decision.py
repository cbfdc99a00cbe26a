"""Fit the integer decision of a sensor without a network to what `allocation.gather` noted.

A small network with one hidden layer learns, in floating point, what a measurement gains in each
window from one level to the next, given the logarithms of the groups of rows that are known. Where
all are known, it also sees the windows around, and learns above all what its own decisions cost:
the error that is left when they have spent a budget, whatever its scores are then, and more of it
where uniform counts had left less. Its weights are then rounded to 8 bits.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tersense.reconstruction.allocation.curves import convex_below
from tersense.reconstruction.allocation.decision import (
    ENCODER_TRUST,
    HIDDEN,
    HIDDEN_SHIFT,
    IntegerDecision,
    linear_prediction,
    sum_around,
)
from tersense.training.losses import mean_of_logs

_STEPS, _BATCH, _RATE = 6000, 32, 1e-2
_ALONE = 0.25  # of the steps, in which gains are learned before what decisions cost
_GAINS = 0.06  # weight of gains beside that, so that scores of all budgets go together
_BUDGETS = (1.5, 0.84)  # from so many times the first level to so much of the last
_WORSE = 3.0  # times more counts what a crop loses against a uniform allocation
_SOFTNESS = 1.0  # of the threshold of scores, in eighths of log₂
_LEAST_GAIN = 1e-7  # squared error per measurement, in deviations of the pixels
_LARGEST_WEIGHT = 127
_MOST_SHIFT = 12


def fit_decision(
    phi: NDArray[np.int8],
    levels: Sequence[int],
    y: NDArray[np.integer],
    errors: NDArray[np.floating],
    steps: int = _STEPS,
) -> IntegerDecision:
    """Return the decision of a camera.

    Args:
        phi: (m, B, B).
        levels: K counts.
        y: (n, m, h, w) exact measurements of n crops.
        errors: (n, K, h, w), logarithms of the squared errors of their windows at the levels.
        steps: Of training, at most.
    """
    decision = IntegerDecision(len(phi), levels)
    first_rows = decision.prediction.shape[1]
    decision.prediction.copy_(torch.from_numpy(linear_prediction(phi, first_rows)))
    logs = np.stack([decision.logs(one) for one in y])
    fit_nets(decision, logs, errors, steps)
    return decision


def fit_nets(
    decision: IntegerDecision,
    logs: NDArray[np.integer],
    errors: NDArray[np.floating],
    steps: int = _STEPS,
) -> None:
    """Fit everything but what predicts rows from rows.

    Args:
        decision: Is changed.
        logs: (n, K, h, w), those of n crops.
        errors: As for `fit_decision`.
        steps: Of training, at most.
    """
    levels = decision.levels
    inputs, around = (
        torch.from_numpy(maps).float().flatten(2).mT  # (n, h·w, K)
        for maps in (logs, sum_around(logs.astype(np.int64)) / 4)
    )
    gains = log_gains(errors, levels)
    falling = np.exp(np.minimum.accumulate(errors.astype(np.float64), axis=1))
    squares = torch.from_numpy(falling).float().flatten(2).mT
    torch.manual_seed(0)
    _store(decision, _train((inputs, around), gains, squares, levels, min(steps, _STEPS)))


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


class _Nets(nn.Module):
    """The decision in floating point, for 1 to K known groups; all in eighths of log₂."""

    def __init__(self, inputs: Tensor, gains: Tensor) -> None:
        super().__init__()
        groups, steps = inputs.shape[-1], gains.shape[-1]
        self.mean, self.std = inputs.mean(dim=(0, 1)), inputs.std(dim=(0, 1)).clamp(min=1)
        self.known = torch.ones(groups, groups).tril()  # by net and group
        spread = 1 / self.known.sum(dim=1).sqrt()
        self.first = nn.Parameter(torch.randn(groups, HIDDEN, groups) * spread[:, None, None])
        self.first_bias = nn.Parameter(torch.zeros(groups, HIDDEN))
        self.second = nn.Parameter(torch.randn(groups, steps, HIDDEN) / HIDDEN)
        self.second_bias = nn.Parameter((gains.mean(dim=(0, 1)) / 8).repeat(groups, 1))
        self.around = nn.Parameter(torch.zeros(HIDDEN, groups))

    def forward(self, inputs: Tensor, around: Tensor) -> Tensor:
        """Return scores (n, K, windows, K − 1) of every net.

        Args:
            inputs: (n, windows, K).
            around: Their means over the four neighbors; only the last net sees them.
        """
        normalized, others = ((x - self.mean) / self.std for x in (inputs, around))
        hidden = torch.einsum("nwg,khg->nkwh", normalized, self.first * self.known[:, None])
        seen = torch.stack([*hidden.unbind(1)[:-1], hidden[:, -1] + others @ self.around.T], dim=1)
        hidden = (seen + self.first_bias[:, None]).relu()
        return 8 * (torch.einsum("nkwh,ksh->nkws", hidden, self.second) + self.second_bias[:, None])


def _train(
    inputs: tuple[Tensor, Tensor],
    gains: Tensor,
    squares: Tensor,
    levels: Sequence[int],
    steps: int,
) -> _Nets:
    """Fit the logarithms of mean gains, and where all groups are known what decisions cost."""
    nets = _Nets(inputs[0], gains)
    optimizer = torch.optim.Adam(nets.parameters(), lr=_RATE)
    most = _BUDGETS[1] * levels[-1]
    least = min(_BUDGETS[0] * levels[0], most)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = _RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
        chosen = torch.randint(len(gains), (_BATCH,))
        scores = nets(*(x[chosen] for x in inputs))
        missed = (gains[chosen][:, None] - scores) * math.log(2) / 8
        loss = mean_of_logs(missed[:, :-1].flatten(0, 1)) + _GAINS * mean_of_logs(missed[:, -1])
        if step >= _ALONE * steps:
            rows = least * (most / least) ** torch.rand(_BATCH)
            cost = log_cost(scores[:, -1], squares[chosen], levels, rows)
            worse = (cost - uniform_log_cost(squares[chosen], levels, rows)).relu()
            loss = loss + (cost + _WORSE * worse).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return nets


def log_cost(
    scores: Tensor,
    squares: Tensor,
    levels: Sequence[int],
    rows: Tensor,
    softness: float = _SOFTNESS,
) -> Tensor:
    """Return the logarithm of the error (n,) that is left when scores have spent a budget.

    That is what `temper` and `spend` do with the scores of an encoder, but a step near the
    threshold is taken in part, so that there is a gradient.

    Args:
        scores: (n, windows, K − 1).
        squares: (n, windows, K), squared errors at the levels, nowhere rising.
        levels: K counts.
        rows: (n,), what a window may take on average.
        softness: How far from the threshold is near.
    """
    scores, sizes = _tempered(scores), scores.new_tensor(np.diff(levels))
    budget = rows - levels[0]
    with torch.no_grad():
        threshold = _threshold(scores, sizes, budget, softness)
        part = torch.sigmoid((scores - threshold) / softness)
        rise = sizes * part * (1 - part)  # of what is taken, with its score
    # The threshold moves with the scores, so that the budget is spent as before.
    moved = (rise * (scores - scores.detach())).sum(dim=(1, 2), keepdim=True)
    threshold = threshold + moved / rise.sum(dim=(1, 2), keepdim=True).clamp(min=1e-9)
    part = torch.sigmoid((scores - threshold) / softness)
    left = squares[..., 0] + (squares.diff(dim=-1) * part).sum(dim=-1)
    return left.sum(dim=1).log()


def uniform_log_cost(squares: Tensor, levels: Sequence[int], rows: Tensor) -> Tensor:
    """Return the logarithm of the error (n,) where all windows take `rows` (n,); see `log_cost`."""
    known = squares.new_tensor(levels)
    after = torch.searchsorted(known, rows.to(known)).clamp(1, len(levels) - 1)
    before, crops = known[after - 1], torch.arange(len(rows))
    share = ((rows - before) / (known[after] - before))[:, None]
    left = squares[crops, :, after - 1].lerp(squares[crops, :, after], share.to(squares))
    return left.sum(dim=1).log()


def _tempered(scores: Tensor) -> Tensor:
    """Return scores as `decision.temper` leaves them, but for rounding."""
    chance, most = ENCODER_TRUST
    scores = scores.cummin(dim=-1).values
    apart = scores - scores.mean(dim=1, keepdim=True)
    differ = apart.detach().abs().mean(dim=(1, 2), keepdim=True)
    share = ((differ - chance) / 2).clamp(0, most) / 8
    return (scores + (share - 1) * apart).cummin(dim=-1).values


def _threshold(scores: Tensor, sizes: Tensor, budget: Tensor, softness: float) -> Tensor:
    """Return the threshold (n, 1, 1) at which steps take the budget (n,) of a window on average."""
    low = scores.amin(dim=(1, 2), keepdim=True) - 10 * softness
    high = scores.amax(dim=(1, 2), keepdim=True) + 10 * softness
    for _ in range(30):
        middle = (low + high) / 2
        taken = (sizes * torch.sigmoid((scores - middle) / softness)).sum(dim=-1).mean(dim=1)
        over = (taken > budget)[:, None, None]
        low, high = torch.where(over, middle, low), torch.where(over, high, middle)
    return (low + high) / 2


@torch.no_grad()
def _store(decision: IntegerDecision, nets: _Nets) -> None:
    """Round the weights to 8 bits, each hidden number scaled so that its own just fit."""
    weights = nets.first * nets.known[:, None] / nets.std  # for inputs as they come
    around = nets.around / nets.std / 4  # and for sums of four
    bias = nets.first_bias - weights @ nets.mean
    bias[-1] -= 4 * around @ nets.mean
    largest = weights.abs().amax(dim=2).clamp(min=1e-6)
    largest[-1] = torch.maximum(largest[-1], around.abs().amax(dim=1))
    scale = _LARGEST_WEIGHT / 2**HIDDEN_SHIFT / largest
    decision.first.copy_((weights * scale[..., None] * 2**HIDDEN_SHIFT).round())
    decision.around.copy_((around * scale[-1][:, None] * 2**HIDDEN_SHIFT).round())
    decision.first_bias.copy_((bias * scale * 2**HIDDEN_SHIFT).round())
    after = 8 * nets.second / scale[:, None]
    peak = after.abs().amax(dim=(1, 2)).clamp(min=1e-6)
    shift = (_LARGEST_WEIGHT / peak).log2().floor().clamp(0, _MOST_SHIFT)
    unit = 2 ** shift[:, None]
    second = (after * unit[..., None]).round().clamp(-_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    decision.second.copy_(second)
    # Shifts round down, by a half on average.
    lost = 0.5 * second.sum(dim=2) + 0.5 * unit
    decision.second_bias.copy_((8 * nets.second_bias * unit + lost).round())
    decision.shift.copy_(shift)
