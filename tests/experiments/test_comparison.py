"""Uniform and adaptive sensing of one image, and the picture of where the measurements went."""

import math

import numpy as np
import pytest
from skimage import data

from cameras import ADAPTIVE_STRIDE as STRIDE
from cameras import adaptive_imager
from tersense.cli.program import main
from tersense.experiments.comparison import (
    compare_sensing,
    counts_of,
    draw_comparison,
)
from tersense.io.images import read_image, write_image
from tersense.measurements.readout import Readout
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.files import write_model

GRAY, COLOR = data.camera()[100:157, 120:201], data.astronaut()[:40, :50]


@pytest.fixture(scope="module")
def imager():
    return adaptive_imager()


@pytest.mark.parametrize("image", [GRAY, COLOR], ids=["gray", "color"])
def test_both_take_the_same_number_of_measurements(imager, image):
    compared = compare_sensing(imager, image, 0.2, rounds=3)
    assert compared.uniform.taken == compared.adaptive.taken
    counts = counts_of(compared.adaptive)
    assert counts.min() < counts.max()
    assert (
        counts_of(compared.uniform).min() == counts_of(compared.uniform).max() == 12
    )  # of 64 pixels
    np.testing.assert_array_equal(
        compared.adaptive_image, imager.reconstruct(compared.adaptive)
    )  # fmt: skip


def test_measurements_in_rounds_are_those_that_the_capture_asked_for(imager):
    readout = Readout(noise=20.0, seed=3)
    whole = imager.sense(GRAY, readout=readout)
    y = AdaptiveCamera(imager, 0.2, "closed", 3).sense(GRAY, readout)
    capture = imager.begin(GRAY.shape, 0.2, 3, readout)
    while (request := capture.next()) is not None:
        capture.add(whole.values[request.mask])
    np.testing.assert_array_equal(y.counts, capture.counts)
    there = np.arange(imager.rows)[:, None, None] < capture.counts
    np.testing.assert_array_equal(y.values, np.where(there, whole.values, 0))
    assert y.header.readout == readout
    np.testing.assert_allclose(imager.estimate(y), capture.estimate(), atol=1e-2)


def test_the_picture_shows_both_images_as_they_are(imager):
    compared = compare_sensing(imager, GRAY, 0.2, rounds=2)
    sheet = draw_comparison(compared)
    times = math.ceil(330 / GRAY.shape[1])  # captions fit
    height, width = GRAY.shape[0] * times, GRAY.shape[1] * times
    for number, image in enumerate((GRAY, compared.uniform_image, compared.adaptive_image)):
        left = 12 + number * (width + 12)
        shown = sheet[42 : 42 + height : times, left : left + width : times]
        np.testing.assert_array_equal(shown, np.stack([image] * 3, axis=2))


def test_plot_counts_draws_images_and_measurement_files(imager, tmp_path, capsys):
    model, photo, out = (tmp_path / name for name in ("m.safetensors", "p.png", "out.png"))
    write_model(model, imager)
    write_image(photo, GRAY)
    words = ["plot", "counts", str(photo), "-m", str(model), "--rate", "0.2", "-o", str(out)]
    assert main([*words, "--rounds", "2"]) == 0
    windows = -(-57 // STRIDE) * -(-81 // STRIDE)
    assert f"{12 * windows:,} measurements" in capsys.readouterr().out
    both = read_image(out).shape
    AdaptiveCamera(imager, 0.2).sense(GRAY).save(tmp_path / "y.tsm")
    assert main(["plot", "counts", str(tmp_path / "y.tsm"), "-m", str(model), "-o", str(out)]) == 0
    assert read_image(out).shape[1] < both[1]


def test_a_model_that_cannot_decide_is_refused_in_one_line(tmp_path, capsys, small_imager):
    write_image(tmp_path / "p.png", GRAY)
    write_model(tmp_path / "m.safetensors", small_imager)
    photo, model, out = (str(tmp_path / name) for name in ("p.png", "m.safetensors", "o.png"))
    assert main(["plot", "counts", photo, "-m", model, "--rate", "0.25", "-o", out]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot decide" in said
