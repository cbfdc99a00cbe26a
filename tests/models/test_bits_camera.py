"""Files of a given size: never larger, better than JPEG, in gray and in color."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from skimage import data

import tersense
from cameras import adaptive_imager, deciding_imager
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.evaluation.protocols import evaluate_folder
from tersense.measurements.color import MODE, brightness
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models.bits import BitsCamera, rate_for, step_for
from tersense.models.imager import Imager
from tersense.sensing.patterns import random_patterns

GRAY = data.camera()[100:228, 180:308].copy()
COLOR = data.astronaut()[60:188, 150:278].copy()


@pytest.fixture(scope="module")
def flex():
    return tersense.load("flex")


def size_of(y, imager):
    return len(y.to_bytes(imager.patterns))


def jpeg_within(image, limit):
    """The best JPEG of at most so many bytes."""
    found = -np.inf
    for quality in range(1, 96):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality, optimize=True)
        if file.getbuffer().nbytes <= limit:
            with Image.open(file) as again:
                found = max(found, psnr(np.asarray(again), image))
    return found


@pytest.mark.parametrize("image", [GRAY, COLOR], ids=["gray", "color"])
def test_files_keep_their_size_and_beat_jpeg(flex, image):
    limit = int(1.0 * 128**2 / 8)
    y = BitsCamera(flex, bpp=1.0).sense(image)
    assert 0.97 * limit < size_of(y, flex) <= limit
    assert psnr(flex.reconstruct(y), image) > jpeg_within(image, limit) + 1.5


@pytest.mark.parametrize("mode", ["encoder", "open", "closed", "uniform"])
@pytest.mark.parametrize("image", [GRAY[:57, :81], COLOR[:57, :81]], ids=["gray", "color"])
def test_every_way_to_decide_fits(mode, image, tmp_path):
    imager = deciding_imager()
    y = BitsCamera(imager, bpp=2.0, mode=mode).sense(image)
    assert 8 * size_of(y, imager) <= 2.0 * 57 * 81
    y.save(tmp_path / "y.tsm", imager.patterns)
    again = Measurements.load(tmp_path / "y.tsm", patterns=imager.patterns)
    np.testing.assert_array_equal(again.values, y.values)
    np.testing.assert_array_equal(again.counts, y.counts)
    np.testing.assert_array_equal(imager.reconstruct(again), imager.reconstruct(y))


def test_small_sizes_can_be_evaluated(flex, tmp_path):
    """The header alone has more bits than one window may have."""
    Image.fromarray(GRAY).save(tmp_path / "gray.png")
    found = evaluate_folder(BitsCamera(flex, bpp=0.2), tmp_path)
    assert 0.15 < found["bits_per_pixel"] <= 0.2


def test_quality_grows_with_size(flex):
    sizes, close = [], []
    for quality in (20, 35, 50, 65):
        y = BitsCamera(flex, quality=quality).sense(GRAY)
        sizes.append(size_of(y, flex))
        close.append(psnr(flex.reconstruct(y), GRAY))
    assert sizes == sorted(sizes)
    assert close == sorted(close)


def test_steps_become_narrower_and_rates_higher():
    qualities = np.linspace(0, 100, 50)
    steps = [step_for(quality) for quality in qualities]
    rates = [rate_for(step) for step in steps]
    assert (np.diff(steps) < 0).all()
    assert (np.diff(rates) >= 0).all()
    assert 0.009 < rates[0] < rates[-1] <= 0.5 + 1e-9


def test_a_model_of_one_rate_chooses_its_step():
    imager = tersense.load("paper-r25")
    y = BitsCamera(imager, bpp=0.8).sense(GRAY)
    assert y.counts is None
    assert 8 * size_of(y, imager) <= 0.8 * 128**2
    assert y.header.readout.step > 20


@pytest.mark.parametrize("image", [GRAY, COLOR], ids=["gray", "color"])
def test_patterns_without_a_network_choose_their_step(image):
    """The linear estimate takes any count, but nothing has learned where to spend them."""
    imager = Imager.untrained(random_patterns(64, window=16, density=0.1, stride=16, seed=1))
    y = BitsCamera(imager, bpp=1.0).sense(image)
    assert (y.counts, y.taken) == (None, y.values.size)
    assert 0.95 * 128**2 < 8 * size_of(y, imager) <= 128**2


def test_who_has_nothing_to_decide_says_so():
    with pytest.raises(TersenseError, match=r"paper-r25 measures every window .* open has nothing"):
        BitsCamera(tersense.load("paper-r25"), bpp=1.0, mode="open")


def test_what_a_model_cannot_decide_is_told_at_once():
    for mode in ("encoder", "open"):
        with pytest.raises(TersenseError, match="no decision for sensors"):
            BitsCamera(adaptive_imager(), bpp=1.0, mode=mode)
    plain = adaptive_imager()
    plain.camera.predictor = None
    with pytest.raises(TersenseError, match="cannot decide where to measure"):
        BitsCamera(plain, bpp=1.0, mode="closed")


@pytest.mark.parametrize("refined", [0, 1])
def test_a_closed_loop_needs_no_decision_of_a_sensor(refined):
    imager = adaptive_imager()
    camera = BitsCamera(imager, bpp=2.0, mode="closed", refined=refined)
    y = camera.sense(GRAY[:57, :81])
    assert 0.9 < 8 * size_of(y, imager) / (2.0 * 57 * 81) <= 1
    assert camera.describe() == {
        "mode": "closed", "bpp": 2.0, "quality": None, "refined": refined, "rounds": 3
    }  # fmt: skip


def test_files_are_nearly_as_large_as_they_may_be(flex):
    for bpp in (0.3, 0.8):
        y = BitsCamera(flex, bpp=bpp).sense(GRAY)
        assert 0.985 < 8 * size_of(y, flex) / (bpp * GRAY.size) <= 1


def test_another_model_decides_on_the_counts_of_a_file():
    imager, other = deciding_imager(), deciding_imager(seed=1)
    for mode in ("encoder", "closed"):
        y = BitsCamera(imager, quality=70, mode=mode, decider=other).sense(GRAY[:57, :81])
        expected = BitsCamera(other, quality=70, mode=mode).sense(GRAY[:57, :81])
        np.testing.assert_array_equal(y.counts, expected.counts)
        np.testing.assert_array_equal(y.values, expected.values)


def test_deep_pixels_have_deeper_steps(flex):
    deep = GRAY.astype(np.uint16) * 257
    one = BitsCamera(flex, quality=50).sense(GRAY)
    other = BitsCamera(flex, quality=50).sense(deep, depth=16)
    assert other.header.readout.step == pytest.approx(257 * one.header.readout.step, rel=0.03)
    np.testing.assert_allclose(one.taken, other.taken, rtol=0.01)
    assert abs(size_of(one, flex) - size_of(other, flex)) < 0.05 * size_of(one, flex)


def test_color_differences_are_those_of_the_image(flex):
    """Without noise or steps worth mentioning, the channels come back."""
    y = BitsCamera(flex, quality=100).sense(COLOR[:64, :64])
    assert y.header.mode == MODE
    luma = flex.sense(brightness(COLOR[:64, :64])).values
    measured = np.arange(512)[:, None, None] < y.counts[0]
    # Half a step, and what rounding the pixels of brightness may add up to.
    apart = np.abs(y.values[0] * y.header.readout.step - luma)[measured]
    assert apart.max() <= y.header.readout.step / 2 + 0.5 * 51
    assert psnr(flex.reconstruct(y), COLOR[:64, :64]) > 30


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "give one of them"),
        ({"bpp": 1.0, "quality": 50}, "give one of them"),
        ({"bpp": 0.0}, "bpp must be above 0"),
        ({"bpp": float("nan")}, "bpp must be above 0"),
        ({"bpp": 1.0, "refined": -1}, "refined must be at least 0, got -1"),
        ({"quality": 101}, "quality must lie between 0 and 100"),
    ],
)
def test_what_cannot_be_asked_for_is_told(options, reason):
    with pytest.raises(TersenseError, match=reason):
        BitsCamera(deciding_imager(), **options)


def test_files_that_cannot_be_so_small_are_told():
    with pytest.raises(TersenseError, match=r"needs at least .* bits per pixel .*, got 0\.001"):
        BitsCamera(deciding_imager(), bpp=0.001).sense(GRAY)


def test_what_is_told_to_be_enough_is_enough():
    with pytest.raises(TersenseError, match="needs at least") as told:
        BitsCamera(deciding_imager(), bpp=0.001).sense(GRAY)
    enough = float(re.search(r"at least ([\d.]+) bits", str(told.value))[1])
    assert 8 * size_of(BitsCamera(deciding_imager(), bpp=enough).sense(GRAY), deciding_imager())


def test_an_image_without_content_gets_the_finest_file_that_fits(flex):
    flat = np.full((64, 64), 128, np.uint8)
    errors = []
    for bpp in (0.3, 0.42, 0.5, 1.0):
        y = BitsCamera(flex, bpp=bpp).sense(flat)
        assert 8 * size_of(y, flex) <= bpp * flat.size
        errors.append(np.abs(flex.estimate(y) - flat).max())
    assert errors[-1] == min(errors)
    assert errors[1] == errors[2] == errors[3]  # the finest file has 0.402 bits per pixel


def test_a_size_chooses_the_readout():
    with pytest.raises(TersenseError, match="chooses the readout"):
        BitsCamera(deciding_imager(), bpp=1.0).sense(GRAY, Readout(8, 4.0))
