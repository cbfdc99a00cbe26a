"""Losses, against figures of others."""

import math

import numpy as np
import pytest
import torch
from skimage.metrics import mean_squared_error, peak_signal_noise_ratio

from tersense.training.losses import LOSSES

RNG = np.random.default_rng(7)
IMAGES = RNG.normal(size=(3, 12, 20))
ESTIMATES = IMAGES + RNG.normal(size=IMAGES.shape) * np.array([0.02, 0.2, 1])[:, None, None]


def loss_of(name: str) -> float:
    return float(LOSSES[name](torch.from_numpy(IMAGES), torch.from_numpy(ESTIMATES)))


def test_the_papers_loss_is_the_mean_squared_distance_of_crops() -> None:
    pairs = zip(IMAGES, ESTIMATES, strict=True)
    expected = np.mean([mean_squared_error(x, estimate) * x.size for x, estimate in pairs])
    assert loss_of("squared") == pytest.approx(expected)


def test_log_squared_is_the_mean_psnr_but_for_sign_and_unit() -> None:
    pairs = zip(IMAGES, ESTIMATES, strict=True)
    psnr = np.mean([peak_signal_noise_ratio(x, e, data_range=1) for x, e in pairs])
    assert -10 / math.log(10) * loss_of("log_squared") == pytest.approx(psnr, abs=0.01)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_better_estimate_has_a_lower_loss_and_a_perfect_one_a_finite_slope(name: str) -> None:
    x = torch.from_numpy(IMAGES)
    closer = torch.from_numpy((IMAGES + ESTIMATES) / 2)
    assert float(LOSSES[name](x, closer)) < loss_of(name)
    perfect = x.clone().requires_grad_()
    LOSSES[name](x, perfect).backward()
    assert perfect.grad is not None
    assert perfect.grad.isfinite().all()
