"""Pixels of 9 to 16 bits through the user's object: exact sums, images of their own depth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data

import tersense
from conftest import build_small_imager
from reference import sense_by_windows
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr, ssim
from tersense.evaluation.protocols import evaluate_folder, reconstruct_overlapping
from tersense.io.images import to_gray, write_image
from tersense.measurements.readout import Readout
from tersense.models import imager as module
from tersense.models.info import describe, describe_measurements

SMALL = build_small_imager()


@pytest.fixture(scope="module")
def imager():
    return tersense.load("paper-r25")


def deepen(image, depth):
    """Spread 8-bit pixels over a deeper range."""
    return np.rint(image.astype(float) * (2**depth - 1) / 255).astype(np.uint16)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(8, 16), st.integers(1, 24), st.integers(1, 24), st.integers(0, 2**32),
    st.sampled_from(["random", "black", "white"]), st.booleans(),
)  # fmt: skip
def test_every_depth_is_sensed_exactly(depth, height, width, seed, content, color):
    camera, white = SMALL, 2**depth - 1
    shape = (height, width, 3) if color else (height, width)
    image = np.random.default_rng(seed).integers(0, white + 1, shape).astype(np.uint16)
    image[:] = {"random": image, "black": 0, "white": white}[content]
    y = camera.sense(image, depth=depth)
    planes = np.moveaxis(image, 2, 0) if color else image[None]
    expected = [sense_by_windows(camera.phi, 8, plane) for plane in planes]
    np.testing.assert_array_equal(y.values, expected if color else expected[0])
    assert y.header.depth == depth
    again = camera.reconstruct(y)
    assert again.shape == shape
    assert again.dtype == (np.uint8 if depth == 8 else np.uint16)
    assert again.max() <= white


def test_eight_bits_in_uint16_are_eight_bits(imager):
    image = data.camera()[:40, :50]
    one, other = imager.sense(image), imager.sense(image.astype(np.uint16), depth=8)
    assert one.to_bytes() == other.to_bytes()
    assert one.to_bytes() == imager.sense(image, depth=8).to_bytes()


@pytest.mark.parametrize(
    ("readout", "deep"),
    [
        (Readout(), Readout()),
        (Readout(6, 400.0), Readout(6, 400.0 * 257)),
    ],
    ids=["exact", "6 bits"],
)
@pytest.mark.parametrize("color", [False, True])
def test_the_scale_of_pixels_changes_nothing_but_their_scale(imager, color, readout, deep):
    """A pixel of 16 bits is 257 times one of 8 bits, and so are the readout's steps."""
    image = data.astronaut()[:70, 100:190] if color else data.camera()[:70, 100:190]
    linear = tersense.Imager.untrained(imager.patterns)  # which minds what it is told of the error
    for camera in (imager, linear):
        shallow = camera.estimate(camera.sense(image, readout=readout))
        y = camera.sense(image.astype(np.uint16) * 257, readout=deep, depth=16)
        np.testing.assert_allclose(camera.estimate(y) / 257, shallow, atol=2e-3)


def test_deep_images_come_back_as_well_as_others(imager):
    image = data.camera()[100:228, 100:228]
    deep = deepen(image, 12)
    again = imager.reconstruct(imager.sense(deep, depth=12))
    usual = psnr(imager.reconstruct(imager.sense(image)), image)
    assert psnr(again, deep, 4095) == pytest.approx(usual, abs=0.05)


def test_tiles_agree_with_the_whole(imager, monkeypatch):
    deep = deepen(data.camera()[:200, :170], 14)
    y = imager.sense(deep, depth=14)
    whole = imager.reconstruct(y)
    monkeypatch.setattr(module, "TILE_PIXELS", 64 * 64)
    assert np.abs(imager.reconstruct(y).astype(int) - whole).max() <= 1


def test_the_readout_covers_the_deep_range(imager):
    deep = np.repeat([[0], [4095]], 32, axis=0).repeat(32, axis=1).astype(np.uint16)
    exact, few = imager.sense(deep, depth=12), imager.sense(deep, bits=9, depth=12)
    steps = few.header.readout.unit
    spread = np.ptp(exact.values, axis=(1, 2), keepdims=True)
    np.testing.assert_array_equal(steps, np.maximum(1, -(-spread // 510)))
    assert (np.abs(few.header.readout.values(few.values) - exact.values) <= steps / 2).all()
    noisy = imager.sense(deep, noise=300.0, seed=3, depth=12)
    assert (noisy.values - exact.values).std() == pytest.approx(300, rel=0.15)


def test_saved_measurements_give_the_same_image(imager, tmp_path):
    y = imager.sense(deepen(data.astronaut()[:40, :50], 10), depth=10)
    y.save(tmp_path / "y.tsm")
    again = tersense.Measurements.load(tmp_path / "y.tsm")
    np.testing.assert_array_equal(imager.reconstruct(again), imager.reconstruct(y))


WRONG = {
    "no depth": (np.zeros((8, 8), np.uint16), None, TypeError, "uint16 pixels must have a depth"),
    "real": (np.zeros((8, 8)), 12, TypeError, "12 bits must be uint16, got float64"),
    "signed": (np.full((8, 8), -1, np.int16), 12, TypeError, "must be uint16, got int16"),
    "bytes": (np.zeros((8, 8), np.uint8), 12, TypeError, "must be uint16, got uint8"),
    "too much": (np.full((8, 8), 4096, np.uint16), 12, TersenseError, "at least 13 bits"),
    "too shallow": (np.zeros((8, 8), np.uint16), 7, TersenseError, "from 8 to 16"),
    "too deep": (np.zeros((8, 8), np.uint16), 17, TersenseError, "from 8 to 16"),
    "yes": (np.zeros((8, 8), np.uint16), True, TersenseError, "from 8 to 16"),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_pixels_are_refused_in_one_line(small_imager, what):
    image, depth, kind, reason = WRONG[what]
    with pytest.raises(kind, match=reason) as caught:
        small_imager.sense(image, depth=depth)
    assert len(str(caught.value).splitlines()) == 1


def test_sums_beyond_32_bits_are_refused():
    camera = tersense.Imager.untrained(tersense.Patterns(np.ones((1, 182, 182), np.int8), 182))
    with pytest.raises(TersenseError, match="depth must be at most 15"):
        camera.sense(np.zeros((182, 182), np.uint16), depth=16)


def test_info_says_the_depth(small_imager, tmp_path):
    y = small_imager.sense(np.zeros((9, 20), np.uint16), depth=12)
    y.save(tmp_path / "y.tsm", small_imager.patterns)
    facts = describe_measurements(tmp_path / "y.tsm")
    assert facts["image"] == "20×9, gray, 12 bits per pixel"
    wide = small_imager.patterns.accumulator_bits_at(16)
    assert describe(small_imager)["for pixels of 16 bits"] == f"{wide} bits"


# Evaluation


@pytest.mark.parametrize("color", [False, True])
def test_evaluation_has_the_peak_of_the_depth(small_imager, tmp_path, color):
    deep = deepen(data.coffee()[:64, :48], 12)
    write_image(tmp_path / "deep.tif", deep, 12)
    result = evaluate_folder(small_imager, tmp_path, color=color, depth=12)
    original = deep if color else to_gray(deep)
    estimate = np.clip(small_imager.estimate(small_imager.sense(original, depth=12)), 0, 4095)
    assert result["depth"] == 12
    assert result["mean"]["psnr"] == pytest.approx(psnr(estimate, original, 4095))
    assert result["mean"]["ssim"] == pytest.approx(ssim(estimate, original, 4095))


def test_the_papers_protocol_and_batches_know_the_depth(small_imager):
    image = data.camera()[:24, :24]
    deep = image.astype(np.uint16) * 257
    for shallow, other in (
        (reconstruct_overlapping(small_imager, image, 4),
         reconstruct_overlapping(small_imager, deep, 4, 16)),
        (small_imager.camera.capture(image), small_imager.camera.capture(deep, depth=16)),
    ):  # fmt: skip
        np.testing.assert_allclose(other[0] / 257, shallow[0], atol=2e-3)
        assert other[1] == shallow[1]


def test_patches_have_eight_bits(small_imager, tmp_path):
    import h5py

    with h5py.File(tmp_path / "p.h5", "w") as file:
        file["patches"] = np.zeros((2, 64), np.uint8)
    with pytest.raises(TersenseError, match="patches have 8 bits per pixel, not 12"):
        evaluate_folder(small_imager, tmp_path / "p.h5", depth=12)
