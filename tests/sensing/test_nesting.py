"""The order of patterns in a nested camera."""

import numpy as np
import pytest
import torch

import tersense
from runs import unrolled_config
from tersense import TersenseError
from tersense.sensing.patterns import Patterns, nested_order
from tersense.training.network import JointNetwork


def unexplained(phi, count, window, correlation=0.95):
    """Variance that is left after the first `count` patterns, by solving for the estimate."""
    apart = np.abs(np.subtract.outer(np.arange(window), np.arange(window)))
    covariance = np.kron(correlation**apart, correlation**apart)
    rows = phi[:count].reshape(count, -1).astype(float)
    gain = covariance @ rows.T @ np.linalg.pinv(rows @ covariance @ rows.T)
    return np.trace(covariance - gain @ rows @ covariance)


def test_the_mean_comes_before_differences():
    phi = np.zeros((4, 4, 4), np.int8)
    phi[0, 0, :2] = 1, -1
    phi[1, 1, :] = 1, 1, -1, -1
    phi[2] = 1
    phi[3, :, :2], phi[3, :, 2:] = 1, -1
    assert list(nested_order(Patterns(phi, 4))[:2]) == [2, 3]


def test_every_next_pattern_is_the_best_one_left():
    rng = np.random.default_rng(3)
    phi = rng.integers(-1, 2, (6, 4, 4)).astype(np.int8)
    order = nested_order(Patterns(phi, 4))
    assert sorted(order) == list(range(6))
    for place in range(5):
        chosen = list(order[:place])
        left = {int(row): unexplained(phi[[*chosen, row]], place + 1, 4) for row in order[place:]}
        assert min(left, key=left.get) == order[place]


def test_patterns_that_repeat_others_come_last():
    phi = np.zeros((3, 2, 2), np.int8)
    phi[0] = phi[1] = 1
    phi[2, 0, 0] = 1
    assert list(nested_order(Patterns(phi, 2))) == [0, 2, 1]


@pytest.mark.parametrize(("loss", "pull"), [("log", [1, 1, 1]), ("charbonnier", [0.1, 1, 10])])
def test_low_rates_with_their_large_errors_count_no_more_by_the_logarithm(tmp_path, loss, pull):
    network = JointNetwork(unrolled_config(tmp_path, train__loss=loss), 128.0, 64.0)
    x = torch.rand(2, 16, 16)
    error = torch.randn(2, 16, 16).sign()

    def pull_of(size):
        size = torch.tensor(size, requires_grad=True)
        network.loss(x, x + size * error).backward()
        return (size.grad * size).item()

    np.testing.assert_allclose([pull_of(size) for size in (0.1, 1.0, 10.0)], pull, rtol=1e-3)


def test_rates_lower_than_it_was_trained_for_are_refused():
    flex = tersense.load("flex")
    assert len(flex.at_rate(0.01).patterns) == 10
    with pytest.raises(TersenseError, match=r"not trained for .* 0\.005; use 0\.01 to 0\.5"):
        flex.at_rate(0.005)


def test_less_than_one_measurement_a_window_is_no_rate():
    flex = tersense.load("flex")
    with pytest.raises(TersenseError, match=r"one measurement per 32×32 pixels, got 0\.0005"):
        flex.at_rate(0.0005)
