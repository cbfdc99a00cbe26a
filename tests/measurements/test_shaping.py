"""Sums rounded together: less noise in the image than one by one, the same everywhere."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from tersense.measurements.codec import shape_codes
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import Header
from tersense.sensing.patterns import Patterns, random_patterns

ROWS, WINDOW = 40, 8
CAMERA = random_patterns(ROWS, window=WINDOW, density=0.3, stride=WINDOW, seed=1)
FLAT = CAMERA.phi.reshape(ROWS, -1).astype(np.float64)


def header_for(patterns, readout, mode="L", windows=(5, 6)):
    side = patterns.stride
    return Header(windows[0] * side, windows[1] * side, mode, patterns.window, side,
                  len(patterns), patterns.hash, readout, 2)  # fmt: skip


def disturbance(errors):
    """The square norm of the smallest change of pixels that explains errors (m, n)."""
    return float((errors * np.linalg.solve(FLAT @ FLAT.T, errors)).sum())


def sums_of(header, seed=0):
    return np.random.default_rng(seed).integers(-9000, 9000, header.shape, np.int32)


def test_less_noise_reaches_the_image():
    header = header_for(CAMERA, Readout(16, 90.0))
    sums = sums_of(header)
    together, alone = shape_codes(sums, 90, header, None, CAMERA), header.readout.quantize(sums)
    of_both = [disturbance((sums - 90 * c).reshape(ROWS, -1)) for c in (together, alone)]
    assert of_both[0] < 0.8 * of_both[1]


def test_what_is_left_of_each_row_is_half_a_step():
    """The definition, in floating point: L⁻¹n, with L of scipy."""
    header = header_for(CAMERA, Readout(16, 90.0))
    sums = sums_of(header)
    errors = (sums - 90 * shape_codes(sums, 90, header, None, CAMERA)).reshape(ROWS, -1)
    gram = FLAT @ FLAT.T
    lower = scipy.linalg.cholesky(gram + np.eye(ROWS) * gram.max() / 16, lower=True)
    rests = scipy.linalg.solve_triangular(lower / np.diag(lower), errors, lower=True)
    assert 44 < np.abs(rests).max() < 45 + 1


def test_rows_that_share_no_pixel_are_rounded_alone():
    signs = scipy.linalg.hadamard(16).reshape(16, 4, 4).astype(np.int8)
    patterns = Patterns(signs, 4)
    header = header_for(patterns, Readout(12, 7.0))
    sums = sums_of(header)
    np.testing.assert_array_equal(
        shape_codes(sums, 7, header, None, patterns), header.readout.quantize(sums)
    )


@settings(max_examples=30, deadline=None)
@given(
    mode=st.sampled_from(["L", "RGB"]),
    bits=st.sampled_from([2, 5, 32]),
    step=st.sampled_from([1, 90, 400_000]),
    alike=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_codes_keep_to_their_readout_and_counts(mode, bits, step, alike, seed):
    """Whatever the sums are, and where rows repeat each other."""
    phi = np.repeat(CAMERA.phi[:1], ROWS, 0) if alike else CAMERA.phi
    patterns, rng = Patterns(phi, WINDOW), np.random.default_rng(seed)
    header = header_for(patterns, Readout(bits, float(step)), mode, (2, 3))
    counts = rng.integers(0, ROWS, header.shape[-2:], endpoint=True)
    sums = rng.integers(-(2**31), 2**31, header.shape)
    codes = shape_codes(sums, step, header, counts, patterns)
    there = np.broadcast_to(np.arange(ROWS)[:, None, None] < counts, header.shape)
    assert not codes[~there].any()
    assert np.abs(codes.astype(np.int64)).max() <= header.readout.largest_code
    if bits == 32 and step == 400_000 and not alike:  # nothing is clipped: all errors are small
        assert np.abs(sums - step * codes.astype(np.int64))[there].max() < 5 * step


@pytest.mark.parametrize("windows", [(1, 1), (40, 40)])
def test_windows_do_not_disturb_each_other(windows):
    """Nor do the groups in which they are rounded."""
    header = header_for(CAMERA, Readout(16, 50.0), windows=windows)
    sums, one = sums_of(header, 3), header_for(CAMERA, Readout(16, 50.0), windows=(1, 1))
    last = shape_codes(sums[:, -1:, -1:], 50, one, None, CAMERA)
    codes = shape_codes(sums, 50, header, None, CAMERA)
    np.testing.assert_array_equal(codes[:, -1:, -1:], last)
