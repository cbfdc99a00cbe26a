import itertools
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processes import call_in_fork
from reference import sense_by_windows
from tersense.sensing.additions import AddOnlySensor


def ternary(rng, m, B, density):
    """Make random patterns; some are empty, some have one sign only."""
    phi = rng.choice([-1, 1], (m, B, B)) * (rng.random((m, B, B)) < density)
    for row, kind in enumerate(rng.integers(0, 8, m)):
        if kind == 0:
            phi[row] = 0
        elif kind < 3:
            phi[row] = abs(phi[row]) * (1 if kind == 1 else -1)
    return phi.astype(np.int8)


def rows_of(rng, m, B, K):
    """Make patterns of exactly K entries with random signs."""
    phi = np.zeros((m, B * B), np.int8)
    for row in phi:
        row[rng.choice(B * B, K, replace=False)] = rng.choice([-1, 1], K)
    return phi.reshape(m, B, B)


def random_image(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def assert_exact(phi, stride, image, **options):
    y = AddOnlySensor(phi, stride)(image, **options)
    expected = sense_by_windows(phi, stride, image)
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y, expected)


@st.composite
def cases(draw):
    B = draw(st.integers(1, 40))
    stride = draw(st.integers(max(1, B // 5), B))
    H, W = draw(st.integers(1, 150)), draw(st.integers(1, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    phi = ternary(rng, draw(st.integers(1, 5)), B, draw(st.sampled_from([0, 0.05, 0.3, 0.9, 1])))
    content = draw(st.sampled_from(["random", "zero", "white"]))
    fill = {"random": random_image(rng, H, W), "zero": 0, "white": 255}[content]
    image = np.empty((H, W), np.uint8)
    image[:] = fill
    return phi, stride, image


@given(cases())
@settings(max_examples=60, deadline=None)
def test_any_geometry_is_exact(case):
    assert_exact(*case)


@pytest.mark.parametrize(("B", "stride"), [(1, 1), (2, 1), (5, 1), (40, 1), (40, 3)])
def test_small_strides_are_exact(B, stride):
    rng = np.random.default_rng(B)
    assert_exact(ternary(rng, 3, B, 0.4), stride, random_image(rng, 23, 47))


@pytest.mark.parametrize("stride", [16, 24, 32])
@pytest.mark.parametrize("shape", [(100, 1030), (1030, 100), (192, 1024), (1, 300), (300, 1)])
def test_long_images_are_exact(stride, shape):
    rng = np.random.default_rng(stride)
    assert_exact(rows_of(rng, 4, 32, 51), stride, random_image(rng, *shape))


@pytest.mark.parametrize("K", [51, 400])  # int16 and int32
@pytest.mark.parametrize("windows", [63, 64, 65, 127, 128, 129, 200, 256])
def test_long_rows_of_lapped_windows_are_exact(K, windows):
    rng = np.random.default_rng(windows)
    assert_exact(rows_of(rng, 3, 32, K), 16, random_image(rng, 16 * 9 - 3, 16 * windows - 5))


@given(st.integers(0, 2**32), st.integers(1, 20), st.booleans(), st.sampled_from([0.1, 0.5, 1]))
@settings(max_examples=20, deadline=None)
def test_worst_contents_are_exact(seed, B, negate, density):
    rng = np.random.default_rng(seed)
    phi = ternary(rng, 4, B, density)
    worst = (phi[0] > 0) ^ negate
    image = np.tile(np.where(worst, 255, 0).astype(np.uint8), (3, 5))
    assert_exact(phi, B, image)


@pytest.mark.parametrize(("K", "dtype"), [(51, np.int16), (307, np.int32), (1024, np.int32)])
def test_full_size_matrices_are_exact(K, dtype):
    rng = np.random.default_rng(K)
    phi = rows_of(rng, 256, 32, K)
    sensor = AddOnlySensor(phi, 32)
    image = random_image(rng, 256, 320)
    blocks = image.reshape(8, 32, 10, 32).transpose(1, 3, 0, 2).reshape(1024, 80)
    expected = phi.reshape(256, 1024).astype(np.int64) @ blocks.astype(np.int64)
    y = sensor(image)
    assert sensor.dtype == y.dtype == dtype
    np.testing.assert_array_equal(y.reshape(256, 80), expected)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("count", "dtype"), [(128, np.int16), (129, np.int32)])
def test_dtype_widens_only_beyond_128_of_a_sign(sign, count, dtype):
    phi = np.zeros((3, 17, 17), np.int8)
    phi[1].flat[:128] = -sign  # 256 entries in all still fit
    phi[1].flat[128 : 128 + count] = sign
    sensor = AddOnlySensor(phi, 17)
    white = np.where(phi[1] == sign, 255, 0).astype(np.uint8)
    y = sensor(white)
    assert sensor.dtype == y.dtype == dtype
    assert y[:, 0, 0].tolist() == [0, sign * 255 * count, 0]
    assert_exact(phi, 17, white)
    assert_exact(phi, 17, 255 - white)


@pytest.mark.parametrize(("B", "stride"), [(32, 32), (32, 16), (33, 20)])
def test_threads_agree(B, stride):
    rng = np.random.default_rng(stride)
    sensor = AddOnlySensor(rows_of(rng, 6, B, 51), stride)
    image = random_image(rng, 1100, 1200)
    one = sensor(image)
    for threads in (2, 3):
        np.testing.assert_array_equal(sensor(image, threads=threads), one)


@given(cases(), st.data())
@settings(max_examples=25, deadline=None)
def test_strips_concatenate_to_the_whole(case, data):
    phi, stride, image = case
    sensor = AddOnlySensor(phi, stride)
    h = -(-len(image) // stride)
    cuts = sorted(data.draw(st.lists(st.integers(0, h), max_size=3)))
    ends = [0, *cuts, h]
    strips = [sensor(image, rows=(a, b)) for a, b in itertools.pairwise(ends)]
    np.testing.assert_array_equal(np.concatenate(strips, axis=1), sensor(image))


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[::-1, ::2], lambda x: x[3:, 5:], np.asfortranarray],
    ids=["transposed", "stepped", "cropped", "fortran"],
)
def test_any_memory_order_and_read_only_images(view):
    rng = np.random.default_rng(4)
    phi, image = ternary(rng, 3, 8, 0.3), random_image(rng, 60, 70)
    image.flags.writeable = False
    before = image.copy()
    assert_exact(phi, 5, view(image))
    np.testing.assert_array_equal(image, before)


def test_one_sensor_serves_images_of_all_sizes():
    rng = np.random.default_rng(5)
    phi = ternary(rng, 4, 12, 0.2)
    sensor = AddOnlySensor(phi, 7)
    for shape in [(40, 50), (50, 40), (40, 50), (13, 90)]:
        image = random_image(rng, *shape)
        np.testing.assert_array_equal(sensor(image), sense_by_windows(phi, 7, image))


def test_a_sensor_survives_pickling():
    rng = np.random.default_rng(6)
    sensor, image = AddOnlySensor(ternary(rng, 4, 12, 0.2), 7), random_image(rng, 30, 40)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(sensor))(image), sensor(image))


@pytest.mark.skipif(sys.platform != "linux", reason="fork is safe to try on Linux only")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_work_after_a_fork():
    rng = np.random.default_rng(7)
    sensor, image = AddOnlySensor(ternary(rng, 2, 8, 0.2), 8), random_image(rng, 1024, 1024)
    expected = sensor(image, threads=2)
    assert call_in_fork(lambda: int(sensor(image, threads=2).sum())) == expected.sum()


@pytest.mark.parametrize("image", [np.zeros((4, 4), np.int16), np.zeros((4, 4, 3), np.uint8)])
def test_other_images_are_refused(image):
    with pytest.raises(TypeError, match="2-D uint8 or uint16"):
        AddOnlySensor(np.ones((1, 2, 2), np.int8), 2)(image)
