"""The closed loop: rounds of requests and values, within the budget to the last measurement."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data

from cameras import ADAPTIVE_ROWS as ROWS
from cameras import ADAPTIVE_STRIDE as STRIDE
from cameras import adaptive_imager
from tersense.errors import TersenseError
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models import capture as capturing
from tersense.models.files import read_model, write_model
from tersense.sensing.patterns import random_patterns


@pytest.fixture(scope="module")
def imager():
    return adaptive_imager()


def run(imager, image, rate, rounds=3, readout=None):
    y = imager.sense(image, readout=readout)
    color = image.ndim == 3
    capture = imager.begin(image.shape[:2], rate, rounds, y.header.readout, color=color)
    asked = []
    while (request := capture.next()) is not None:
        asked.append(request)
        capture.add(y.values[request.mask])
    return capture, asked, y


IMAGE = data.camera()[100:157, 120:201]


@given(st.integers(3, ROWS), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40))
@settings(deadline=None, max_examples=25)
def test_a_capture_takes_as_many_measurements_as_the_rate_allows(m, rounds, height, width):
    imager = adaptive_imager()
    image = IMAGE[:height, :width]
    capture, asked, _ = run(imager, image, m / STRIDE**2, rounds)
    assert capture.counts.sum() == sum(map(len, asked)) == m * capture.counts.size
    assert 1 <= len(asked) <= rounds
    assert all(len(request) > 0 for request in asked)
    assert capture.counts.max() <= ROWS
    assert capture.counts.min() >= 3
    before = np.zeros_like(capture.counts)
    for request in asked:
        np.testing.assert_array_equal(request.before, before)
        assert (request.after >= before).all()
        assert request.mask.sum() == len(request)
        before = request.after
    assert capture.reconstruct().shape == image.shape


def test_the_image_is_that_of_the_network_given_the_counts(imager):
    capture, asked, y = run(imager, IMAGE, 0.2)
    assert asked[0].after.min() == asked[0].after.max()
    assert capture.counts.min() < capture.counts.max()
    values = torch.from_numpy(y.values.astype(np.float32))[None]
    with imager.camera.inference():
        counts = torch.from_numpy(capture.counts)[None]
        whole = imager.reconstruct_batch(values, IMAGE.shape, counts=counts)[0]
    np.testing.assert_allclose(capture.estimate(), whole.numpy(), atol=1e-3)


def test_one_round_is_the_camera_of_that_rate(imager):
    capture, asked, _ = run(imager, IMAGE, 0.25, rounds=1)
    assert len(asked) == 1
    lower = imager.at_rate(0.25)
    expected = lower.estimate(lower.sense(IMAGE))
    np.testing.assert_allclose(capture.estimate(), expected, atol=2e-2)


def test_tiles_decide_as_the_whole_image_does(imager, monkeypatch):
    image = data.camera()[:200, :176]
    whole, asked, _ = run(imager, image, 0.2)
    monkeypatch.setattr(capturing, "TILE_PIXELS", 48**2)
    tiled, again, _ = run(imager, image, 0.2)
    np.testing.assert_array_equal(asked[0].after, again[0].after)
    differ = np.abs(whole.counts - tiled.counts)
    assert np.median(differ) == 0
    assert np.abs(whole.estimate() - tiled.estimate()).mean() < 1


@pytest.mark.parametrize(
    "readout",
    [Readout(noise=20.0, seed=3), Readout.covering(4000, 6), Readout(photons=2.0),
     Readout.ranging(5)],
)  # fmt: skip
def test_values_of_a_readout_are_taken_as_what_they_are(imager, readout):
    capture, _, y = run(imager, IMAGE, 0.2, readout=readout)
    counts = torch.from_numpy(capture.counts)[None]
    row = torch.arange(ROWS)[:, None, None]
    values = torch.from_numpy(y.header.readout.values(y.values).astype(np.float32))
    values = torch.where(row < counts, values, 0.0)[None]
    with imager.camera.inference():
        whole = imager.reconstruct_batch(values, IMAGE.shape, y.header.readout, counts)[0]
    np.testing.assert_allclose(capture.estimate(), whole.numpy(), atol=1e-3)


def test_an_image_can_be_had_after_every_round(imager):
    y = imager.sense(IMAGE)
    capture = imager.begin(IMAGE.shape, 0.2)
    with pytest.raises(TersenseError, match="nothing is measured yet"):
        capture.reconstruct()
    images = []
    while (request := capture.next()) is not None:
        capture.add(y.values[request.mask])
        images.append(capture.estimate())
    assert len(images) == 3
    assert all(np.abs(a - b).max() > 0.1 for a, b in pairwise(images))


def test_mistakes_of_a_camera_get_one_line_each(imager):
    capture = imager.begin((40, 40), 0.2)
    with pytest.raises(TersenseError, match=r"nothing was asked for; call next\(\)"):
        capture.add([1])
    request = capture.next()
    with pytest.raises(TersenseError, match="the last request is still open"):
        capture.next()
    with pytest.raises(TersenseError, match=f"{len(request)} values were asked for, got 2"):
        capture.add([1, 2])
    with pytest.raises(TersenseError, match="NaN or Inf"):
        capture.add(np.full(len(request), np.nan))
    with pytest.raises(
        TersenseError, match=r"twice what pixels from 0 to 255 can .* got 1e\+12; check"
    ):
        capture.add(np.full(len(request), 1e12))
    with pytest.raises(TersenseError, match=r"rate must lie between 0\.0469 and 0\.5, got 0\.7"):
        imager.begin((40, 40), 0.7)
    with pytest.raises(TersenseError, match="rounds must be at least 1, got 0"):
        imager.begin((40, 40), 0.2, rounds=0)
    with pytest.raises(TersenseError, match="at least one pixel"):
        imager.begin((40, 0), 0.2)
    plain = adaptive_imager()
    plain.camera.predictor = None
    with pytest.raises(TersenseError, match=r"cannot decide .* train\.allocation=true"):
        plain.begin((40, 40), 0.2)
    assert plain.begin((40, 40), 0.2, rounds=1).next() is not None


# What is measured, kept and taken up again


@pytest.mark.parametrize("readout", [None, Readout.covering(4000, 6)], ids=["exact", "6 bits"])
@pytest.mark.parametrize("color", [False, True])
def test_a_capture_goes_on_from_its_file_as_if_nothing_had_happened(
    imager, tmp_path, readout, color
):
    image = np.stack([IMAGE, IMAGE[::-1], IMAGE], axis=-1) if color else IMAGE
    whole, asked, y = run(imager, image, 0.2, 4, readout)
    known = {"history": []}
    for request in asked:
        partial = imager.begin(image.shape[:2], 0.2, 4, y.header.readout, color=color)
        if known["history"]:
            partial = imager.resume(Measurements.load(tmp_path / "y.tsm"), 0.2, 4, **known)
        again = partial.next()
        np.testing.assert_array_equal(again.after, request.after)
        partial.add(y.values[again.mask])
        partial.measurements().save(tmp_path / "y.tsm")
        known = {"history": partial.history}
    assert partial.next() is None
    np.testing.assert_array_equal(partial.reconstruct(), whole.reconstruct())
    np.testing.assert_array_equal(partial.measurements().values, whole.measurements().values)
    assert Measurements.load(tmp_path / "y.tsm").header.readout == y.header.readout


def test_measurements_of_the_first_rows_are_a_beginning(imager):
    low = imager.at_rate(0.1).sense(IMAGE)
    capture, y = imager.resume(low, 0.2), imager.sense(IMAGE)
    assert (capture.counts == low.header.rows).all()
    while (request := capture.next()) is not None:
        assert request.before.min() >= low.header.rows
        capture.add(y.values[request.mask])
    assert capture.counts.sum() == capture.budget
    there = np.arange(ROWS)[:, None, None] < capture.counts
    np.testing.assert_array_equal(capture.measurements().values, np.where(there, y.values, 0))


def test_windows_without_any_measurement_get_some_before_anything_is_decided(imager):
    counts = np.zeros((8, 11), np.int32)
    counts[2:, 3:] = 9
    capture = imager.resume(imager.sense(IMAGE, counts=counts), 0.2)
    request = capture.next()
    assert request.after.min() >= 3
    assert (request.after[2:, 3:] >= 9).all()


def test_windows_that_have_much_leave_less_for_the_others(imager):
    counts = np.zeros((8, 11), np.int32)
    counts[:2] = 30
    y = imager.sense(IMAGE, counts=counts)
    capture = imager.resume(y, 0.2)
    assert not capture.predicts
    with pytest.raises(TersenseError, match="needs a predictor, and 3 measurements of every win"):
        capture.predicted_psnr()
    full = imager.sense(IMAGE).values
    while (request := capture.next()) is not None:
        capture.add(full[request.mask])
    assert capture.counts.min() >= 3
    assert capture.counts.sum() == capture.budget
    assert np.isfinite(capture.predicted_psnr())
    with pytest.raises(TersenseError, match=r"at least 0\.1\d*, .* already and 3 rows of every"):
        imager.resume(y, 0.14)


def test_what_cannot_be_taken_up_again_is_refused(imager):
    y = imager.sense(IMAGE, counts=np.full((8, 11), 9))
    with pytest.raises(TersenseError, match=r"rate must be at least 0\.1406, what is measured"):
        imager.resume(y, 0.1)
    with pytest.raises(TersenseError, match="counts that grow"):
        imager.resume(y, 0.2, history=[np.full((8, 11), 10)])
    with pytest.raises(TersenseError, match="counts that grow"):
        imager.resume(y, 0.2, history=[np.full((8, 12), 3)])
    other = adaptive_imager()
    other = type(other)("other", random_patterns(ROWS, 16, 0.2, STRIDE), other.operator.alpha,
                        116.0, 69.0, other.reconstructor)  # fmt: skip
    with pytest.raises(TersenseError, match="were taken with patterns"):
        imager.resume(other.sense(IMAGE), 0.5)
    color = imager.sense(np.stack([IMAGE] * 3, -1), counts=np.full((3, 8, 11), 9))
    with pytest.raises(TersenseError, match="must share one map"):
        imager.resume(color, 0.2)
    few = imager.at_rate(0.1).sense(IMAGE, bits=6)
    with pytest.raises(TersenseError, match="a step for each pattern"):
        imager.resume(few, 0.2)


# Until the image is good enough


def test_rounds_go_on_until_the_predicted_quality_is_reached(imager):
    y, taken = imager.sense(IMAGE), []
    for psnr in (12.0, 13.0, 14.0):
        capture = imager.begin(IMAGE.shape, 0.5, 8, psnr=psnr)
        before = []
        while (request := capture.next()) is not None:
            if capture.history:
                before.append(capture.predicted_psnr())
            capture.add(y.values[request.mask])
        assert all(value < psnr for value in before)
        assert len(capture.history) == 8 or capture.predicted_psnr() >= psnr
        taken.append(int(capture.counts.sum()))
    assert taken[0] < taken[2]


def test_a_quality_out_of_reach_stops_at_the_largest_rate(imager):
    y, capture = imager.sense(IMAGE), imager.begin(IMAGE.shape, 0.2, 6, psnr=70.0)
    while (request := capture.next()) is not None:
        capture.add(y.values[request.mask])
        assert capture.counts.sum() <= capture.budget
    assert capture.counts.sum() == capture.budget
    for wrong in ({"psnr": 100.0}, {"psnr": float("nan")}, {"psnr": 0.0}):
        with pytest.raises(TersenseError, match="psnr must lie between 5 and 80 dB"):
            imager.begin(IMAGE.shape, 0.2, **wrong)
    with pytest.raises(TersenseError, match="rounds must be at least 2"):
        imager.begin(IMAGE.shape, 0.2, 1, psnr=30.0)
    with pytest.raises(TersenseError, match="a prediction needs"):
        imager.begin(IMAGE.shape, 0.2).predicted_psnr()


def test_rounds_to_a_quality_never_stop_for_a_fraction_of_a_measurement(imager):
    small = IMAGE[:8, :8]
    y, capture = imager.sense(small), imager.begin((8, 8), 0.5, 20, psnr=70.0)
    while (request := capture.next()) is not None:
        capture.add(y.values[request.mask])
    assert capture.counts.sum() == capture.budget or len(capture.history) == 20


@pytest.mark.parametrize(
    "readout", [Readout(noise=1e5), Readout(photons=1e-3), Readout.ranging(4, noise=50)], ids=str
)
def test_what_a_noisy_sensor_reads_is_believed(imager, readout):
    y, capture = imager.sense(IMAGE, readout=readout), imager.begin(IMAGE.shape, 0.2, 3, readout)
    assert y.values.shape == (32, 8, 11)
    capture.readout = y.header.readout
    while (request := capture.next()) is not None:
        capture.add(y.values[request.mask])
    assert capture.counts.sum() == capture.budget


def test_counts_that_are_refused_leave_a_capture_as_it_was(imager):
    y, capture = imager.sense(IMAGE), imager.begin(IMAGE.shape, 0.2)
    with pytest.raises(TersenseError, match="keep to the budget"):
        capture.take(np.full((8, 11), 30), y.values)
    assert capture.next() is not None


def test_a_model_file_keeps_the_predictor(imager, tmp_path):
    write_model(tmp_path / "with.safetensors", imager)
    again = read_model(tmp_path / "with.safetensors")
    kept, ours = again.camera.predictor, imager.camera.predictor
    assert kept.levels == ours.levels
    for name, value in kept.state_dict().items():
        torch.testing.assert_close(value, ours.state_dict()[name], rtol=1e-3, atol=1e-3)
    plain = adaptive_imager()
    plain.camera.predictor = None
    write_model(tmp_path / "without.safetensors", plain)
    assert read_model(tmp_path / "without.safetensors").camera.predictor is None
