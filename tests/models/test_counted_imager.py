"""Cameras that measure some windows more often than others."""

import numpy as np
import pytest
import torch
from skimage import data

from cameras import random_camera
from tersense.errors import TersenseError
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.measurements.readout import Readout
from tersense.models import imager as imager_module
from tersense.models.imager import Imager
from tersense.models.info import describe_measurements
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns, random_patterns

ROWS = 20
PHOTO = data.astronaut()[:70, 100:205]


def universal(stride=8):
    torch.manual_seed(0)
    options = UnrolledOptions(2, 8, universal=True, lowest_rate=1 / 64)
    network = UnrolledReconstructor(Geometry(8, stride), ROWS, options)
    for weights in network.parameters():  # a fresh network changes nothing: make it do something
        torch.nn.init.normal_(weights, std=0.05)
    patterns = Patterns(random_patterns(ROWS, 8, 0.2).phi, stride)
    return Imager("u", patterns, torch.ones(ROWS), 120.0, 60.0, network)


def some_counts(imager, image, seed=0, own=False):
    grid = imager.geometry.grid(*image.shape[:2])
    shape = (3, *grid) if own else grid
    return np.random.default_rng(seed).integers(0, ROWS + 1, shape)


def beyond(counts):
    return np.arange(ROWS)[:, None, None] >= counts[..., None, :, :]


@pytest.mark.parametrize("stride", [8, 4])
@pytest.mark.parametrize("own", [False, True], ids=["shared", "of each channel"])
def test_sensing_takes_the_first_rows_of_each_window(stride, own):
    imager = universal(stride)
    counts = some_counts(imager, PHOTO, own=own)
    y, full = imager.sense(PHOTO, counts=counts), imager.sense(PHOTO)
    mask = np.broadcast_to(beyond(counts), full.values.shape)
    np.testing.assert_array_equal(y.values, np.where(mask, 0, full.values))
    np.testing.assert_array_equal(y.counts, counts)
    assert y.taken == (~mask).sum()


@pytest.mark.parametrize("make", [universal, lambda: Imager.untrained(universal().patterns)])
def test_a_count_for_all_is_the_camera_of_that_rate(make):
    imager, gray = make(), PHOTO[..., 0]
    lower = imager.at_rate(11 / 64)
    counted = imager.estimate(imager.sense(gray, counts=11))
    np.testing.assert_allclose(counted, lower.estimate(lower.sense(gray)), atol=1.5)


@pytest.mark.parametrize("own", [False, True], ids=["shared", "of each channel"])
def test_tiles_agree_with_the_whole(monkeypatch, own):
    imager = universal()
    imager.reconstructor.halo = 10
    y = imager.sense(PHOTO, counts=some_counts(imager, PHOTO, own=own))
    whole = imager.estimate(y)
    monkeypatch.setattr(imager_module, "TILE_PIXELS", 40 * 40)
    np.testing.assert_allclose(imager.estimate(y), whole, atol=0.05)
    other = Measurements(imager.sense(PHOTO).values, y.header)
    assert abs(imager.estimate(other) - whole).max() > 1  # what is told makes a difference


def test_channels_are_counted_on_their_own():
    imager = universal()
    counts = some_counts(imager, PHOTO, own=True)
    color = imager.estimate(imager.sense(PHOTO, counts=counts))
    for k in range(3):
        gray = imager.estimate(imager.sense(PHOTO[..., k], counts=counts[k]))
        np.testing.assert_allclose(color[..., k], gray, atol=1e-2)


def test_deep_pixels_have_counts_too():
    imager, counts = universal(), some_counts(universal(), PHOTO)
    deep = imager.estimate(imager.sense(PHOTO.astype(np.uint16) * 257, depth=16, counts=counts))
    usual = imager.estimate(imager.sense(PHOTO, counts=counts))
    np.testing.assert_allclose(deep / 257, usual, atol=0.01)


@pytest.mark.parametrize("readout", [Readout.ranging(8), Readout(noise=9.0), Readout(photons=2.0)])
def test_readouts_files_and_counts_go_together(tmp_path, readout):
    imager = universal()
    y = imager.sense(PHOTO, readout=readout, counts=some_counts(imager, PHOTO))
    y.save(tmp_path / "y.tsm")
    again = Measurements.load(tmp_path / "y.tsm")
    np.testing.assert_array_equal(imager.reconstruct(again), imager.reconstruct(y))


def test_zeros_that_were_not_measured_are_not_taken_for_values():
    """A flat image comes back flat, however unevenly it was measured."""
    imager = Imager.untrained(universal().patterns)
    flat = np.full((64, 64), 200, np.uint8)
    counts = np.maximum(some_counts(imager, flat), 6)
    estimate = imager.estimate(imager.sense(flat, counts=counts))
    believed = imager.estimate(Measurements(imager.sense(flat, counts=counts).values,
                                            imager.sense(flat).header))  # fmt: skip
    assert abs(estimate - 200).mean() < 0.3 * abs(believed - 200).mean()


def test_a_real_camera_that_stops_early_is_told_as_counts():
    imager = universal()
    counts = some_counts(imager, PHOTO[..., 0])
    y = imager.sense(PHOTO[..., 0], counts=counts)
    values = np.where(beyond(counts), np.nan, y.values)
    found = imager.estimate(MeasuredValues(values, y.header))
    np.testing.assert_allclose(found, imager.estimate(y), atol=1e-3)


def test_networks_that_need_every_row_say_so(tmp_path):
    imager = random_camera(ROWS, 8, 8)
    for refused in (
        lambda: imager.sense(PHOTO, counts=7),
        lambda: imager.estimate(
            Imager.untrained(imager.patterns).sense(PHOTO, counts=7)
        ),
    ):  # fmt: skip
        with pytest.raises(TersenseError, match=r"needs all 20 rows .* universal"):
            refused()
    # A real camera's missing values are estimated, as before.
    y = Imager.untrained(imager.patterns).sense(PHOTO[..., 0], counts=7)
    values = np.where(np.arange(ROWS)[:, None, None] < 7, y.values, np.nan)
    assert np.isfinite(imager.estimate(MeasuredValues(values, y.header))).all()


@pytest.mark.parametrize("counts", [21, -1, 1.5, [[3]], np.full((9, 14), 30)])
def test_counts_that_cannot_be_are_refused(counts):
    with pytest.raises(TersenseError, match="counts per window must"):
        universal().sense(PHOTO, counts=counts)


def test_the_counts_are_told(tmp_path):
    imager = universal()
    counts = np.full(imager.geometry.grid(70, 105), 4)
    counts[0, 0] = 0
    counts[1, :] = 13
    for name, patterns in (("plain", None), ("coded", imager.patterns)):
        imager.sense(PHOTO, counts=counts).save(tmp_path / f"{name}.tsm", patterns)
    facts = describe_measurements(tmp_path / "plain.tsm")
    told = describe_measurements(tmp_path / "coded.tsm")
    assert told["per window"] == facts["per window"]
    taken = 3 * counts.sum()
    per_pixel = f"{taken / (3 * 70 * 105):.4g} per pixel of each channel"
    assert facts["measurements"] == f"{taken:,}, {per_pixel}"
    assert facts["per window"].startswith(f"fewest 0, mean {counts.mean():.4g}, most 13; ")
    imager.sense(PHOTO).save(tmp_path / "all.tsm")
    assert "per window" not in describe_measurements(tmp_path / "all.tsm")
