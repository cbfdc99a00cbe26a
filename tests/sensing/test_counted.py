"""Sensing with counts per window: the same integers, of which some were never added up."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import sense_by_windows
from tersense.sensing import counted
from tersense.sensing.counted import CountedSensor
from tersense.sensing.exact import ExactSensor, sense_by_products, sense_exactly
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns, random_patterns


@pytest.fixture(params=[True, False], ids=["grouped", "together"])
def way(request, monkeypatch):
    """Both ways to sense, whichever would be faster."""
    monkeypatch.setattr(CountedSensor, "_pays", lambda *_: request.param)


def masked(y, counts):
    return np.where(np.arange(len(y))[:, None, None] < counts, y, 0)


def draw(rng, m, window, stride, height, width, dtype=np.uint8, density=0.3):
    phi = random_patterns(m, window, density, seed=int(rng.integers(1000))).phi
    image = rng.integers(0, np.iinfo(dtype).max + 1, (height, width), dtype=dtype)
    grid = -(-height // stride), -(-width // stride)
    return phi, image, rng.integers(0, m + 1, grid)


@given(st.data())
@settings(max_examples=40)
def test_any_geometry_gives_what_full_sensing_gives(data):
    window = data.draw(st.integers(1, 24))
    stride = data.draw(st.integers(max(1, window // 3), window))
    sides = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 120))
    dtype = data.draw(st.sampled_from([np.uint8, np.uint16]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    phi, image, counts = draw(rng, data.draw(st.integers(1, 9)), window, stride, *sides, dtype)
    expected = masked(sense_by_windows(phi, stride, image), counts)
    sensor = CountedSensor(phi, stride)
    for pays in (True, False):
        sensor._pays = lambda _, pays=pays: pays
        np.testing.assert_array_equal(sensor(image, counts), expected)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("stride", [16, 32])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_many_strips_and_threads_agree(rng, stride, dtype):
    phi, image, counts = draw(rng, 12, 32, stride, 1100, 2000, dtype, density=0.05)
    sensor, full = CountedSensor(phi, stride), counted.AddOnlySensor(phi, stride)(image)
    one = sensor(image, counts)
    np.testing.assert_array_equal(one, masked(full, counts))
    assert one.dtype == full.dtype
    for threads in (2, 3):
        np.testing.assert_array_equal(sensor(image, counts, threads), one)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [0, 1, 7, 8])
def test_one_count_for_all_is_the_camera_of_that_many_rows(rng, count):
    phi, image, counts = draw(rng, 8, 16, 8, 90, 70)
    y = CountedSensor(phi, 8)(image, np.full_like(counts, count))
    np.testing.assert_array_equal(y[:count], sense_by_windows(phi, 8, image)[:count])
    assert not y[count:].any()


def test_rows_that_nobody_asks_for_are_not_added_up(rng, monkeypatch):
    """Windows of like counts are sensed together: few of their measurements are in vain."""
    phi, image, counts = draw(rng, 100, 16, 8, 400, 400)
    counts = (100 * (counts / 100) ** 4).astype(int)
    added = []

    def record(begin, end, image, layout, offsets, chunks, bounds, first, out):
        assert len(bounds) == len(out) + 1
        added.append(out.size)

    monkeypatch.setattr(CountedSensor, "_pays", lambda *_: True)
    monkeypatch.setattr(counted, "_sense", record)
    monkeypatch.setattr(counted, "_sense_strips", counted._sense_strips.py_func)
    monkeypatch.setattr(counted, "compiles", lambda *_: True)  # of Python, nothing is compiled
    CountedSensor(phi, 8)(image, counts)
    assert counts.sum() <= sum(added) < 1.5 * counts.sum() < 0.4 * 100 * counts.size


def test_windows_that_are_alike_are_not_copied(rng):
    phi, _, counts = draw(rng, 100, 16, 8, 400, 400)
    assert not CountedSensor(phi, 8)._pays(np.full(counts.size, 100))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_products_give_the_same_integers(rng, dtype):
    phi, image, counts = draw(rng, 9, 12, 8, 61, 47, dtype)
    operator = SensingOperator(torch.from_numpy(phi.astype(np.float32)), 8)
    patterns, planes = Patterns(phi, 8), np.stack([image, image[::-1], image[:, ::-1]])
    own = np.stack([counts, counts // 2, counts.max() - counts]).astype(np.int32)
    for wanted in (own, own[0]):
        y = ExactSensor(patterns)(planes, operator, counts=wanted)
        full = ExactSensor(patterns)(planes, operator)
        assert y.dtype == full.dtype
        for k, plane in enumerate(planes):
            of_plane = wanted[k] if wanted.ndim == 3 else wanted
            np.testing.assert_array_equal(y[k], masked(full[k], of_plane))
            np.testing.assert_array_equal(sense_by_products(plane, operator, of_plane), y[k])


def test_batches_take_counts_of_their_own(rng):
    phi, image, counts = draw(rng, 9, 12, 8, 61, 47)
    operator = SensingOperator(torch.from_numpy(phi.astype(np.float32)), 8)
    batch = torch.from_numpy(np.stack([image, image[::-1]]))
    wanted = torch.from_numpy(np.stack([counts, counts // 3]))
    y = sense_exactly(batch, operator, wanted)
    full = sense_exactly(batch, operator)
    for k in range(2):
        np.testing.assert_array_equal(y[k], masked(full[k].numpy(), wanted[k].numpy()))
