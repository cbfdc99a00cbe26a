"""The readout: its error as it says, the same quantizer for arrays and tensors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
    readout = Readout.covering(3000, 6, noise=30.0)
    assert readout.scaled(0.25).deviation == pytest.approx(readout.deviation / 4)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"bits": 40}, "bits must be at least 0 and at most 32, got 40"),
    ({"noise": float("nan")}, "noise must be finite, got nan"),
    ({"step": 0.0}, "step must be above 0, got 0.0"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"bits": True}, "bits must be an integer, got True"),
])  # fmt: skip
def test_impossible_readouts_are_refused(wrong, said):
    with pytest.raises(TersenseError, match=said):
        Readout(**wrong)
    with pytest.raises(ValueError, match="bits must be from 2 to 32, got 1"):
        Readout.covering(100, 1)
