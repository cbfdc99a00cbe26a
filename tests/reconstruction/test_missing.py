"""Missing measurements: the estimate against a dense solution, and what it is worth."""

import numpy as np
import pytest
import torch

import tersense
from cameras import random_camera
from tersense.evaluation.metrics import psnr
from tersense.io.images import PHOTOGRAPH, read_gray
from tersense.measurements.measurements import MeasuredValues
from tersense.reconstruction.gaussian import LinearOptions, fill_missing

NAN = float("nan")
CORRELATION, NOISE = LinearOptions().correlation, LinearOptions().noise


def dense_estimate(y, operator, size):
    """Solve the definition with matrices: E[y | what is there] for pixels of covariance C."""
    pixels = size[0] * size[1]
    basis = torch.eye(pixels).reshape(pixels, *size)
    phi = operator.forward(basis).reshape(pixels, -1).T.double().numpy()
    down, across = (
        CORRELATION ** np.abs(np.subtract.outer(range(n), range(n)).astype(float)) for n in size
    )
    covariance = phi @ np.kron(down, across) @ phi.T
    flat = y.double().numpy().ravel()
    there = ~np.isnan(flat)
    known = covariance[np.ix_(there, there)] + NOISE * np.eye(there.sum())
    weights = np.linalg.solve(known, flat[there])
    flat[~there] = covariance[np.ix_(~there, there)] @ weights
    return flat.reshape(y.shape)


@pytest.mark.parametrize("geometry", [(9, 8, 8), (5, 8, 4), (4, 7, 3)])
@pytest.mark.parametrize("what", ["entries", "a row", "a window"])
def test_the_estimate_is_the_best_linear_one(geometry, what):
    torch.manual_seed(1)
    operator, size = random_camera(*geometry).operator, (13, 18)
    y = operator.forward(torch.randn(2, *size))
    if what == "entries":
        y[torch.rand(y.shape) < 0.3] = NAN
    elif what == "a row":
        y[:, 1] = NAN
    else:
        y[0, :, 1, 1] = NAN
    filled = fill_missing(y, operator, size, tolerance=1e-6)
    there = ~y.isnan()
    assert torch.equal(filled[there], y[there])
    for own, image in zip(filled, y, strict=True):
        np.testing.assert_allclose(own, dense_estimate(image, operator, size), atol=2e-3)


def test_an_image_of_which_nothing_is_known_becomes_the_mean():
    imager = random_camera(9, 8, 8)
    y = torch.full((1, 9, 2, 3), NAN)
    assert torch.equal(fill_missing(y, imager.operator, (16, 24)), torch.zeros(1, 9, 2, 3))


def test_a_quarter_of_the_rows_may_be_missing():
    imager, image = tersense.load("paper-r25"), read_gray(PHOTOGRAPH)
    y = imager.sense(image)
    lost = np.random.default_rng(0).permutation(256)[:64]
    values = y.values.astype(np.float64)
    values[lost] = np.nan
    incomplete = MeasuredValues(values, y.header)
    assert incomplete.missing == 0.25
    ones = imager.operator.sense_ones(image.shape).numpy()
    values = np.where(np.isnan(values), imager.mean * ones, values)  # the mean, as a fallback would
    plain = MeasuredValues(values, y.header)
    whole, filled, careless = (psnr(imager.reconstruct(x), image) for x in (y, incomplete, plain))
    assert whole - filled < 2.5
    assert filled - careless > 5
