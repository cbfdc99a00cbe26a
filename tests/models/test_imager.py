"""The user's object: sense and reconstruct, any size, in bounded memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage import data

import tersense
from reference import sense_by_windows
from tersense import Imager, Measurements, Readout
from tersense.errors import TersenseError
from tersense.reconstruction.base import build_reconstructor
from tersense.sensing.exact import sense_exactly
from tersense.sensing.geometry import Geometry, cut_tiles
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns, random_patterns


def untrained(window, stride, m=6, seed=0):
    """A camera of a geometry that no shipped model has."""
    torch.manual_seed(seed)
    sensor = tersense.TernarySensor(window, stride, rate=m / stride**2, density=0.2)
    network = build_reconstructor("mlp", {"hidden": [12]}, Geometry(window, stride), m)
    with torch.no_grad():
        _, alpha = sensor()
    return tersense.Imager("untrained", sensor.freeze(), alpha, 110.0, 60.0, network)


@pytest.fixture(scope="module")
def imager():
    return tersense.load("paper-r25")


def test_all_sensing_paths_give_the_same_integers():
    image = data.camera()[5:138, 60:231]
    for window, stride in ((16, 16), (16, 8), (15, 4)):
        camera = untrained(window, stride)
        expected = sense_by_windows(camera.phi, stride, image)
        np.testing.assert_array_equal(camera.sense(image).values, expected)
        pixels = torch.from_numpy(image.copy())
        np.testing.assert_array_equal(sense_exactly(pixels, camera.operator).numpy(), expected)


def test_color_is_sensed_channel_by_channel(imager):
    image = data.astronaut()[:50, :70]
    y = imager.sense(image)
    assert y.values.shape == (3, 256, 2, 3)
    for channel in range(3):
        plane = np.ascontiguousarray(image[:, :, channel])
        np.testing.assert_array_equal(y.values[channel], imager.sense(plane).values)
    assert imager.reconstruct(y).shape == (50, 70, 3)


@pytest.mark.parametrize("size", [(1, 1), (1, 100), (31, 33), (64, 64), (97, 5)])
def test_any_size_comes_back_at_its_size(imager, size):
    image = data.camera()[: size[0], : size[1]]
    again = imager.reconstruct(imager.sense(image))
    assert again.shape == size
    assert again.dtype == np.uint8


def test_views_and_read_only_images_are_sensed(imager):
    image = data.camera()[:64, :64]
    expected = imager.sense(image.copy()).values
    frozen = image.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(imager.sense(frozen).values, expected)
    np.testing.assert_array_equal(imager.sense(image[:, ::-1][:, ::-1]).values, expected)


@pytest.mark.parametrize(("window", "stride"), [(16, 16), (16, 8), (12, 5), (9, 2)])
def test_tiles_do_not_show(monkeypatch, window, stride):
    camera = untrained(window, stride)
    y = camera.sense(data.astronaut()[:111, :203])
    whole = camera.estimate(y)
    for pixels in (40**2, 57**2):
        monkeypatch.setattr("tersense.models.imager.TILE_PIXELS", pixels)
        assert len(list(cut_tiles(camera.geometry, (111, 203), 1, pixels))) > 4
        # Batches of other sizes are summed in another order: float rounding is all that differs.
        np.testing.assert_allclose(camera.estimate(y), whole, atol=1e-3)


def test_the_shipped_model_is_the_same_in_tiles(imager, monkeypatch):
    y = imager.sense(data.camera()[:200, :300])
    whole = imager.estimate(y)
    monkeypatch.setattr("tersense.models.imager.TILE_PIXELS", 64**2)
    np.testing.assert_allclose(imager.estimate(y), whole, atol=2e-3)


@pytest.mark.parametrize(("window", "stride"), [(8, 8), (8, 4), (9, 2), (7, 3)])
@pytest.mark.parametrize("size", [(1, 1), (30, 61), (100, 8)])
def test_tiles_cover_every_pixel_once(window, stride, size):
    seen = np.zeros(size, int)
    for tile in cut_tiles(Geometry(window, stride), size, 2, 16**2):
        seen[tile.place] += 1
        inside = np.zeros(tile.size)[tile.inside]
        assert inside.shape == seen[tile.place].shape
    assert (seen == 1).all()


@pytest.mark.parametrize(("window", "stride"), [(32, 32), (32, 16), (30, 7), (9, 2), (12, 11)])
@pytest.mark.parametrize("size", [(1, 1), (200, 333), (31, 97), (160, 161)])
def test_ones_are_told_by_a_small_image(window, stride, size):
    phi = torch.randn(3, window, window, generator=torch.Generator().manual_seed(1)).sign()
    operator = SensingOperator(phi, stride)
    whole = operator.forward(torch.ones(size))
    assert torch.equal(operator.sense_ones(size), whole)
    rows, columns = slice(1, 4), slice(0, 2)
    assert torch.equal(operator.sense_ones(size, rows, columns), whole[:, rows, columns])


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (np.zeros((8, 8)), TypeError),
        (np.zeros((8, 8, 4), np.uint8), ValueError),
        (np.zeros((0, 8), np.uint8), ValueError),
        (np.zeros(8, np.uint8), ValueError),
        ("photo.png", TypeError),
    ],
)
def test_what_is_no_image_is_refused(imager, image, error):
    with pytest.raises(error):
        imager.sense(image)


def test_the_same_patterns_at_another_stride_are_another_camera():
    lapped = untrained(16, 8, m=6)
    block = tersense.Imager(
        "block", Patterns(lapped.phi.copy(), 16), torch.ones(6), 110.0, 60.0, lapped.reconstructor
    )
    with pytest.raises(TersenseError, match="stride 16"):
        lapped.reconstruct(block.sense(data.camera()[:32, :32]))


def test_reconstructing_something_else_says_what_to_give(imager):
    with pytest.raises(TypeError, match="Measurements"):
        imager.reconstruct(np.zeros((256, 2, 2), np.int16))


def test_a_readout_is_given_as_one_or_by_its_parts(imager):
    image = data.camera()[:64, :64]
    whole = imager.sense(image, readout=Readout.ranging(6, noise=5.0, seed=3))
    parts = imager.sense(image, bits=6, noise=5.0, seed=3)
    np.testing.assert_array_equal(whole.values, parts.values)
    assert whole.header == parts.header
    assert len(whole.header.readout.steps) == imager.rows
    with pytest.raises(ValueError, match="one or the other"):
        imager.sense(image, bits=6, readout=Readout())


@pytest.mark.parametrize("color", [False, True])
def test_shot_noise_has_the_variance_of_the_pixels_that_were_on(color):
    """Pixels are summed by hand: those that are on in either exposure."""
    patterns = random_patterns(3, 8, 0.4, 8)
    imager = Imager.untrained(patterns)
    image = data.astronaut()[100:116, 100:124] if color else data.camera()[100:116, 100:124]
    reads = np.stack([
        imager.sense(image, readout=Readout(photons=0.2, seed=seed)).values for seed in range(600)
    ]).astype(float)  # fmt: skip
    window = image[8:16, 16:24].reshape(64, -1).astype(float)
    light = np.abs(patterns.phi).reshape(3, 64) @ window
    seen = reads.var(axis=0)[..., 1, 2]
    np.testing.assert_allclose(seen.T if color else seen[:, None], light / 0.2, rtol=0.25)
    assert seen.mean() == pytest.approx(light.mean() / 0.2, rel=0.08)
    exact = imager.sense(image).values
    assert abs(reads.mean(axis=0) - exact).mean() < 0.1 * reads.std(axis=0).mean()


def test_the_light_is_estimated_from_the_measurements_alone():
    imager = tersense.load("block-r25")
    image = data.camera()[:128, :128]  # a bright sky and a dark coat
    y = torch.from_numpy(imager.sense(image).values.astype(np.float32))[None]
    ones = imager.operator.sense_ones((128, 128))
    estimate = imager.camera.estimate_light(y, ones)
    truth = torch.nn.functional.conv2d(
        torch.from_numpy(image.astype(np.float32))[None, None],
        imager.operator.phi.abs()[:, None], stride=32,
    )  # fmt: skip
    # The deviation, which is the root of it, is known to a few percent.
    assert ((estimate.sqrt() - truth.sqrt()).abs() / truth.sqrt()).mean() < 0.07
    y[:, ::3] = torch.nan
    some = imager.camera.estimate_light(y, ones)
    assert ((some - estimate).abs() / estimate).mean() < 0.1
    counts = torch.full((1, 4, 4), 60)
    few = imager.camera.estimate_light(y.nan_to_num(), ones, counts)
    assert few.shape == estimate.shape
    assert few.isfinite().all()


def test_who_is_told_of_photons_reconstructs_better():
    imager = Imager.untrained(random_patterns(32, 8, 0.2), "linear")
    image = data.camera()[100:164, 100:164]
    y = imager.sense(image, readout=Readout(photons=0.02, seed=1))
    told = imager.estimate(y)
    header = replace(y.header, readout=Readout())
    blind = imager.estimate(Measurements(y.values, header))
    assert np.mean((told - image) ** 2) < 0.8 * np.mean((blind - image) ** 2)
