"""The decision of a sensor in integers: its arithmetic, and how it spends a budget."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from deciders import LEVELS, random_decision
from tersense.errors import TersenseError
from tersense.reconstruction.allocation.decision import (
    TAKEN,
    linear_prediction,
    log2_eighths,
    residuals,
    spend,
    temper,
)
from tersense.sensing.patterns import random_patterns


@given(st.integers(1, 2**31 - 1))
def test_logarithms_are_those_of_the_leading_bits(value):
    found = int(log2_eighths(np.array([value]))[0])
    place = value.bit_length() - 1
    assert found == 8 * place + int(8 * (value / 2**place - 1))
    assert -1.7 < found - 8 * math.log2(value) <= 0


def test_nothing_has_the_logarithm_of_one():
    np.testing.assert_array_equal(log2_eighths(np.array([0, 1])), [0, 0])


def fits(value):
    assert -(2**31) <= value < 2**31
    return value


def plain_logs(decision, y):
    c = decision.prediction.tolist()
    rest = []
    for row, value in enumerate(y):
        total = 64
        for weight, first in zip(c[row], y, strict=False):
            total = fits(total + weight * first)
        rest.append(abs(value - (total >> 7)))
    logs = []
    for begin, end in zip((0, *LEVELS), LEVELS, strict=False):
        total = fits(sum(rest[begin:end]))
        place = max(total, 1).bit_length() - 1
        logs.append(8 * place + ((max(total, 1) * 8 >> place) & 7))
    return logs


def plain_scores(decision, logs, around, groups):
    """Compute what the module says, one integer at a time, and see that 32 bits are enough."""
    hidden = []
    for weights, others, bias in zip(
        decision.first[groups - 1].tolist(),
        decision.around.tolist(),
        decision.first_bias[groups - 1].tolist(),
        strict=True,
    ):
        for weight, log in zip(weights[:groups], logs, strict=False):
            bias = fits(bias + weight * log)
        for weight, log in zip(others, around, strict=True):
            bias = fits(bias + weight * log) if groups == len(LEVELS) else bias
        hidden.append(max(0, bias >> 6))
    scores = []
    for weights, bias in zip(
        decision.second[groups - 1].tolist(), decision.second_bias[groups - 1].tolist(), strict=True
    ):
        for weight, value in zip(weights, hidden, strict=True):
            bias = fits(bias + weight * value)
        score = min(max(bias >> int(decision.shift[groups - 1]), -2048), 2046)
        scores.append(min([score, *scores[-1:]]))
    return scores


@pytest.mark.parametrize("known", [3, 8, 19, 20])
def test_scores_are_the_sums_and_shifts_that_the_module_describes(known):
    decision = random_decision()
    y = np.random.default_rng(1).integers(-50_000, 50_000, (20, 3, 4)).astype(np.int32)
    rows = np.full((3, 4), known)
    rows[1, 2] = 5  # each window by its own net
    found = decision.scores(y, rows)
    assert found.shape == (4, 3, 4)
    for i, j in np.ndindex(3, 4):
        logs = plain_logs(decision, y[:, i, j].tolist())
        groups = sum(level <= rows[i, j] for level in LEVELS)
        expected = plain_scores(decision, logs, [4 * log for log in logs], groups)
        assert found[:, i, j].tolist() == expected


@pytest.mark.parametrize("grid", [(3, 4), (1, 1), (1, 3), (4, 1)])
def test_an_encoder_sees_the_windows_above_below_left_and_right(grid):
    decision = random_decision()
    y = np.random.default_rng(1).integers(-50_000, 50_000, (20, *grid)).astype(np.int32)
    found = decision.scores(y)
    logs = {(i, j): plain_logs(decision, y[:, i, j].tolist()) for i, j in np.ndindex(grid)}
    for i, j in np.ndindex(grid):
        beside = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
        around = [sum(of) for of in zip(*(logs.get(at, logs[i, j]) for at in beside), strict=True)]
        expected = plain_scores(decision, logs[i, j], around, len(LEVELS))
        assert found[:, i, j].tolist() == expected


def test_rows_are_predicted_from_those_before_them_only():
    decision = random_decision()
    decision.prediction[2, 2] = 1
    with pytest.raises(TersenseError, match="from those before them"):
        decision.check()


def test_rows_that_are_not_known_have_no_say():
    decision = random_decision()
    y = np.random.default_rng(1).integers(-5000, 5000, (20, 3, 4))
    other = y.copy()
    other[8:] = 77
    eight, all_rows = np.full((3, 4), 8), np.full((3, 4), 20)
    np.testing.assert_array_equal(decision.scores(y, eight), decision.scores(other, eight))
    assert (decision.scores(y, all_rows) != decision.scores(other, all_rows)).any()
    with pytest.raises(ValueError, match="needs the first 3 rows, got 2"):
        decision.scores(y, np.full((3, 4), 2))


@st.composite
def scored(draw):
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    scores = draw(arrays.arrays(np.int64, (4, *shape), elements=st.integers(-2048, 2046)))
    if draw(st.booleans()):
        scores = scores // 700  # many alike
    scores = np.minimum.accumulate(scores, axis=0)
    held = draw(arrays.arrays(np.int64, shape, elements=st.sampled_from(LEVELS)))
    scores[np.array(LEVELS)[1:, None, None] <= held] = TAKEN
    return scores, held, int(held.sum()) + draw(st.integers(0, 20 * held.size))


@given(scored())
@settings(deadline=None, max_examples=300)
def test_the_budget_is_spent_from_the_highest_scores_down(case):
    scores, held, budget = case
    counts = spend(scores, LEVELS, budget)
    assert (counts >= held).all()
    assert counts.max() <= 20
    assert counts.sum() == min(budget, 20 * counts.size)
    bounds = np.array(LEVELS)[:, None, None]
    undecided = scores < TAKEN
    taken, left = (counts >= bounds[1:]) & undecided, (counts <= bounds[:-1]) & undecided
    if taken.any() and left.any():
        assert scores[taken].min() >= scores[left].max()
    begun = (counts > bounds[:-1]) & (counts < bounds[1:])
    if begun.any():
        assert np.ptp(scores[begun]) == 0
    whole = spend(scores, LEVELS, budget, whole=True)
    assert np.isin(whole, LEVELS).all()
    assert (held <= whole).all()
    assert (whole <= counts).all()


def test_windows_that_score_alike_take_as_many():
    counts = spend(np.full((4, 3, 3), 17), LEVELS, 9 * 11 + 4)
    assert counts.reshape(-1).tolist() == [12] * 4 + [11] * 5


def test_scores_that_differ_little_are_drawn_to_their_mean():
    random = np.random.default_rng(0)
    wide = np.minimum.accumulate(random.integers(-200, 200, (4, 6, 6)), axis=0)
    np.testing.assert_array_equal(temper(wide, 4, 8), wide)
    assert temper(wide, 4, 4)[0].std() == pytest.approx(0.5 * wide[0].std(), rel=0.01)
    narrow = random.integers(-7, 8, (4, 6, 6)) - 50 * np.arange(4)[:, None, None]
    assert all(np.ptp(step) == 0 for step in temper(narrow, 4, 8))
    between = narrow * 2
    drawn = temper(between, 2, 8)
    assert 0 < drawn[0].std() < 0.75 * between[0].std()
    assert temper(between, 4, 8)[0].std() < drawn[0].std()
    assert (np.diff(drawn, axis=0) <= 0).all()


def test_steps_that_are_taken_have_no_say_in_the_mean():
    random = np.random.default_rng(0)
    scores = np.minimum.accumulate(random.integers(-20, 20, (4, 6, 6)), axis=0)
    alone = temper(scores[:, :3], 4, 8)
    scores[:, 3:] = TAKEN
    found = temper(scores, 4, 8)
    np.testing.assert_array_equal(found[:, :3], alone)
    assert (found[:, 3:] == TAKEN).all()


def test_a_budget_below_what_windows_have_is_refused():
    scores = np.zeros((4, 1, 2), np.int64)
    scores[0, 0, 1] = TAKEN
    with pytest.raises(ValueError, match="budget must be at least 8, got 7"):
        spend(scores, LEVELS, 7)


def test_counts_that_are_no_levels_are_refused():
    with pytest.raises(ValueError, match=r"counts must be levels, .* got \[6\]"):
        random_decision().decide(np.zeros((20, 1, 2), np.int64), 30, np.array([[6, 6]]))


def test_an_open_loop_decides_by_what_it_has_measured():
    """Rows that are not taken in the end change nothing; those that are taken do."""
    decision, random = random_decision(second=40, shift=8, fall=7), np.random.default_rng(2)
    y = random.integers(-900, 900, (20, 6, 7)) * random.integers(1, 30, (6, 7))
    for budget in (3 * 42, 5 * 42 + 11, 10 * 42, 20 * 42):
        counts = decision.open_loop(y, budget)
        assert counts.sum() == budget
        other = np.where(np.arange(20)[:, None, None] < counts, y, 7777)
        np.testing.assert_array_equal(decision.open_loop(other, budget), counts)
    half = decision.open_loop(y, 10 * 42)
    assert np.ptp(half) > 0
    assert (decision.open_loop(y[:, ::-1], 10 * 42) != half).any()


def test_smooth_content_is_predicted_and_texture_is_not():
    patterns = random_patterns(20, 16, 0.2).phi
    c = linear_prediction(patterns, 5)
    assert c.dtype == np.int8
    assert (c[0] == 0).all()
    assert (c[3, 3:] == 0).all()  # from rows before it only
    ramp = np.add.outer(np.arange(16), 2 * np.arange(16)) + 60
    noise = np.random.default_rng(0).integers(0, 120, (16, 16))
    shares = []
    for image in (ramp, noise):
        y = (patterns.astype(int) * image).sum(axis=(1, 2))[:, None, None]
        rest = residuals(y, c)
        shares.append(np.abs(rest[5:]).sum() / np.abs(y[5:]).sum())
    assert shares[0] < 0.5 * shares[1]
