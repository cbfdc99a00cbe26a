"""Adaptive cameras in evaluation: every way to spend a budget spends exactly it."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from skimage import data

import tersense
from cameras import adaptive_imager, deciding_imager
from tersense.errors import TersenseError
from tersense.evaluation.adaptive import counts_by_change, mean_squares, oracle_counts
from tersense.evaluation.protocols import score_image, summarize
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.files import read_model, write_model
from tersense.models.imager import Imager
from tersense.reconstruction.allocation import IntegerDecision
from tersense.sensing.patterns import Patterns

IMAGE = data.camera()[100:157, 120:201]
COLOR = np.stack([IMAGE, IMAGE.T[:57, :81].repeat(2, 1)[:57, :81], IMAGE], axis=-1)
MODES = ["closed", "open", "encoder", "change", "oracle", "uniform"]


@pytest.fixture(scope="module")
def imager():
    return deciding_imager()


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_takes_exactly_the_budget(imager, mode):
    camera = AdaptiveCamera(imager, 0.2, mode)
    score = score_image(camera, "name", IMAGE)
    assert score.measurements == 12 * 8 * 11
    assert np.isfinite(score.psnr)
    for own_maps in (False, True):
        camera = AdaptiveCamera(imager, 0.2, mode, own_maps=own_maps)
        captured = camera.capture(COLOR)
        assert captured.estimate.shape == COLOR.shape
        assert captured.measurements == 3 * 12 * 8 * 11


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("own_maps", [False, True])
@pytest.mark.parametrize("readout", [None, Readout.ranging(8)], ids=["exact", "8 bits"])
def test_a_file_holds_all_that_the_image_needs(imager, tmp_path, mode, own_maps, readout):
    camera = AdaptiveCamera(imager, 0.2, mode, own_maps=own_maps)
    for image in (IMAGE, COLOR):
        camera.sense(image, readout).save(tmp_path / "y.tsm")
        again = Measurements.load(tmp_path / "y.tsm")
        channels = 1 if image.ndim == 2 else 3
        assert again.taken == channels * 12 * 8 * 11
        of_channels = image.ndim == 3 and own_maps
        assert again.counts.shape == ((3, 8, 11) if of_channels else (8, 11))
        if of_channels and mode in ("closed", "open", "change"):
            assert (again.counts[0] != again.counts[1]).any()
        captured = camera.capture(image, readout)
        assert captured.bits == 8 * again.payload_bytes
        np.testing.assert_allclose(imager.estimate(again), captured.estimate, atol=1e-2)


def test_in_color_the_sum_of_errors_decides(imager):
    """Three channels that are the same share the map that each would have had."""
    gray = AdaptiveCamera(imager, 0.2).sense(IMAGE)
    color = AdaptiveCamera(imager, 0.2).sense(np.stack([IMAGE] * 3, axis=-1))
    assert np.abs(gray.counts - color.counts).mean() < 0.1
    other = AdaptiveCamera(imager, 0.2).sense(COLOR)
    assert np.abs(other.counts - color.counts).mean() > 0.1


def test_rounds_and_quality_belong_to_the_closed_loop(imager):
    for wrong in ({"rounds": 3}, {"psnr": 30.0}):
        with pytest.raises(TersenseError, match="belong to the mode closed, got open"):
            AdaptiveCamera(imager, 0.2, "open", **wrong)


def test_scores_tell_what_the_camera_expected(imager):
    camera = AdaptiveCamera(imager, 0.2)
    score = score_image(camera, "name", IMAGE)
    assert score.predicted == pytest.approx(camera.captures(IMAGE)[0].predicted_psnr(), abs=1e-3)
    told = summarize(camera, "set", [score], None)
    assert told["prediction"]["mean_error"] == pytest.approx(score.predicted - score.psnr)
    assert told["images"][0]["predicted_psnr"] == pytest.approx(score.predicted)
    uniform = score_image(AdaptiveCamera(imager, 0.2, "uniform"), "name", IMAGE)
    assert uniform.predicted is None
    assert "prediction" not in summarize(camera, "set", [uniform], None)


@pytest.mark.parametrize("mode", MODES)
def test_deeper_pixels_and_codes_of_a_converter_serve_as_well(imager, mode):
    camera = AdaptiveCamera(imager, 0.2, mode)
    usual = camera.capture(IMAGE).estimate
    deep = camera.capture(IMAGE.astype(np.uint16) * 257, depth=16).estimate / 257
    assert np.median(np.abs(deep - usual)) < 1
    coded = camera.capture(IMAGE, Readout.covering(4000, 6))
    assert coded.measurements == 12 * 8 * 11
    assert np.isfinite(coded.estimate).all()


def test_uniform_is_the_camera_of_that_rate(imager):
    uniform = AdaptiveCamera(imager, 0.25, "uniform").capture(IMAGE).estimate
    lower = imager.at_rate(0.25)
    np.testing.assert_allclose(uniform, lower.estimate(lower.sense(IMAGE)), atol=2e-2)


@pytest.mark.parametrize("mode", MODES[:-1])
@pytest.mark.parametrize("image", [IMAGE, COLOR], ids=["gray", "color"])
def test_one_model_decides_and_another_reconstructs(imager, mode, image):
    other = deciding_imager(seed=1)
    captured = AdaptiveCamera(imager, 0.2, mode, decider=other).capture(image)
    y = AdaptiveCamera(other, 0.2, mode).sense(image)
    np.testing.assert_array_equal(captured.estimate, imager.estimate(y))
    assert (captured.measurements, captured.bits) == (y.taken, 8 * y.payload_bytes)
    assert captured.predicted is None  # what the other network would reach
    if mode in ("closed", "open", "encoder"):
        assert (y.counts != AdaptiveCamera(imager, 0.2, mode).sense(image).counts).any()


def test_who_decides_must_have_the_same_patterns(imager):
    flex, told = tersense.load("flex"), "patterns, stride and lowest rate of adaptive, which "
    with pytest.raises(TersenseError, match=f"{told}flex has not"):
        AdaptiveCamera(imager, 0.2, decider=flex)
    apart = Imager(
        "apart", Patterns(imager.phi, 16), imager.operator.alpha, 116.0, 69.0, imager.reconstructor
    )
    with pytest.raises(TersenseError, match=f"{told}apart has not"):
        AdaptiveCamera(imager, 0.2, decider=apart)
    for nothing in ({"mode": "uniform"}, {"rounds": 1}):
        with pytest.raises(TersenseError, match="nothing to decide; leave the decider out"):
            AdaptiveCamera(imager, 0.2, decider=deciding_imager(seed=1), **nothing)
    coarse = deciding_imager(seed=1)
    coarse.reconstructor.lowest_rate = 0.2
    with pytest.raises(TersenseError, match=f"{told}adaptive has not"):
        AdaptiveCamera(imager, 0.1, decider=coarse)
    with pytest.raises(TersenseError, match="PSNR is predicted for the network that reconstructs"):
        AdaptiveCamera(imager, 0.2, psnr=30, decider=deciding_imager(seed=1))
    with pytest.raises(TersenseError, match="needs all 256 rows of every window"):
        AdaptiveCamera(tersense.load("block-r25"), 0.2, decider=flex)


def test_a_camera_without_a_decision_is_refused():
    with pytest.raises(TersenseError, match=r"no decision for sensors; .*train\.allocation=true"):
        AdaptiveCamera(adaptive_imager(), 0.2, "open")
    with pytest.raises(TersenseError, match="rate must lie between"):
        AdaptiveCamera(adaptive_imager(), 0.9)


@pytest.mark.parametrize("mode", MODES)
def test_sensing_draws_no_random_numbers_of_others(imager, mode):
    state = torch.get_rng_state()
    AdaptiveCamera(imager, 0.2, mode).sense(IMAGE)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("looks", "version"), [(True, 6), (False, 4)])
def test_only_files_whose_decision_looks_around_have_format_6(tmp_path, looks, version):
    """A program that does not know the windows around reads what never needed them."""
    imager, path = deciding_imager(), tmp_path / "model.safetensors"
    if not looks:
        imager.camera.decision.around.zero_()
    write_model(path, imager)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["tersense"])["format"] == version
        assert ("decision.around" in file.keys()) == looks  # noqa: SIM118
    y = imager.sense(IMAGE).values
    decision = read_model(path).camera.decision
    np.testing.assert_array_equal(decision.scores(y), imager.camera.decision.scores(y))


def test_a_model_file_keeps_the_decision(imager, tmp_path):
    write_model(tmp_path / "model.safetensors", imager)
    again = read_model(tmp_path / "model.safetensors")
    y = imager.sense(IMAGE).values
    ours, theirs = imager.camera.decision, again.camera.decision
    known = np.full(y.shape[1:], 20)
    np.testing.assert_array_equal(ours.scores(y, known), theirs.scores(y, known))
    broken = adaptive_imager()
    broken.camera.decision = IntegerDecision(broken.rows, ours.levels)
    broken.camera.decision.shift[2] = -3
    write_model(tmp_path / "broken.safetensors", broken)
    with pytest.raises(TersenseError, match=r"decision\.shift must lie between 0 and 31"):
        read_model(tmp_path / "broken.safetensors")


# The rules themselves, on a camera whose errors are known


def fake(image, noise):
    """A camera whose error in a window is its noise over the root of its count."""

    def reconstruct(counts):
        spread = np.kron(noise / np.sqrt(counts), np.ones((8, 8)))[: image.shape[0]]
        signs = np.where(np.indices(image.shape).sum(axis=0) % 2, 1.0, -1.0)
        return image + signs * spread[:, : image.shape[1]]

    return reconstruct


def test_the_oracle_measures_where_the_error_is():
    image = np.full((30, 40), 128.0)
    noise = np.ones((4, 5))
    noise[1, 2] = 20.0
    counts = oracle_counts(fake(image, noise), image, 8, (2, 4, 8, 16, 32), 20 * 6)
    assert counts.sum() == 120
    assert counts[1, 2] == counts.max() == 32


def test_the_rule_of_change_measures_where_the_image_changes():
    image = np.full((30, 40), 128.0)
    noise = np.ones((4, 5))
    noise[1, 2] = 20.0
    counts = counts_by_change(fake(image, noise), (4, 5), 8, 32, 20 * 6)
    assert counts.sum() == 120
    assert counts[1, 2] == counts.max() > 10
    assert counts.min() >= 3  # half of each stage is uniform


def test_mean_squares_are_of_the_pixels_that_are_there():
    values = np.random.default_rng(0).normal(size=(20, 13))
    found = mean_squares(values, 8)
    assert found.shape == (3, 2)
    assert found[2, 1] == pytest.approx((values[16:, 8:] ** 2).mean())
    color = np.stack([values, 2 * values, np.zeros_like(values)], axis=-1)
    np.testing.assert_allclose(mean_squares(color, 8), found * 5 / 3)
