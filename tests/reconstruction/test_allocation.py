"""Adaptive sensing: where the budget goes, and what is known when it is decided."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial import ConvexHull

from tersense.errors import TersenseError
from tersense.measurements.counts import cell_pixels
from tersense.reconstruction.allocation import Evidence, allocate, count_levels, spread_evenly
from tersense.reconstruction.allocation.curves import convex_below
from tersense.reconstruction.allocation.predictor import (
    PredictorOptions,
    cell_means,
    pool_features,
    predictor_for,
)
from tersense.reconstruction.allocation.quality import (
    budget_for,
    expected_error,
    from_psnr,
    to_psnr,
)
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.gram import whitening
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import random_patterns

LEVELS = (2, 3, 5, 8, 13, 20)


def test_levels_are_log_spaced_from_the_lowest_to_all_rows():
    levels = count_levels(10, 512)
    assert len(levels) == 13
    assert (levels[0], levels[-1]) == (10, 512)
    ratios = np.array(levels[1:]) / np.array(levels[:-1])
    assert ratios.min() > 1.3
    assert ratios.max() < 1.45
    assert count_levels(1, 4) == (1, 2, 3, 4)
    assert count_levels(7, 7) == (7,)
    with pytest.raises(ValueError, match="lowest must lie between 1 and 5, got 6"):
        count_levels(6, 5)


shapes = st.tuples(st.integers(1, 5), st.integers(1, 5))


@st.composite
def situations(draw):
    """Any curves, some of them absurd, counts so far, and a budget for them."""
    shape = draw(shapes)
    errors = draw(arrays.arrays(np.float64, (len(LEVELS), *shape), elements=st.floats(-30, 30)))
    counts = draw(arrays.arrays(np.int64, shape, elements=st.integers(0, LEVELS[-1])))
    budget = int(counts.sum()) + draw(st.integers(0, 25 * counts.size))
    return errors, counts, budget


@given(situations())
@settings(deadline=None, max_examples=200)
def test_the_budget_is_spent_and_never_exceeded_and_counts_only_grow(situation):
    errors, counts, budget = situation
    kept = counts.copy()
    new = allocate(errors, LEVELS, counts, budget)
    assert (new >= counts).all()
    assert new.max() <= LEVELS[-1]
    assert new.sum() == min(budget, LEVELS[-1] * counts.size)
    assert new.dtype == np.int64
    np.testing.assert_array_equal(counts, kept)


@given(situations())
@settings(deadline=None, max_examples=200)
def test_an_even_spread_lifts_the_lowest_to_one_level(situation):
    _, counts, budget = situation
    new = spread_evenly(counts, budget, LEVELS[-1])
    assert new.sum() == min(budget, LEVELS[-1] * counts.size)
    grown = new[new > counts]
    if grown.size:
        assert grown.max() - new.min() <= 1


def brute_force(curves, counts, budget):
    """The least error over all ways to spend a budget: curves (n, m + 1) by window and count."""
    rows = curves.shape[1] - 1
    ways = itertools.product(*(range(count, rows + 1) for count in counts))
    return min(sum(curves[n, m] for n, m in enumerate(way)) for way in ways if sum(way) <= budget)


@pytest.mark.parametrize("seed", range(8))
def test_no_other_way_to_spend_the_budget_is_better(seed):
    """Every count is a level here, so that the curves are the truth; they are convex."""
    random = np.random.default_rng(seed)
    levels = tuple(range(1, 8))
    falls = np.sort(random.random((3, 6)) ** 3, axis=1)[:, ::-1] * random.random((3, 1)) * 9
    errors = 30 - np.concatenate([np.zeros((3, 1)), falls.cumsum(axis=1)], axis=1)  # (n, K)
    counts = random.integers(1, 4, 3)
    budget = int(counts.sum() + random.integers(1, 9))
    new = allocate(np.log(errors.T[:, None]), levels, counts[None], budget)
    found = sum(errors[n, m - 1] for n, m in enumerate(new[0]))
    padded = np.concatenate([np.full((3, 1), np.inf), errors], axis=1)
    uniform = spread_evenly(counts[None], budget, 7)[0]
    gain = 10 * np.log10(sum(padded[n, m] for n, m in enumerate(uniform)) / found)
    best = brute_force(padded, counts, budget)
    if 10 * np.log10(sum(padded[n, m] for n, m in enumerate(uniform)) / best) > 0.21:
        assert found == pytest.approx(best)
    else:
        assert gain >= -1e-9  # nearly uniform already: half-way is good enough


def test_a_curve_that_is_not_convex_is_taken_as_the_convex_one_below_it():
    """A window whose error falls only after many rows is worth them all, or none."""
    levels = (1, 2, 4, 8, 16)
    late = np.array([100.0, 100, 100, 100, 1])
    slow = np.array([50.0, 49.9, 49.8, 49.7, 49.6])
    curves = np.log(np.stack([late, slow], axis=1))[:, None]
    new = allocate(curves, levels, np.ones((1, 2), int), 17)
    np.testing.assert_array_equal(new, [[16, 1]])


def test_the_convex_curve_below_points_is_their_lower_hull():
    rng = np.random.default_rng(2)
    points = np.sort(rng.choice(500, (20, 50), replace=True), axis=0)
    points[:4] = points[4]  # what a window has measured already
    errors = rng.normal(size=points.shape)
    errors[:4] = errors[4]
    points[5:] += np.arange(1, 16)[:, None]  # the others differ
    below = convex_below(points, errors)
    for x, y, found in zip(points[4:].T, errors[4:].T, below[4:].T, strict=True):
        lid = np.array([[x[0], y.max() + 1], [x[-1], y.max() + 1]])
        hull = ConvexHull(np.concatenate([np.stack([x, y], axis=1), lid]))
        corners = np.sort([i for i in hull.vertices if i < len(x)])
        np.testing.assert_allclose(found, np.interp(x, x[corners], y[corners]), atol=1e-9)
    np.testing.assert_array_equal(below[:4], below[4:5].repeat(4, axis=0))


def test_where_next_to_nothing_is_promised_the_budget_is_spent_evenly():
    falling = np.linspace(1, -1, len(LEVELS))[:, None, None]
    noise = np.random.default_rng(0).normal(size=(len(LEVELS), 4, 4)) * 0.003
    new = allocate(falling + noise, LEVELS, np.full((4, 4), 3), 16 * 7)
    assert new.min() == new.max() == 7


def test_wrong_arguments_of_an_allocation_are_refused():
    errors, counts = np.zeros((6, 2, 2)), np.full((2, 2), 3)
    with pytest.raises(ValueError, match=r"log_errors must be \(6, 2, 2\), got \(5, 2, 2\)"):
        allocate(errors[1:], LEVELS, counts, 99)
    with pytest.raises(ValueError, match="counts must lie between 0 and 20, got 3 to 30"):
        allocate(errors, LEVELS, counts * np.array([1, 10]), 99)
    with pytest.raises(ValueError, match="finite, got NaN or Inf"):
        allocate(errors * np.nan, LEVELS, counts, 99)
    with pytest.raises(ValueError, match="budget must be at least the 12 taken, got 11"):
        allocate(errors, LEVELS, counts, 11)


# Evidence

ROWS = 20


@pytest.fixture
def operator():
    phi = random_patterns(ROWS, 16, 0.2).phi.astype(np.float32)
    return SensingOperator(torch.from_numpy(phi), 8)


def looked(operator, rounds, image_of=None):
    """Return evidence after rounds of counts, each with the image that `image_of` gives."""
    x = torch.randn(2, 24, 37, generator=torch.Generator().manual_seed(0))
    y, factor = operator.forward(x), whitening(operator, 0.01)
    evidence = Evidence(operator, factor, LEVELS)
    for counts in rounds:
        image = image_of(x, counts) if image_of else torch.zeros_like(x)
        evidence.add(y, counts, image, torch.zeros(2, 4, 3, 5))
    return x, y, factor, evidence


def test_surprise_is_how_far_the_newest_rows_are_from_what_the_image_before_said(operator):
    before, after = torch.full((2, 3, 5), 6), torch.full((2, 3, 5), 9)
    after[0, 1, 2] = 6  # measured no further
    guess = {6: torch.randn(2, 24, 37), 9: torch.zeros(2, 24, 37)}
    x, _, factor, evidence = looked(
        operator, [before, after], lambda x, counts: guess[int(counts.max())]
    )
    surprise = evidence.inputs[:, 4 + 12 + 1]
    z_error = torch.einsum("ij,njhw->nihw", factor, operator.forward(x - guess[6]))
    wanted = (z_error[:, 6:9].square().mean(dim=1) + 1e-6).log()
    wanted[0, 1, 2] = 0  # keeps what it had
    torch.testing.assert_close(surprise, wanted, rtol=1e-4, atol=1e-4)


def test_a_perfect_image_is_never_surprised(operator):
    rounds = [torch.full((2, 3, 5), 6), torch.full((2, 3, 5), 9)]
    *_, perfect = looked(operator, rounds, lambda x, counts: x)
    *_, blind = looked(operator, rounds)
    assert (perfect.inputs[:, 17] < blind.inputs[:, 17] - 5).all()


def test_rows_that_are_not_measured_are_not_looked_at(operator):
    counts = torch.randint(1, ROWS, (2, 3, 5), generator=torch.Generator().manual_seed(3))
    _, y, factor, evidence = looked(operator, [counts, counts])
    missing = torch.arange(ROWS)[:, None, None] >= counts[:, None]
    other = Evidence(operator, factor, LEVELS)
    for _ in range(2):
        other.add(
            y.masked_fill(missing, 1e4), counts, torch.zeros(2, 24, 37), torch.zeros(2, 4, 3, 5)
        )
    torch.testing.assert_close(evidence.inputs, other.inputs)
    known = evidence.inputs[:, 10:16]  # the share of each group that is measured
    edges = torch.tensor([0, *LEVELS])
    share = (counts[:, None] - edges[:-1, None, None]) / edges.diff()[:, None, None]
    torch.testing.assert_close(known, share.clamp(0, 1))


def test_cells_at_the_border_are_means_of_the_pixels_that_are_there():
    values = torch.arange(20.0 * 13).view(1, 20, 13)
    means = cell_means(values, 8)
    assert means.shape == (1, 3, 2)
    assert means[0, 2, 1] == values[0, 16:, 8:].mean()
    features = torch.randn(1, 3, 10, 8)
    pooled = pool_features(features, 8)
    assert pooled.shape == (1, 6, 3, 2)
    torch.testing.assert_close(pooled[0, 4, 2, 1], features[0, 1, 8:, 4:].std(correction=0))


# The predictor


def network(stride=8, **options):
    torch.manual_seed(0)
    settings = UnrolledOptions(2, 8, **{"universal": True, **options})
    return UnrolledReconstructor(Geometry(16, stride), ROWS, settings).eval()


def test_the_predictor_takes_what_the_evidence_gives(operator):
    made = network()
    predictor = predictor_for(made, PredictorOptions(12))
    x = torch.randn(1, 24, 37)
    y, size = operator.forward(x), (24, 37)
    evidence = Evidence(operator, made.whitening(operator), predictor.levels)
    for count in (5, 8):
        counts = torch.full((1, 3, 5), count)
        with torch.no_grad():
            image, features = made.examine(y, operator, size, counts=counts)
            torch.testing.assert_close(image, made(y, operator, size, counts=counts))
        evidence.add(y, counts, image, pool_features(features, 8), torch.full((1, 1, 1, 1), 0.3))
    assert predictor(evidence.inputs).shape == (1, len(predictor.levels), 3, 5)
    assert predictor.levels[0] == 1
    assert predictor.levels[-1] == ROWS


def test_a_network_that_cannot_make_use_of_counts_gets_no_predictor():
    with pytest.raises(TersenseError, match=r"any count per window, got unrolled; train .*univ"):
        predictor_for(network(universal=False), PredictorOptions())
    with pytest.raises(TersenseError, match="a multiple of 4 pixels apart, got 6"):
        predictor_for(network(stride=6), PredictorOptions())


# How good the image will be


def test_the_expected_error_is_the_mean_over_pixels():
    levels, pixels = (2, 4, 8), cell_pixels((12, 10), 8)
    assert pixels.tolist() == [[64, 16], [32, 8]]
    logs = np.log([[[8.0, 1], [1, 1]], [[4, 1], [1, 1]], [[2, 1], [1, 1]]])
    counts = np.array([[4, 2], [2, 2]])
    assert expected_error(logs, levels, counts, pixels) == pytest.approx((64 * 4 + 56) / 120)
    assert expected_error(logs, levels, counts * 0 + 1, pixels) == pytest.approx(
        (64 * 8 + 56) / 120
    )


@given(st.floats(0.3, 4.0), st.integers(0, 5))
def test_the_budget_for_an_error_is_just_enough(wanted, seed):
    random = np.random.default_rng(seed)
    levels = count_levels(4, 64)
    slope, pixels = random.uniform(0.3, 1.5, (3, 4)), cell_pixels((24, 32), 8)
    logs = random.normal(1, 1, (3, 4)) - slope * np.log(np.array(levels))[:, None, None]
    counts, largest = np.full((3, 4), 6), 64 * 12
    found = budget_for(wanted, logs, levels, counts, pixels, largest)

    def promised(budget):
        return expected_error(logs, levels, allocate(logs, levels, counts, budget), pixels)

    assert counts.sum() <= found <= largest
    assert found == largest or promised(found) <= wanted
    if found > counts.sum() + 6:
        assert promised(found - 6) > 0.99 * wanted  # whole counts fall in small steps


def test_a_psnr_is_an_error_and_back():
    assert to_psnr(from_psnr(31.5)) == pytest.approx(31.5)
    assert from_psnr(20) == pytest.approx(650.25)
