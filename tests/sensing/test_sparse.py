"""The operator without its zeros: the numbers of the definition, and gradients as ever."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from skimage import data

import tersense
from operators import assert_adjoint, geometries, random_phi, sizes
from reference import sense_slowly
from tersense.sensing.operator import SensingOperator, SparseOperator, fastest_operator


@settings(max_examples=60, deadline=None)
@given(geometries, sizes, st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 2**32 - 1))
@example((6, 1), (1, 2), 0.5, 0)  # cells that no window of so small an image reaches
def test_equals_the_definition(geometry, size, density, seed):
    window, stride = geometry
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (2, *size), dtype=np.uint8)
    phi = random_phi(rng, 3, window, density).astype(np.int8)
    operator = SparseOperator(torch.from_numpy(phi).float(), stride)
    with torch.inference_mode():
        y = operator.forward(torch.from_numpy(images).float())
    expected = [sense_slowly(image, phi, stride) for image in images]
    np.testing.assert_array_equal(y.numpy(), expected)


@settings(max_examples=60, deadline=None)
@given(geometries, sizes, st.integers(0, 2**32 - 1))
@example((6, 1), (1, 2), 0)
def test_the_adjoint_is_the_adjoint(geometry, size, seed):
    window, stride = geometry
    torch.manual_seed(seed)
    phi = torch.randn(4, window, window, dtype=torch.float64)
    with torch.inference_mode():
        assert_adjoint(SparseOperator(phi, stride), size)


@pytest.mark.parametrize("stride", [8, 4])
def test_gradients_reach_the_image(stride):
    operator = SparseOperator(torch.randn(3, 8, 8, dtype=torch.float64), stride)
    x = torch.randn(10, 13, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(operator.forward, (x,))


@pytest.mark.parametrize(
    ("patterns", "stride", "density", "kind"),
    [
        (40, 32, 0.05, SparseOperator),
        (40, 16, 0.05, SparseOperator),
        (40, 32, 0.5, SensingOperator),
        (40, 8, 0.05, SensingOperator),
        (10, 32, 0.05, SensingOperator),
    ],
)
def test_zeros_are_left_out_where_it_pays(patterns, stride, density, kind):
    phi = torch.from_numpy(random_phi(np.random.default_rng(0), patterns, 32, density)).float()
    assert type(fastest_operator(phi, stride, torch.ones(patterns))) is kind


def test_a_camera_reconstructs_by_it_where_torch_can(monkeypatch):
    image, products = data.camera()[:64, :96], []
    correlate = SparseOperator._correlate
    monkeypatch.setattr(
        SparseOperator,
        "_correlate",
        lambda self, cells: (
            products.append(torch.is_inference_mode_enabled()) or correlate(self, cells)
        ),
    )
    camera = tersense.load("lapped")
    y = camera.sense(image)
    estimate = camera.estimate(y)
    assert products.count(True) >= 5
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    dense = tersense.load("lapped")
    assert type(dense.operator) is SensingOperator
    np.testing.assert_allclose(dense.estimate(y), estimate, atol=0.01)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda camera: pickle.loads(pickle.dumps(camera))]
)
def test_a_camera_can_be_copied_and_sent_to_another_process(copied):
    camera = tersense.load("lapped")
    y = camera.sense(data.camera()[:64, :64])
    expected = camera.estimate(y)
    again = copied(camera)
    assert type(again.operator) is SparseOperator
    np.testing.assert_array_equal(again.sense(data.camera()[:64, :64]).values, y.values)
    np.testing.assert_array_equal(again.estimate(y), expected)
