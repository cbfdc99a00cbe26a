"""The operator without its zeros: the numbers of the definition, and gradients as ever."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tersense
from reference import sense_slowly
from tersense.sensing import SensingOperator
from tersense.sparse import SparseOperator, fastest_operator
from test_sensing import geometries, random_phi, sizes


@settings(max_examples=60, deadline=None)
@given(geometries, sizes, st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 2**32 - 1))
def test_equals_the_definition(geometry, size, density, seed):
    window, stride = geometry
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (2, *size), dtype=np.uint8)
    phi = random_phi(rng, 3, window, density).astype(np.int8)
    operator = SparseOperator(torch.from_numpy(phi).float(), stride)
    with torch.inference_mode():
        y = operator.forward(torch.from_numpy(pictures).float())
    expected = [sense_slowly(picture, phi, stride) for picture in pictures]
    np.testing.assert_array_equal(y.numpy(), expected)


@settings(max_examples=60, deadline=None)
@given(geometries, sizes, st.integers(0, 2**32 - 1))
def test_the_adjoint_is_the_adjoint(geometry, size, seed):
    window, stride = geometry
    torch.manual_seed(seed)
    operator = SparseOperator(torch.randn(4, window, window, dtype=torch.float64), stride)
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    with torch.inference_mode():
        y = operator.forward(x)
        z = torch.randn_like(y)
        back = operator.adjoint(z, size)
    assert back.shape == x.shape
    torch.testing.assert_close((y * z).sum(), (x * back).sum())


@pytest.mark.parametrize("stride", [8, 4])
def test_gradients_reach_the_picture(stride):
    operator = SparseOperator(torch.randn(3, 8, 8, dtype=torch.float64), stride)
    x = torch.randn(10, 13, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(operator.forward, (x,))


def test_few_entries_are_taken_one_by_one_and_many_as_a_matrix():
    assert type(tersense.load("block-r10").operator) is SparseOperator
    phi = torch.from_numpy(random_phi(np.random.default_rng(0), 4, 32, density=0.5)).float()
    assert type(fastest_operator(phi, 32, torch.ones(4))) is SensingOperator
