"""The models that come with the package keep what is promised of them."""

import numpy as np
import pytest
from skimage import data

import tersense
from reference import sense_by_windows
from tersense.evaluation.metrics import psnr
from tersense.io.images import to_gray
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.zoo import WEIGHTS, names

# PSNR of the shipped file on 256×256 pixels of images of scikit-image.
GOLDEN = {
    "paper-r25": {"camera": 30.57, "astronaut": 29.48, "coffee": 31.71, "chelsea": 31.30},
    "block-r25": {"camera": 38.03, "astronaut": 35.99, "coffee": 38.49, "chelsea": 33.83},
    "lapped": {"camera": 45.38, "chelsea": 38.82},
    "large": {"camera": 45.53, "chelsea": 38.93},
    "flex": {"camera": 43.66, "astronaut": 40.57, "coffee": 43.00, "chelsea": 38.08},
    "fast": {"camera": 43.29, "astronaut": 40.31, "coffee": 42.75, "chelsea": 38.02},
}


@pytest.mark.parametrize("name", names())
def test_patterns_are_ternary_with_the_promised_non_zeros(name):
    phi = tersense.load(name).phi
    assert set(np.unique(phi)) == {-1, 0, 1}
    counts = np.count_nonzero(phi, axis=(1, 2))
    assert (counts == int(0.05 * phi[0].size)).all()


def test_the_papers_camera():
    imager = tersense.load("paper-r25")
    assert imager.phi.shape == (256, 32, 32)
    assert imager.patterns.rate == 0.25
    assert (np.count_nonzero(imager.phi, axis=(1, 2)) == 51).all()


@pytest.mark.parametrize("name", names())
def test_sensing_equals_the_integer_product(name):
    imager = tersense.load(name)
    image = data.camera()[30:171, 200:301]
    y = imager.sense(image)
    np.testing.assert_array_equal(
        y.values, sense_by_windows(imager.phi, imager.patterns.stride, image)
    )


@pytest.mark.parametrize("name", names())
def test_images_come_back_as_well_as_they_did(name):
    imager = tersense.load(name)
    for image, expected in GOLDEN[name].items():
        gray = to_gray(getattr(data, image)())[20:276, 100:356]
        estimate = imager.estimate(imager.sense(gray)).clip(0, 255)
        assert psnr(estimate, gray) == pytest.approx(expected, abs=0.02), image


def test_flex_is_told_of_noise():
    gray = data.camera()[20:276, 100:356]
    imager = tersense.load("flex").at_rate(0.25)
    estimate = imager.estimate(imager.sense(gray, noise=150)).clip(0, 255)
    assert psnr(estimate, gray) == pytest.approx(31.13, abs=0.03)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("uniform", 32.17), ("open", 34.66), ("encoder", 35.33), ("closed", 35.58)],
)
def test_flex_measures_where_it_pays(mode, expected):
    gray = data.camera()[20:276, 100:356]
    found = AdaptiveCamera(tersense.load("flex"), 0.1, mode).capture(gray)
    assert found.measurements == 102 * 64
    assert psnr(found.estimate.clip(0, 255), gray) == pytest.approx(expected, abs=0.1)


def test_files_are_small_enough_to_ship():
    sizes = {path.stem: path.stat().st_size for path in WEIGHTS.glob("*.safetensors")}
    assert all(
        size <= 8 * 2**20 for name, size in sizes.items() if name not in ("large", "paper-r25")
    )
    assert sum(sizes.values()) <= 40 * 2**20
