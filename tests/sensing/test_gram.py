"""Undoing the overlap of patterns, against plain linear algebra."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from tersense.sensing.gram import _newton_schulz as newton_schulz
from tersense.sensing.gram import convolve_windows, inverse_gram, invert
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import random_patterns


def camera(window, stride, m, density=0.2):
    phi = random_patterns(m, window, density).phi.astype(np.float64)
    return SensingOperator(torch.from_numpy(phi), stride)


def as_matrix(operator, size):
    """Return Φ as a plain matrix, by sensing every pixel on its own."""
    pixels = torch.eye(size[0] * size[1], dtype=torch.float64).view(-1, *size)
    return operator.forward(pixels).flatten(1).T


def test_blocks_are_inverted_exactly():
    operator = camera(8, 8, 20)
    phi = operator.phi.flatten(1).numpy()
    gram = phi @ phi.T
    expected = np.linalg.inv(gram + 0.05 * gram.diagonal().max() * np.eye(20))
    kernel = inverse_gram(operator, 0.05)
    assert kernel.shape == (20, 20, 1, 1)
    np.testing.assert_allclose(kernel[:, :, 0, 0].numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(("window", "stride", "m"), [(8, 4, 5), (8, 2, 2), (9, 4, 6)])
def test_lapped_windows_are_inverted_away_from_the_border(window, stride, m):
    operator = camera(window, stride, m)
    size = (stride * 16, stride * 16)
    matrix = as_matrix(operator, size)
    gram = matrix @ matrix.T
    damped = gram + 0.3 * (operator.phi**2).sum((1, 2)).max() * torch.eye(len(gram))
    rng = torch.Generator().manual_seed(0)
    y = torch.randn(1, m, 16, 16, generator=rng, dtype=torch.float64)
    expected = torch.linalg.solve(damped, y.flatten()).view_as(y)
    found = convolve_windows(inverse_gram(operator, 0.3), y)
    inside = (..., slice(5, -5), slice(5, -5))
    error = (found - expected)[inside].norm() / expected[inside].norm()
    assert error < 0.04


@pytest.mark.parametrize(("window", "stride", "m"), [(16, 8, 16), (16, 4, 4), (8, 8, 16)])
def test_repeated_steps_towards_the_measurements_settle(window, stride, m):
    """Also at the border, for broad patterns that nearly repeat their neighbors."""
    rng = torch.Generator().manual_seed(0)
    signs = torch.rand(m, window, window, generator=rng, dtype=torch.float64)
    operator = SensingOperator((signs > 0.1).double() - (signs > 0.9).double(), stride)
    kernel, size = inverse_gram(operator, 0.01), (32, 32)
    truth = torch.randn(1, *size, generator=rng, dtype=torch.float64)
    x, y = torch.zeros_like(truth), operator.forward(truth)
    rests = []
    for _ in range(60):
        rest = y - operator.forward(x)
        rests.append(float(rest.norm()))
        x = x + operator.adjoint(convolve_windows(kernel, rest), size)
    assert max(rests) == rests[0]
    assert x.norm() < truth.norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_inverse_by_products_is_the_inverse(dtype):
    rng = torch.Generator().manual_seed(1)
    a = torch.randn(3, 12, 12, generator=rng, dtype=dtype)
    matrices = a @ a.mH + 0.1 * torch.eye(12, dtype=dtype)
    np.testing.assert_allclose(
        newton_schulz(matrices).numpy(), np.linalg.inv(matrices.numpy()), rtol=1e-6, atol=1e-8
    )


def test_the_gradient_of_the_inverse_is_right():
    rng = torch.Generator().manual_seed(2)
    a = torch.randn(2, 4, 4, generator=rng, dtype=torch.complex128)
    a = (a @ a.mH + torch.eye(4)).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: invert((m + m.mH) / 2), (a,))


def test_many_large_matrices_are_inverted_on_two_threads():
    """torch.linalg.inv never returns from this."""
    program = """
import torch
from tersense.sensing.gram import invert
torch.set_num_threads(2)
x = torch.randn(4, 256, 256, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
matrices = x @ x.mH + 100 * torch.eye(256)
print(float((invert(matrices) @ matrices - torch.eye(256)).abs().max()))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert float(result.stdout) < 1e-4
