"""The operator against its definition, its adjoint, and exactness on integers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from operators import assert_adjoint, geometries, random_phi, sizes
from reference import sense_slowly
from tersense.sensing.exact import sense_exactly
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator


@settings(max_examples=60, deadline=None)
@given(geometries, sizes, st.integers(0, 2**32 - 1))
def test_equals_the_definition(geometry, size, seed):
    window, stride = geometry
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, size, dtype=np.uint8)
    phi = random_phi(rng, 3, window).astype(np.int8)
    operator = SensingOperator(torch.from_numpy(phi).float(), stride)
    expected = sense_slowly(image, phi, stride)
    np.testing.assert_array_equal(
        sense_exactly(torch.from_numpy(image), operator).numpy(), expected
    )
    np.testing.assert_array_equal(
        operator.forward(torch.from_numpy(image).float()).numpy(), expected
    )


@settings(max_examples=60, deadline=None)
@given(geometries, sizes, st.integers(0, 2**32 - 1))
def test_the_adjoint_is_the_adjoint(geometry, size, seed):
    window, stride = geometry
    torch.manual_seed(seed)
    phi = torch.randn(4, window, window, dtype=torch.float64)
    assert_adjoint(SensingOperator(phi, stride), size)


@pytest.mark.parametrize(("window", "stride"), [(32, 32), (32, 16), (32, 8), (32, 2), (30, 7)])
def test_real_sizes_that_are_no_multiple_of_anything(window, stride):
    rng = np.random.default_rng(5)
    image = rng.integers(0, 256, (71, 53), dtype=np.uint8)
    phi = random_phi(rng, 2, window, 0.05).astype(np.int8)
    operator = SensingOperator(torch.from_numpy(phi).float(), stride)
    y = sense_exactly(torch.from_numpy(image), operator)
    assert y.shape == (2, -(-71 // stride), -(-53 // stride))
    np.testing.assert_array_equal(y.numpy(), sense_slowly(image, phi, stride))


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("window", [32, 40])
def test_dense_rows_on_extreme_images(window, value):
    image = torch.full((2 * window, window + 3), value, dtype=torch.uint8)
    phi = torch.ones(2, window, window)
    phi[1] = -1
    y = sense_exactly(image, SensingOperator(phi, window))
    assert y[0, 0, 0] == value * window**2
    assert y[1, 0, 1] == -value * window * 3


def test_windows_too_large_for_single_precision_stay_exact():
    image = torch.full((260, 260), 255, dtype=torch.uint8)
    image[0, 0] = 254
    y = sense_exactly(image, SensingOperator(torch.ones(1, 260, 260), 260))
    assert y.item() == 255 * 260**2 - 1  # above 2²⁴, and odd


def test_strips_make_no_difference(monkeypatch):
    image = torch.randint(0, 256, (2, 70, 45), dtype=torch.uint8)
    operator = SensingOperator(torch.randn(3, 8, 8).sign(), 4)
    whole = sense_exactly(image, operator)
    monkeypatch.setattr("tersense.sensing.exact._PIXELS_AT_ONCE", 3 * 2 * 12 * 64)
    assert torch.equal(sense_exactly(image, operator), whole)


def test_channels_are_sensed_one_by_one():
    x = torch.rand(2, 3, 20, 30)
    operator = SensingOperator(torch.randn(5, 8, 8), 4)
    together = operator.forward(x)
    for n in range(2):
        for c in range(3):
            torch.testing.assert_close(together[n, c], operator.forward(x[n, c]))


@pytest.mark.parametrize("stride", [8, 4])
def test_gradients_reach_the_patterns(stride):
    phi = torch.randn(3, 8, 8, dtype=torch.float64, requires_grad=True)
    x = torch.randn(10, 13, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: SensingOperator(p, stride).forward(x), (phi,))


def test_an_operator_keeps_its_scales_and_has_ones_without():
    phi = torch.zeros(3, 4, 4)
    assert SensingOperator(phi, 4).alpha.tolist() == [1, 1, 1]
    alpha = torch.tensor([1.0, 2.0, 3.0])
    assert SensingOperator(phi, 4, alpha).alpha is alpha


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6).flatmap(lambda w: st.tuples(st.just(w), st.integers(1, w))),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.slices(12),
    st.slices(12),
)
def test_ones_are_those_of_an_image_of_ones(geometry, size, rows, columns):
    torch.manual_seed(0)
    rows, columns = (slice(part.start, part.stop) for part in (rows, columns))
    operator = SensingOperator(torch.randn(2, geometry[0], geometry[0]).sign(), geometry[1])
    whole = operator.forward(torch.ones(size))
    assert torch.equal(operator.sense_ones(size), whole)
    assert torch.equal(operator.sense_ones(size, rows, columns), whole[:, rows, columns])


def test_ones_count_the_real_pixels_of_each_window():
    operator = SensingOperator(torch.ones(1, 4, 4), 4)
    assert operator.sense_ones((6, 5))[0].tolist() == [[16.0, 4.0], [8.0, 2.0]]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), sizes)
def test_every_pixel_belongs_to_one_block_of_one_kind(window, size):
    geometry = Geometry(window, window)
    owners = np.zeros(size, int)
    blocks = np.zeros(geometry.grid(*size), int)
    for places, pixels, shape in geometry.block_kinds(size):
        owners[pixels] += 1
        blocks[places] += 1
        rows, columns = blocks[places].shape
        assert owners[pixels].shape == (rows * shape[0], columns * shape[1])
        assert (shape == (window, window)) or (1 in (rows, columns))
        top, left = (part.start or 0 for part in places)
        assert tuple(part.start or 0 for part in pixels) == (top * window, left * window)
    assert (owners == 1).all()
    assert (blocks == 1).all()


def test_windows_that_overlap_are_no_blocks(refused):
    with refused("windows 8 wide and 4 apart overlap; use stride 8"):
        next(Geometry(8, 4).block_kinds((20, 20)))


def test_windows_of_a_lapped_camera_are_centerd_on_their_cell():
    geometry = Geometry(window=32, stride=16)
    assert geometry.offset == 8
    assert geometry.grid(100, 33) == (7, 3)


@pytest.mark.parametrize(("window", "stride"), [(4, 5), (4, 0)])
def test_impossible_geometry_is_refused(window, stride):
    with pytest.raises(ValueError, match="stride"):
        Geometry(window, stride)
