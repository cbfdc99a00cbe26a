import math
import warnings

import numpy as np
import pytest
from skimage import data as images
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from tersense.errors import TersenseWarning
from tersense.evaluation.metrics import psnr, ssim


def reference_ssim(a, b):
    return structural_similarity(
        a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255,
        channel_axis=2 if a.ndim == 3 else None,
    )  # fmt: skip


@pytest.fixture(params=["camera", "coins", "astronaut", "chelsea"])
def image(request):
    return getattr(images, request.param)()[40:170, 30:213]


@pytest.fixture(params=[2.0, 15.0, 60.0])
def noisy(request, image, rng):
    """A real-valued estimate, below 0 and above 255 in places."""
    return image + rng.normal(0, request.param, image.shape)


def test_psnr_agrees_with_scikit_image(image, noisy):
    expected = peak_signal_noise_ratio(image.astype(float), noisy, data_range=255)
    assert psnr(noisy, image) == pytest.approx(expected, abs=1e-9)


def test_ssim_agrees_with_scikit_image(image, noisy):
    expected = reference_ssim(image.astype(float), noisy)
    assert ssim(noisy, image) == pytest.approx(expected, abs=1e-9)


def test_both_agree_with_scikit_image_on_bytes(image, noisy):
    pixels = noisy.clip(0, 255).astype(np.uint8)
    expected = peak_signal_noise_ratio(image, pixels, data_range=255)
    assert psnr(pixels, image) == pytest.approx(expected, abs=1e-9)
    assert ssim(pixels, image) == pytest.approx(reference_ssim(image, pixels), abs=1e-9)


@pytest.mark.parametrize("depth", [9, 12, 16])
def test_both_agree_with_scikit_image_on_deep_pixels(image, rng, depth):
    peak = 2**depth - 1
    deep = np.rint(image / 255 * peak).astype(np.uint16)
    noisy = np.clip(deep + rng.normal(0, peak / 50, deep.shape), 0, peak).astype(np.uint16)
    expected = peak_signal_noise_ratio(deep, noisy, data_range=peak)
    assert psnr(noisy, deep, peak) == pytest.approx(expected, abs=1e-9)
    expected = structural_similarity(
        deep.astype(float), noisy.astype(float), gaussian_weights=True, sigma=1.5,
        use_sample_covariance=False, data_range=peak, channel_axis=2 if deep.ndim == 3 else None,
    )  # fmt: skip
    assert ssim(noisy, deep, peak) == pytest.approx(expected, abs=1e-9)
    with pytest.warns(TersenseWarning, match="pass peak=2"):
        psnr(noisy, deep)


def test_single_precision_estimates_are_measured_in_double(image, noisy):
    single = noisy.astype(np.float32)
    assert psnr(single, image) == psnr(single.astype(np.float64), image)
    assert ssim(single, image) == ssim(single.astype(np.float64), image)


def test_one_gray_level_of_error_everywhere_is_48_13_db():
    flat = np.full((20, 30), 100, np.uint8)
    assert psnr(flat + np.uint8(1), flat) == pytest.approx(20 * math.log10(255))


def test_differences_of_bytes_do_not_wrap():
    black, white = np.zeros((12, 12), np.uint8), np.full((12, 12), 255, np.uint8)
    assert psnr(black, white) == pytest.approx(0.0)
    assert psnr(white, black) == pytest.approx(0.0)


def test_the_peak_scales_with_the_pixels(image, noisy):
    assert psnr(noisy / 255, image / 255, peak=1) == pytest.approx(psnr(noisy, image))
    assert ssim(noisy / 255, image / 255, peak=1) == pytest.approx(ssim(noisy, image))


def test_identical_images_have_infinite_psnr_and_ssim_one(image):
    assert psnr(image, image) == math.inf
    assert ssim(image, image) == pytest.approx(1.0, abs=1e-12)


def test_flat_images_have_an_ssim():
    flat = np.full((16, 16), 80, np.uint8)
    assert ssim(flat, flat) == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(1, 1), (10, 10), (10, 200), (200, 10, 3)])
def test_images_smaller_than_the_window_have_no_ssim_but_a_psnr(shape):
    image = np.zeros(shape, np.uint8)
    assert math.isnan(ssim(image + np.uint8(1), image))
    assert math.isfinite(psnr(image + np.uint8(1), image))


def test_the_smallest_image_with_an_ssim_is_eleven_by_eleven(rng):
    a, b = rng.integers(0, 256, (2, 11, 11), dtype=np.uint8)
    assert ssim(a, b) == pytest.approx(reference_ssim(a, b), abs=1e-9)


@pytest.mark.parametrize("metric", [psnr, ssim])
@pytest.mark.parametrize("other", [(20, 30), (30, 20, 3), (30, 1), (1, 1)])
def test_images_of_different_shapes_are_refused(metric, other):
    with pytest.raises(ValueError, match="shape") as caught:
        metric(np.zeros((30, 20)), np.zeros(other))
    assert str((30, 20)) in str(caught.value)
    assert str(other) in str(caught.value)


def test_pixels_from_0_to_1_with_a_peak_of_255_are_noticed(rng):
    a, b = rng.random((2, 16, 16))
    for metric in (psnr, ssim):
        with pytest.warns(TersenseWarning, match="peak=1"):
            metric(a, b)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metric(a, b, peak=1.0)
            metric(a * 255, b * 255)
            metric(np.zeros((16, 16)), np.zeros((16, 16)))
