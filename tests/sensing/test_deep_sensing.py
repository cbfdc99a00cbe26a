"""Pixels of 9 to 16 bits: the same integers as sums written out, whatever computes them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import sense_by_windows
from tersense.errors import TersenseError
from tersense.sensing.additions import AddOnlySensor
from tersense.sensing.exact import ExactSensor, sense_by_products
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns

DEPTHS = range(8, 17)


def operator_of(phi, stride):
    return SensingOperator(torch.from_numpy(phi.astype(np.float32)), stride)


def assert_exact(phi, stride, image):
    expected = sense_by_windows(phi, stride, image)
    np.testing.assert_array_equal(AddOnlySensor(phi, stride)(image), expected)
    np.testing.assert_array_equal(sense_by_products(image, operator_of(phi, stride)), expected)


@st.composite
def cases(draw):
    B = draw(st.integers(1, 34))
    stride = draw(st.integers(max(1, B // 4), B))
    H, W, white = (
        draw(st.integers(1, 90)),
        draw(st.integers(1, 90)),
        2 ** draw(st.integers(8, 16)) - 1,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    phi = rng.integers(-1, 2, (draw(st.integers(1, 4)), B, B), dtype=np.int8)
    phi *= rng.random(phi.shape) < draw(st.sampled_from([0.05, 0.5, 1]))
    content = draw(st.sampled_from(["random", "black", "white", "extremes"]))
    image = rng.integers(0, white + 1, (H, W)).astype(np.uint16)
    image[:] = {"random": image, "black": 0, "white": white, "extremes": image % 2 * white}[content]
    return phi, stride, image


@given(cases())
@settings(max_examples=60, deadline=None)
def test_any_geometry_and_depth_is_exact(case):
    assert_exact(*case)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_whitest_image_and_the_fullest_pattern_are_exact(depth, sign):
    white = 2**depth - 1
    phi = np.stack([np.full((32, 32), sign), np.eye(32) * sign, np.zeros((32, 32))]).astype(np.int8)
    for value in (white, 0, 2 ** (depth - 1)):
        image = np.full((70, 40), value, np.uint16)
        assert_exact(phi, 32, image)
        assert_exact(phi, 16, image)
    y = AddOnlySensor(phi, 32)(np.full((32, 32), white, np.uint16))
    assert y.ravel().tolist() == [sign * 1024 * white, sign * 32 * white, 0]


@pytest.mark.parametrize(("B", "stride"), [(32, 32), (64, 32), (33, 20)])
def test_strips_and_threads_change_nothing(monkeypatch, B, stride):
    rng = np.random.default_rng(B)
    phi = rng.integers(-1, 2, (3, B, B), dtype=np.int8)
    image = rng.integers(0, 2**16, (1100, 1930)).astype(np.uint16)
    sensor = AddOnlySensor(phi, stride)
    expected = 256 * sensor((image >> 8).astype(np.uint8)).astype(np.int64)
    expected += sensor((image & 255).astype(np.uint8))
    for threads in (1, 3):
        np.testing.assert_array_equal(sensor(image, threads=threads), expected)
    np.testing.assert_array_equal(sensor(image, rows=(3, 17)), expected[:, 3:17])


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[::-1, ::2], np.asfortranarray])
def test_any_memory_order_and_read_only_images(view):
    rng = np.random.default_rng(4)
    image = rng.integers(0, 2**16, (60, 70)).astype(np.uint16)
    image.flags.writeable = False
    assert_exact(rng.integers(-1, 2, (3, 8, 8), dtype=np.int8), 5, view(image))


def test_sums_beyond_32_bits_are_widened_below_and_refused_above():
    phi = np.ones((1, 182, 182), np.int8)  # 33,124 times 65,535 is more than 2^31
    patterns, white = Patterns(phi, 182), np.full((182, 182), 65535, np.uint16)
    y = AddOnlySensor(phi, 182)(white)
    assert y.dtype == np.int64
    assert y.ravel().tolist() == [182**2 * 65535]
    with pytest.raises(TersenseError, match=r"depth must be at most 15 bits per pixel .*, got 16:"):
        ExactSensor(patterns)(white[None], operator_of(phi, 182), depth=16)
    y = ExactSensor(patterns)(white[None] >> 1, operator_of(phi, 182), depth=15)
    assert y.dtype == np.int32
    assert y.ravel().tolist() == [182**2 * 32767]


def test_the_largest_sums_that_fit_are_taken():
    phi = np.zeros((2, 257, 257), np.int8)
    phi[0].flat[: 2**15] = 1
    phi[1].flat[: 2**15] = -1
    patterns, white = Patterns(phi, 257), np.full((257, 257), 65535, np.uint16)
    assert patterns.accumulator_bits_at(16) == 32
    for y in (ExactSensor(patterns)(white[None], operator_of(phi, 257), depth=16)[0],
              sense_by_products(white, operator_of(phi, 257))):  # fmt: skip
        assert y.dtype == np.int32
        assert y.ravel().tolist() == [2**15 * 65535, -(2**15) * 65535]
