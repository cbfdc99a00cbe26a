"""Coded measurement files: nothing is lost, nothing differs between machines, damage is told."""

import contextlib
import json
import math
import os
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data

import tersense
from tersense.errors import TersenseError
from tersense.measurements.codec import container, prediction, rangecoder
from tersense.measurements.codec.prediction import COEFFICIENT, FRACTION, Prediction
from tersense.measurements.codec.tables import (
    PHASES,
    REACH,
    TOTAL_BITS,
    choose_table,
    cumulative_tables,
)
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import Header
from tersense.models.imager import Imager
from tersense.sensing.patterns import Patterns, random_patterns

GOLDEN = Path(__file__).parents[1] / "golden/measurements-v3.tsm"
CAMERA = random_patterns(20, window=8, density=0.2, stride=8, seed=1)


def header_for(patterns, height, width, **more):
    return Header(height, width, more.pop("mode", "L"), patterns.window, patterns.stride,
                  len(patterns), patterns.hash, **more)  # fmt: skip


def through(y, patterns, tmp_path):
    y.save(tmp_path / "y.tsm", patterns)
    return Measurements.load(tmp_path / "y.tsm", patterns=patterns)


def same(one, other):
    np.testing.assert_array_equal(one.values, other.values)
    assert one.header == other.header
    assert (one.counts is None) == (other.counts is None)
    if one.counts is not None:
        np.testing.assert_array_equal(one.counts, other.counts)


def test_coded_files_stay_readable():
    """The third format, as it was first written."""
    phi = (np.arange(64) * 5 % 7 % 3 - 1).astype(np.int8).reshape(4, 4, 4)
    patterns, content = Patterns(phi, 2), GOLDEN.read_bytes()
    y = Measurements.load(GOLDEN, patterns=patterns)
    readout = Readout(9, 2.0, 1.5, 11)
    assert y.header == Header(5, 7, "RGB", 4, 2, 4, patterns.hash, readout, 2)
    counts = np.arange(36).reshape(3, 3, 4) % 5
    counts[0, 0, 0] = 4
    np.testing.assert_array_equal(y.counts, counts)
    expected = (np.arange(144) * 7 % 511 - 255).reshape(3, 4, 3, 4)
    there = np.arange(4)[:, None, None] < counts[:, None]
    np.testing.assert_array_equal(y.values, np.where(there, expected, 0))
    # The header is deflated, which not every zlib does alike.
    written = y.to_bytes(patterns)
    streams = [made[7 + int.from_bytes(made[5:7], "little") : -4] for made in (content, written)]
    assert streams[0] == streams[1]


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    mode=st.sampled_from(["L", "RGB"]),
    largest=st.sampled_from([0, 1, 3, 200, 100_000, 2**31 - 1]),
    maps=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_integers_come_back(tmp_path_factory, size, mode, largest, maps, seed):
    """Also such as no camera measures: the coder may expect, it must not assume."""
    rng, header = np.random.default_rng(seed), header_for(CAMERA, *size, mode=mode)
    values = rng.integers(-largest, largest, header.shape, dtype=np.int32, endpoint=True)
    counts = None
    if maps and (mode == "RGB" or maps == 1):
        grid = header.shape[-2:]
        counts = rng.integers(0, 20, grid if maps == 1 else (3, *grid), endpoint=True)
        counts.flat[0] = 7  # something is measured
        there = np.arange(20)[:, None, None] < counts[..., None, :, :]
        values = np.where(there, values, 0)
    y = Measurements(values, header, counts)
    same(through(y, CAMERA, tmp_path_factory.mktemp("y")), y)


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize(
    "readout",
    [Readout(), Readout(12, 40.0), Readout.ranging(6), Readout(noise=20.0, seed=3),
     Readout.ranging(8, photons=0.5)],
    ids=str,
)  # fmt: skip
def test_photographs_come_back_and_take_less(color, readout, tmp_path):
    image = data.astronaut()[:150, :170]
    imager = tersense.load("paper-r25")
    y = imager.sense(image if color else image[..., 1], readout=readout)
    same(through(y, imager.patterns, tmp_path), y)
    assert (tmp_path / "y.tsm").stat().st_size < 0.85 * len(y.to_bytes())


@pytest.mark.parametrize("bits", [None, 10])
def test_masks_of_zeros_and_ones_take_less(bits, tmp_path):
    """Their sums are almost all brightness, so that the factors must not lose the rest."""
    masks = (scipy.linalg.hadamard(1024).reshape(-1, 32, 32) > 0).astype(np.int8)
    imager = Imager.untrained(Patterns(masks, 32))
    y = imager.sense(data.camera()[200:264, 200:264], bits=bits)
    same(through(y, imager.patterns, tmp_path), y)
    assert (tmp_path / "y.tsm").stat().st_size < 0.4 * len(y.to_bytes())


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["ones", "masks", "alike"]),
    widest=st.sampled_from([1, 100, 2**31 - 1]),
    largest=st.sampled_from([5, 30_000, 2**31 - 1]),
    seed=st.integers(0, 2**32 - 1),
)
def test_extreme_patterns_and_steps_come_back(tmp_path_factory, kind, widest, largest, seed):
    """Sums of products that overflow must do so in the decoder, too, and give a number."""
    rng = np.random.default_rng(seed)
    phi = rng.integers(0, 1, (30, 16, 16), np.int8, endpoint=True)
    phi = {"ones": np.ones_like(phi), "masks": phi, "alike": np.repeat(phi[:1], 30, 0)}[kind]
    patterns = Patterns(phi, 16)
    steps = np.floor(np.exp(rng.uniform(0, np.log(widest), 30))).tolist()
    offsets = rng.choice([0, 7, 2**31 - 1, -(2**31) + 1], 30).tolist()
    readout = Readout(32, steps=tuple(steps), offsets=tuple(offsets))
    header = header_for(patterns, 33, 70, readout=readout, version=2)
    values = rng.integers(-largest, largest, header.shape, dtype=np.int32, endpoint=True)
    y = Measurements(values, header)
    same(through(y, patterns, tmp_path_factory.mktemp("y")), y)


def test_offsets_cost_codes_nothing(tmp_path):
    """Codes are predicted around their offsets; programs that know format 3 refuse the file."""
    y = Imager.untrained(CAMERA).sense(data.camera())
    plain = y.read_out(Readout(12, steps=(30.0,) * 20))
    moved = y.read_out(Readout(12, steps=(30.0,) * 20, offsets=tuple(range(-2, 18))))
    same(through(moved, CAMERA, tmp_path), moved)
    assert moved.to_bytes(CAMERA)[4] == 4
    assert plain.to_bytes(CAMERA)[4] == 3
    assert len(moved.to_bytes(CAMERA)) - len(plain.to_bytes(CAMERA)) < 100  # the offsets themselves


def test_memory_does_not_grow_by_more_than_the_file(tmp_path):
    """Large images are coded in groups of windows."""
    header = header_for(CAMERA, 2000, 2000)
    y = Measurements(np.zeros(header.shape, np.int32), header)
    y.to_bytes(CAMERA)  # compiled, and what is kept is kept
    tracemalloc.start()
    content = y.to_bytes(CAMERA)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < y.values.nbytes / 2 + 4 * len(content)


def test_deep_pixels_come_back(tmp_path):
    image = data.camera()[:90, :70].astype(np.uint16) * 16
    imager = Imager.untrained(CAMERA)
    y = imager.sense(image, depth=12)
    same(through(y, CAMERA, tmp_path), y)


def test_a_file_of_a_photograph_has_a_third_of_the_bits():
    """65,536 sums of 460 pixels each, all exact: 8 bits per pixel in a plain file."""
    imager = tersense.load("lapped").at_rate(0.25)
    y = imager.sense(data.camera())
    assert 8 * len(y.to_bytes(imager.patterns)) / 512**2 < 2.7


def test_headers_are_small():
    y = Imager.untrained(CAMERA).sense(np.full((8, 8), 116, np.uint8), readout=Readout(12, 40.0))
    assert len(y.to_bytes(CAMERA)) < 75


@pytest.mark.parametrize("scale", [20, 100, 256, 700, 2000])
def test_tables_are_those_of_students_distribution(scale):
    """An outside reference; the table of a scale serves a quarter of an octave."""
    table, beyond = choose_table(scale)
    assert beyond == 0
    octave = 2.0 ** np.floor(np.log2(scale / 256))
    width = octave * (1 + (np.floor((scale / 256 / octave - 1) * 4) + 0.5) / 4)
    assert 0.88 < width / (scale / 256) < 1.13
    borders = np.arange(-REACH - 0.5, REACH + 1)
    for phase in range(PHASES):
        found = cumulative_tables()[table + phase, 1:-1] / 2**TOTAL_BITS
        expected = scipy.stats.t.cdf((borders - phase / PHASES) / width, df=4)
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_larger_scales_leave_out_last_bits():
    for beyond in range(1, 12):
        assert choose_table(2040 << beyond) == (choose_table(2040)[0], beyond)


def test_predictions_are_the_best_linear_ones():
    """Against the normal equations in floating point."""
    patterns = random_patterns(12, window=8, density=0.3, seed=4)
    step = np.full(12, 8)
    found = Prediction.of(patterns, step)
    places = np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), -1).reshape(-1, 2)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    phi = patterns.phi.reshape(12, -1).astype(float)
    noise = (12**2 / 12 + 512 * 68**2 / 2**16) * np.eye(12)  # 12, the middle of 8 to 16
    covariance = 68**2 * phi @ (1 / (1 + distance / 60)) @ phi.T + noise
    lower = np.linalg.cholesky(covariance)
    deviations = np.diag(lower)
    np.testing.assert_allclose(found.deviations / 2**FRACTION * 8, deviations, rtol=0.05)
    expected = np.tril(lower / deviations, -1)
    np.testing.assert_allclose(found.coefficients / 2**COEFFICIENT, expected, atol=5e-3)


def test_covariances_are_exact():
    """Whole numbers that are computed by Fourier transforms, against their definition."""
    patterns = random_patterns(5, window=11, density=0.9, seed=2)
    places = np.indices((11, 11)).reshape(2, -1)
    squares = ((places[:, :, None] - places[:, None]) ** 2).sum(axis=0)
    table = [256 * 60 * 65536 // (256 * 60 + math.isqrt(65536 * s)) for s in squares.flat]
    phi = patterns.phi.reshape(5, -1).astype(np.int64)
    expected = phi @ np.array(table).reshape(121, 121) @ phi.T
    np.testing.assert_array_equal(prediction._covariance(patterns), expected)


def test_the_range_coder_takes_the_bits_that_numbers_are_worth():
    """Shannon's bound, from scipy; and the decoder follows."""
    rng = np.random.default_rng(0)
    frequencies = np.array([1, 7, 50_000, 300, 2**16 - 50_308])
    numbers = rng.choice(5, 20_000, p=frequencies / 2**16)
    ends = np.concatenate([[0], frequencies.cumsum()])
    state, out = np.zeros(4, np.uint64), np.zeros(40_000, np.uint8)
    rangecoder.start(state)
    for number in numbers.tolist():
        rangecoder.put(state, out, ends[number], frequencies[number], 16)
    rangecoder.finish(state, out)
    size = int(state[rangecoder.PLACE])
    worth = -np.log2(frequencies[numbers] / 2**16).sum() / 8
    assert worth - 1 <= size <= 1.0005 * worth + 4
    rangecoder.open_source(state, out[:size])
    for number in numbers.tolist():
        seen = rangecoder.look(state, 16)
        assert np.searchsorted(ends, seen, side="right") - 1 == number
        rangecoder.take(state, out[:size], ends[number], frequencies[number], 16)


GENERIC = """
import sys, numpy as np
from tersense.measurements.measurements import Measurements
from tersense.sensing.patterns import read_patterns
patterns = read_patterns(sys.argv[2], 8)
y = Measurements.load(sys.argv[1], patterns=patterns)
sys.stdout.buffer.write(y.to_bytes(patterns))
"""


def test_another_instruction_set_gives_the_same_bytes(tmp_path):
    """A decoder that differs in one bit of one prediction is lost."""
    image = data.astronaut()[:120, :130]
    y = Imager.untrained(CAMERA).sense(image, readout=Readout(12, 9.0))
    y.save(tmp_path / "y.tsm", CAMERA)
    np.save(tmp_path / "phi.npy", CAMERA.phi)
    oldest = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_NUM_THREADS": "1",
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "OPENBLAS_CORETYPE": "Prescott",
    }
    command = [sys.executable, "-c", GENERIC, str(tmp_path / "y.tsm"), str(tmp_path / "phi.npy")]
    done = subprocess.run(command, env={**os.environ, **oldest}, capture_output=True, check=True)
    assert done.stdout == (tmp_path / "y.tsm").read_bytes()


@pytest.fixture
def coded(tmp_path):
    y = Imager.untrained(CAMERA).sense(data.camera()[:30, :40], readout=Readout(12, 9.0))
    y.save(tmp_path / "y.tsm", CAMERA)
    return tmp_path / "y.tsm"


def test_what_it_takes_to_read_a_file_is_said(coded):
    with pytest.raises(TersenseError, match=r"coded with the patterns .* give them, or read it"):
        Measurements.load(coded)
    other = random_patterns(20, window=8, density=0.2, stride=8, seed=2)
    with pytest.raises(TersenseError, match=r"it was taken with patterns .*, not "):
        Measurements.load(coded, patterns=other)
    with pytest.raises(TersenseError, match=r"^no built-in model has the patterns"):
        tersense.read(coded)
    with pytest.raises(TersenseError, match=r"^no model or model file is called nowhere"):
        tersense.read(coded, "nowhere")
    header, counts = Measurements.peek(coded)
    assert (header.height, header.width, counts) == (30, 40, None)
    assert CAMERA.hash.startswith(header.phi)


def test_patterns_that_did_not_take_them_cannot_code_them(coded):
    y = Measurements.load(coded, patterns=CAMERA)
    with pytest.raises(TersenseError, match="these measurements were taken with patterns"):
        y.to_bytes(random_patterns(20, window=8, density=0.2, stride=8, seed=2))


def rewritten(content, change=lambda words: words, version=3, stream=None):
    """A file as a hostile program writes it: everything fits but what was changed."""
    length = int.from_bytes(content[5:7], "little")
    words, _ = container._read_words(content)
    del words["mode"]
    deflater = zlib.compressobj(9, wbits=-15, zdict=container._WORDS)
    text = json.dumps(change(words)).encode()
    header = deflater.compress(text) + deflater.flush()
    body = content[7 + length : -4] if stream is None else stream
    made = b"\x89TSM" + bytes([version]) + len(header).to_bytes(2, "little") + header + body
    return made + zlib.crc32(made).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: {**w, "height": 16_000, "width": 16_000}, "too large for so few bytes"),
        (lambda w: {**w, "height": 16_000, "width": 16_000, "patterns": 2**62}, "too large for so"),
        (lambda w: {**w, "height": 10**6, "width": 10**6}, "must have at most"),
        (lambda w: {**w, "counts": 2}, "counts must be 1 map"),
        (lambda w: {**w, "counts": 3}, "counts must be 1 map"),
        (lambda w: {**w, "counts": [1]}, "counts must be 1 map"),
        (lambda w: {**w, "mode": "CMYK"}, "mode"),
        (lambda w: {**w, "step": "wide"}, "step"),
        (lambda w: {**w, "step": -3}, "step"),
        (lambda w: {**w, "step": 10**400}, "too large"),
        (lambda w: {**w, "steps": [1, 2]}, "steps must be 20 whole numbers"),
        (lambda w: {**w, "bits": 2}, "do not fit their readout"),
        (lambda w: {**w, "phi": "ab"}, "must have 16 digits"),
        (lambda w: {**w, "phi": 7}, "phi"),
        (lambda w: {k: v for k, v in w.items() if k != "stride"}, "stride"),
        (lambda w: [w], "not a table"),
    ],
)
def test_hostile_headers_are_one_line(coded, change, reason):
    coded.write_bytes(rewritten(coded.read_bytes(), change))
    with pytest.raises(TersenseError, match=reason) as caught:
        Measurements.load(coded, patterns=CAMERA)
    assert "\n" not in str(caught.value)


def test_more_rows_than_the_camera_has_are_one_line(tmp_path):
    one = CAMERA.first(1)
    y = Imager.untrained(one).sense(data.camera()[:30, :40])
    content = rewritten(y.to_bytes(one), lambda words: {**words, "patterns": 20})
    (tmp_path / "y.tsm").write_bytes(content)
    with pytest.raises(TersenseError, match="20 rows, but the camera given has 8, 8 and 1"):
        Measurements.load(tmp_path / "y.tsm", patterns=one)


def test_steps_of_more_rows_than_a_header_holds_are_told_when_they_are_written():
    rows = 16_384
    patterns = random_patterns(rows, 8, 0.5, stride=8)
    random = np.random.default_rng(0)
    readout = Readout(16, steps=tuple(random.integers(20_000, 40_000, rows).astype(float).tolist()))
    y = Measurements(np.zeros((rows, 1, 1), np.int32), header_for(patterns, 8, 8, readout=readout))
    with pytest.raises(TersenseError, match="some thousand rows, got 16384; write a plain one"):
        y.to_bytes(patterns)


def test_newer_formats_are_told(coded):
    coded.write_bytes(rewritten(coded.read_bytes(), version=5))
    with pytest.raises(TersenseError, match="format 5 is newer than 4"):
        Measurements.load(coded, patterns=CAMERA)


@pytest.mark.parametrize("cut", [5, 9, 40, -5, -1])
def test_files_that_are_cut_off_are_told(coded, cut):
    coded.write_bytes(coded.read_bytes()[:cut])
    with pytest.raises(TersenseError, match="not a usable measurement file"):
        Measurements.load(coded, patterns=CAMERA)


def test_every_damaged_byte_is_noticed(coded):
    content = coded.read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        coded.write_bytes(damaged)
        with pytest.raises(TersenseError):
            Measurements.load(coded, patterns=CAMERA)


@settings(max_examples=60, deadline=None)
@given(stream=st.binary(max_size=400), counts=st.booleans())
def test_any_stream_is_read_or_refused(tmp_path_factory, stream, counts):
    """With a checksum that fits, as damage never has it."""
    y = Imager.untrained(CAMERA).sense(data.camera()[:30, :40], readout=Readout(12, 9.0))
    content = rewritten(y.to_bytes(CAMERA), lambda w: w | ({"counts": 1} if counts else {}),
                        stream=stream)  # fmt: skip
    path = tmp_path_factory.mktemp("y") / "y.tsm"
    path.write_bytes(content)
    with contextlib.suppress(TersenseError):
        found = Measurements.load(path, patterns=CAMERA)
        assert abs(found.values).max() <= found.header.readout.largest_code


def test_first_rows_read_what_they_took(tmp_path):
    """A nested camera at a lower rate; the whole camera reads it."""
    few = CAMERA.first(9)
    y = Imager.untrained(few).sense(data.camera()[:30, :40])
    y.save(tmp_path / "y.tsm", few)
    same(Measurements.load(tmp_path / "y.tsm", patterns=CAMERA), y)


def test_windows_of_another_stride_are_another_camera(coded):
    with pytest.raises(TersenseError, match="window 8, stride 8 and 20 rows, but the camera given"):
        Measurements.load(coded, patterns=Patterns(CAMERA.phi, 4))
