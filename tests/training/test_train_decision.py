"""Fitting the integer decision of a sensor."""

import numpy as np
import pytest
import torch

from tersense.reconstruction.allocation.decision import spend, sum_around, temper
from tersense.sensing.patterns import random_patterns
from tersense.training.decision import fit_decision, log_cost, uniform_log_cost

LEVELS = (3, 5, 8, 13, 20)


def random_scores(windows, seed):
    falling = -np.sort(-np.random.default_rng(seed).integers(-400, 400, (windows, 4)), axis=1)
    return torch.from_numpy(falling).double()


def random_squares(windows, seed):
    errors = np.random.default_rng(seed).random((windows, 5))
    return torch.from_numpy(-np.sort(-errors, axis=1))


@pytest.mark.parametrize("rows", [4, 7.5, 15])
def test_the_cost_of_scores_is_that_of_the_counts_they_lead_to(rows):
    scores, squares = random_scores(400, 1), random_squares(400, 2)
    integers = scores.mT.long().numpy().reshape(4, 20, 20)
    counts = spend(temper(integers, 1, 6), LEVELS, int(rows * 400)).reshape(-1)
    left = [np.interp(c, LEVELS, e) for c, e in zip(counts, squares.numpy(), strict=True)]
    cost = log_cost(scores[None], squares[None], LEVELS, torch.tensor([rows]).double(), 0.5)
    assert cost.exp().item() == pytest.approx(sum(left), rel=0.005)


def test_the_cost_has_the_gradient_of_its_differences():
    random = np.random.default_rng(0)  # far apart: as much of a difference is left as ever is
    fall = random.uniform(1, 6, (3, 9, 4)).cumsum(axis=2)
    scores = torch.from_numpy(random.normal(0, 40, (3, 9, 1)) - fall).requires_grad_()
    squares = torch.stack([random_squares(9, seed) for seed in range(3)])
    rows = torch.tensor([4.0, 7.0, 14.0]).double()
    assert torch.autograd.gradcheck(
        lambda s: log_cost(s, squares, LEVELS, rows), (scores,), eps=0.02, rtol=0.01, atol=1e-5
    )


@pytest.mark.parametrize("rows", [3, 4, 7.5, 20])
def test_the_cost_of_uniform_counts_lies_on_the_curves(rows):
    squares = random_squares(30, 3)
    left = [np.interp(rows, LEVELS, errors) for errors in squares.numpy()]
    cost = uniform_log_cost(squares[None], LEVELS, torch.tensor([rows]))
    assert cost.exp().item() == pytest.approx(sum(left))


def sums_of(rough, random):
    """Draw measurements of windows, of which the rough ones have much in their later rows."""
    y = random.normal(0, 4, (len(rough), 20, 6, 6))
    y[:, 3:] += rough[:, None] * random.normal(0, 90, (len(rough), 17, 6, 6))
    return y.round().astype(int)


def test_a_decision_takes_where_errors_fall():
    """Rough windows, whose later rows are large, need all rows; smooth ones are done at once."""
    random = np.random.default_rng(3)
    rough = random.random((60, 6, 6)) < 0.3
    y = sums_of(rough, random)
    falling = np.log(np.array(LEVELS)[:, None, None] / 20.0)
    errors = np.where(rough[:, None], -3 * falling - 1, -0.1 * falling - 4)
    phi = random_patterns(20, 8, 0.3).phi
    decision = fit_decision(phi, LEVELS, y, errors, steps=300)
    for one, where in zip(y[:5], rough[:5], strict=True):
        counts = decision.decide(one, 8 * 36)
        assert counts.sum() <= 8 * 36
        assert counts[where].mean() > 1.5 * counts[~where].mean()


def test_an_encoder_takes_where_the_windows_around_are_rough():
    """Whether errors fall depends on the neighbors alone: a window itself tells nothing."""
    random = np.random.default_rng(5)
    rough = random.random((80, 6, 6)) < 0.5
    busy = sum_around(rough.astype(np.int64)) >= 2
    y = sums_of(rough, random)
    falling = np.log(np.array(LEVELS)[:, None, None] / 20.0)
    errors = np.where(busy[:, None], -3 * falling - 1, -0.1 * falling - 1)
    phi = random_patterns(20, 8, 0.3).phi
    decision = fit_decision(phi, LEVELS, y, errors, steps=400)
    counts = np.stack([decision.decide(one, 8 * 36) for one in y[:20]])
    assert counts[busy[:20]].mean() > 1.5 * counts[~busy[:20]].mean()
    assert abs(counts[rough[:20]].mean() / counts[~rough[:20]].mean() - 1) < 0.2
