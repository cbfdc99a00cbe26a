"""Codes that the network reconstructs best: closer images in files that keep their size."""

import numpy as np
import pytest
import torch
import typer
from skimage import data

import tersense
from cameras import deciding_imager
from tersense.cli.bits import choose_bits
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.measurements.measurements import Measurements
from tersense.models import refinement
from tersense.models.bits import BitsCamera

GRAY = data.camera()[100:164, 180:244].copy()
COLOR = data.astronaut()[60:124, 180:244].copy()


@pytest.fixture(scope="module")
def flex():
    return tersense.load("flex")


@pytest.mark.parametrize("image", [GRAY, COLOR], ids=["gray", "color"])
def test_refined_files_keep_their_size_and_are_closer(flex, image, tmp_path):
    before = BitsCamera(flex, bpp=2.0).sense(image)
    after = BitsCamera(flex, bpp=2.0, refined=2).sense(image)
    after.save(tmp_path / "y.tsm", flex.patterns)
    assert 8 * (tmp_path / "y.tsm").stat().st_size <= 2.0 * 64**2
    again = Measurements.load(tmp_path / "y.tsm", patterns=flex.patterns)
    np.testing.assert_array_equal(again.values, after.values)
    gained = psnr(flex.reconstruct(again), image) - psnr(flex.reconstruct(before), image)
    assert gained > 0.3


def test_the_gradient_is_that_of_the_error():
    """A little against it, and the error falls by what the gradient says."""
    deep = GRAY.astype(np.uint16) * 16
    imager = deciding_imager()
    y = BitsCamera(imager, quality=50).sense(deep, depth=12)
    wanted = torch.from_numpy((deep * (255 / 4095)).astype(np.float32))[None]
    error, slopes = refinement._look(imager, y, wanted)
    largest = np.unravel_index(np.abs(slopes[0]).argmax(), y.values.shape)
    moved = y.values.copy()
    moved[largest] -= int(np.sign(slopes[0][largest]))
    step = y.header.readout.step * 255 / 4095
    after, _ = refinement._look(imager, Measurements(moved, y.header, y.counts), wanted)
    assert error - after == pytest.approx(abs(slopes[0][largest]) * step, rel=0.05)


def test_parts_have_the_gradient_of_the_whole(monkeypatch):
    imager = deciding_imager()
    image = data.camera()[:40, :280]
    y = BitsCamera(imager, quality=40).sense(image)
    wanted = torch.from_numpy(image.astype(np.float32))[None]
    whole = refinement._look(imager, y, wanted)
    monkeypatch.setattr(refinement, "_TILE_PIXELS", 64**2)
    parts = refinement._look(imager, y, wanted)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-3)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-3 * np.abs(whole[1]).max())


def test_what_does_not_fit_is_not_taken():
    imager = deciding_imager()
    y = BitsCamera(imager, quality=40).sense(GRAY)
    kept = refinement.refine(imager, GRAY, y, 2, lambda _: False)
    np.testing.assert_array_equal(kept.values, y.values)


def test_who_cannot_be_refined_says_so():
    with pytest.raises(TersenseError, match=r"only files of universal models .* paper-r25 is not"):
        BitsCamera(tersense.load("paper-r25"), bpp=1.0, refined=3)


def test_the_command_line_refines_files_of_a_size_only():
    assert choose_bits(1.0, None, None, None, 3, {})(deciding_imager()).refined == 3
    with pytest.raises(typer.BadParameter, match="--refine is about files of a size"):
        choose_bits(None, None, None, None, 3, {})
