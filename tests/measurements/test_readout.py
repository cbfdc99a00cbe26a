"""The readout: its error as it says, the same quantizer for arrays and tensors."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tersense import Readout
from tersense.errors import TersenseError


@pytest.mark.parametrize("readout", [Readout(noise=20.0), Readout.covering(3000, 5),
                                     Readout.covering(3000, 6, noise=30.0)])  # fmt: skip
def test_the_deviation_is_that_of_the_error(readout):
    y = np.random.default_rng(1).integers(-2500, 2500, 200_000)
    error = readout.apply(y) * readout.step - y
    assert error.std() == pytest.approx(readout.deviation, rel=0.03)
    assert abs(error.mean()) < 0.02 * readout.deviation


def test_nothing_is_exact():
    y = np.arange(-5, 6)
    assert Readout().deviation == 0
    assert np.array_equal(Readout().apply(y), y)
    assert str(Readout()) == "exact"


@given(st.integers(2, 12), st.floats(1, 1e6), st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_arrays_and_tensors_are_quantized_alike(bits, full_scale, values):
    readout = Readout.covering(full_scale, bits)
    y = np.array(values)
    codes = readout.quantize(y)
    assert np.array_equal(codes, readout.quantize(torch.from_numpy(y)).numpy())
    assert np.abs(codes).max() <= 2 ** (bits - 1) - 1
    inside = np.abs(y) <= full_scale
    assert (np.abs(codes * readout.step - y)[inside] <= readout.step / 2 * (1 + 1e-9)).all()


def test_other_units_scale_the_error():
    readout = Readout.covering(3000, 6, noise=30.0, photons=2.0)
    assert readout.scaled(0.25).deviation == pytest.approx(readout.deviation / 4)
    light = np.array([10.0, 5000.0])
    scaled = readout.scaled(0.25).deviation_at(0.25 * light)
    np.testing.assert_allclose(scaled, readout.deviation_at(light) / 4)


@given(
    st.integers(2, 32), st.integers(1, 2**20), st.lists(st.integers(-(2**31) + 1, 2**31 - 1),
                                                        min_size=1, max_size=50),
)  # fmt: skip
def test_codes_are_those_of_exact_arithmetic_ties_up(bits, step, values):
    """Fractions of Python are the reference; hardware does the same with integers."""
    largest = 2 ** (bits - 1) - 1
    expected = [max(-largest, min(largest, (Fraction(y, step) + Fraction(1, 2)).__floor__()))
                for y in values]  # fmt: skip
    y = np.array(values, np.int64)
    readout = Readout(bits, float(step))
    assert readout.apply(y).tolist() == expected
    assert readout.quantize(y.astype(np.float64)).tolist() == expected


def test_ties_go_up_on_both_sides_of_zero():
    y = np.array([-15, -5, 5, 15, -6, -4], np.int16)
    assert Readout(8, 10.0).apply(y).tolist() == [-1, 0, 1, 2, -1, 0]


@given(st.integers(2, 16), st.integers(0, 2**32 - 1))
def test_a_ranged_readout_has_the_smallest_whole_steps_that_clip_nothing(bits, seed):
    rng, largest = np.random.default_rng(seed), 2 ** (bits - 1) - 1
    y = rng.integers(-30_000, 30_000, (2, 3, 4, 5)) // rng.choice([1, 100, 10**6], (3, 1, 1))
    y += rng.choice([0, 5, -7_000, 400_000], (3, 1, 1))
    readout = Readout.ranging(bits).ranged(y)
    spread = np.ptp(y, axis=(0, 2, 3))
    steps = np.array(readout.steps)
    assert (steps % 1 == 0).all()
    assert (2 * steps * largest >= spread).all()
    assert ((steps == 1) | (2 * (steps - 1) * largest < spread)).all()
    error = readout.values(readout.apply(y)) - y
    assert (abs(error) <= steps[:, None, None] / 2).all()
    assert readout.deviation.ravel() == pytest.approx(steps / 12**0.5)


def test_a_percentile_clips_so_many():
    y = np.random.default_rng(0).normal(3e6, 1e6, (4, 50, 50)).astype(np.int32)
    readout = Readout.ranging(10, percentile=98.0).ranged(y)
    clipped = abs(y / readout.unit - readout.offset) > readout.largest_code + 0.5
    np.testing.assert_allclose(clipped.mean(axis=(1, 2)), 0.02, atol=0.002)


def test_an_offset_is_there_only_where_it_makes_the_step_smaller():
    y = np.array([[[-70, 69]], [[100, 700]], [[0, 90]]])
    assert Readout.ranging(4).ranged(y[:1]).offsets == ()
    readout = Readout.ranging(4).ranged(y)
    assert readout.steps == (10.0, 43.0, 7.0)
    assert readout.offsets == (0, 9, 6)  # codes from 2 to 16 in steps of 43, from 0 to 13 of 7
    assert Readout.ranging(8).ranged(y[2:]).offsets == ()  # steps of 1 do without


def test_a_fixed_readout_does_not_follow_the_image():
    readout = Readout.covering(1000, 6)
    assert readout.ranged(np.full((2, 3, 3), 9)) is readout
    assert Readout.ranging().ranged(np.full((2, 3, 3), 9)).exact


def test_arrays_and_tensors_have_the_same_steps_for_their_rows():
    y = np.random.default_rng(0).normal(0, 300, (5, 3, 4, 4)) * [[[1]], [[10]], [[100]]]
    readout = Readout.ranging(6, noise=2.0, photons=3.0).ranged(y)
    codes, tensor = readout.quantize(y), torch.from_numpy(y)
    np.testing.assert_array_equal(codes, readout.quantize(tensor).numpy())
    values = readout.values(codes)
    np.testing.assert_array_equal(values, readout.values(torch.from_numpy(codes)).numpy())
    assert (abs(values - y) <= readout.unit / 2 + 1e-9).all()
    light = abs(y) + 7
    told = readout.deviation_at(torch.from_numpy(light)).numpy()
    np.testing.assert_allclose(told, readout.deviation_at(light))
    assert told.shape == y.shape


@pytest.mark.parametrize(("light", "y", "photons"), [(900, 300, 0.05), (60, -60, 0.5), (0, 0, 1.0)])
def test_photons_are_two_counts_of_poisson(light, y, photons):
    """The difference of two Poisson counts is a Skellam variable; scipy has it."""
    readout = Readout(photons=photons, seed=4)
    shape = 100, 20, 20
    read = readout.apply(np.full(shape, y), np.full(shape, light)).ravel()
    mean = photons * (light + y) / 2, photons * (light - y) / 2
    skellam = stats.skellam(*(max(m, 1e-12) for m in mean))
    assert read.mean() == pytest.approx(y, abs=4 * (light / photons / read.size) ** 0.5)
    told = readout.deviation_at(light)
    assert read.std() == pytest.approx(told, rel=0.02)
    assert told == pytest.approx((skellam.var() ** 0.5) / photons, abs=1e-4)
    if light:
        counts = np.rint(read * photons)
        for share in (0.05, 0.5, 0.95):
            below = (counts <= skellam.ppf(share)).mean()
            assert below == pytest.approx(skellam.cdf(skellam.ppf(share)), abs=0.01)


def test_photons_noise_and_bits_add_up():
    readout = Readout.covering(4000, 6, noise=40.0, seed=1, photons=0.5)
    rng = np.random.default_rng(0)
    light = rng.integers(2000, 3000, 100_000)
    y = rng.integers(-1000, 1000, light.size)
    error = readout.apply(y, light) * readout.step - y
    assert error.std() == pytest.approx((readout.deviation_at(light) ** 2).mean() ** 0.5, rel=0.02)
    assert readout.deviation_at(2500) > readout.deviation > 40


def test_noise_is_gaussian():
    error = Readout(noise=200.0, seed=2).apply(np.zeros((10, 50, 50), np.int16)).ravel()
    assert stats.kstest(error, "norm", args=(0, 200)).pvalue > 1e-3


def test_photons_without_light_are_refused():
    with pytest.raises(ValueError, match="needs light"):
        Readout(photons=1.0).apply(np.zeros(3, np.int32))


READOUTS = [
    Readout(),
    Readout(9, 2.5, 1.5, 11),
    Readout.ranging(4, photons=0.25, percentile=99.0),
    Readout.ranging(4).ranged(np.arange(24).reshape(2, 3, 4) - 11),
    Readout.ranging(4).ranged(np.arange(24).reshape(2, 3, 4) + 90),
]


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_readouts_survive_json(readout):
    assert Readout.from_dict(json.loads(json.dumps(readout.to_dict()))) == readout


def test_a_readout_is_described_in_a_line():
    y = np.array([[[-700, 700]], [[-14_000, 0]]])
    both = Readout.ranging(4, noise=2.0, seed=3).ranged(y)
    assert str(both) == (
        "4 bits, steps of 100 to 1000, each pattern ranged to all of its y; "
        "noise of deviation 2, seed 3"
    )
    assert str(Readout.ranging(8, percentile=99.5)) == (
        "8 bits, each pattern ranged to 99.5 % of its y"
    )
    assert str(Readout.covering(1000, 8, noise=1.0, photons=0.5)) == (
        "8 bits, steps of 8; 0.5 photons per pixel value and noise of deviation 1, seed 0"
    )


@pytest.mark.parametrize(("wrong", "said"), [
    ({"bits": 40}, "bits must be at least 0 and at most 32, got 40"),
    ({"noise": float("nan")}, "noise must be finite, got nan"),
    ({"step": 0.0}, "step must be above 0, got 0.0"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"photons": -1.0}, "photons must be at least 0"),
    ({"photons": 1e-9}, "photons must be 0, or from 1e-06 to 1e"),
    ({"percentile": 101.0}, "percentile must be at least 0 and at most 100, got 101"),
    ({"steps": (3.0, 0.0)}, "steps must be above 0"),
    ({"steps": (float("inf"),)}, "steps must be finite"),
    ({"steps": (3.0, 4.0), "offsets": (1,)}, "offsets must be as many as steps, 2, or none, got 1"),
    ({"steps": (3.0,), "offsets": (1.5,)}, "offsets must be an integer"),
    ({"steps": (3.0,), "offsets": (2**31,)}, "offsets must be at least"),
    ({"bits": True}, "bits must be an integer, got True"),
])  # fmt: skip
def test_impossible_readouts_are_refused(wrong, said):
    with pytest.raises(TersenseError, match=said):
        Readout(**wrong)
    with pytest.raises(ValueError, match="bits must be from 2 to 32, got 1"):
        Readout.covering(100, 1)
    with pytest.raises(ValueError, match="bits must be from 2 to 32, got 40"):
        Readout.ranging(40)
    with pytest.raises(TersenseError, match="gain"):
        Readout.from_dict({"gain": 2.0})
