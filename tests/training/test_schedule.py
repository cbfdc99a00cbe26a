"""Learning rates over a training run."""

import pytest

from tersense.training.config import TrainConfig
from tersense.training.optim import learning_rates


def test_the_papers_schedule_falls_by_steps():
    train = TrainConfig()
    rates = [learning_rates(train, 0, epoch, 0.0)[0] for epoch in (0.0, 4.99, 5.0, 49.5)]
    assert rates == pytest.approx([0.01, 0.01, 0.006, 0.01 * 0.6**9])


def test_cosine_falls_to_zero_by_epochs_or_by_time():
    train = TrainConfig(schedule="cosine", lr=1.0, epochs=10, seconds=100.0)
    assert learning_rates(train, 0, 0.0, 0.0)[0] == 1.0
    assert learning_rates(train, 9, 5.0, 0.0)[0] == pytest.approx(0.5)
    assert learning_rates(train, 9, 1.0, 50.0)[0] == pytest.approx(0.5)
    assert learning_rates(train, 9, 1.0, 100.0)[0] == pytest.approx(0.0)
    assert learning_rates(train, 9, 10.0, 30.0)[0] == pytest.approx(0.0)


def test_warm_up_rises_in_a_line():
    train = TrainConfig(lr=1.0, warmup=4)
    rates = [learning_rates(train, step, 0.0, 0.0)[0] for step in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_patterns_may_learn_at_a_rate_of_their_own():
    train = TrainConfig(schedule="cosine", lr=0.1, lr_patterns=0.3, epochs=10)
    network, patterns = learning_rates(train, 0, 5.0, 0.0)
    assert network == pytest.approx(0.05)
    assert patterns == pytest.approx(0.15)


@pytest.mark.parametrize("schedule", ["steps", "cosine"])
def test_patterns_freeze_while_the_network_goes_on(schedule):
    train = TrainConfig(schedule=schedule, epochs=10, freeze_epochs=6)
    before, after = (learning_rates(train, 9, epoch, 0.0) for epoch in (5.9, 6.0))
    assert before[0] == before[1] > 0
    assert after[0] > 0
    assert after[1] == 0
