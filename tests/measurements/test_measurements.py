"""The measurement file: exact, small, and never believed before it is checked."""

import hashlib
import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import tersense
from tersense.errors import TersenseError
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import Header

GOLDEN = Path(__file__).parents[1] / "golden"
HEADER = Header(
    height=20, width=30, mode="L", window=8, stride=8, rows=3, phi="ab" * 32
)  # 3×4 windows


def measured(header=HEADER, low=-300, high=300, seed=0):
    values = np.random.default_rng(seed).integers(low, high, header.shape, dtype=np.int32)
    return Measurements(values, header)


@pytest.fixture(scope="module")
def content():
    return measured().to_bytes()


def load_bytes(tmp_path, content):
    path = tmp_path / "y.tsm"
    path.write_bytes(content)
    return Measurements.load(path)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from(["L", "RGB"]),
    st.integers(1, 9), st.integers(1, 4), st.sampled_from([1, 100, 30_000, 2_000_000]),
)  # fmt: skip
def test_round_trip(tmp_path_factory, height, width, mode, window, patterns, largest):
    header = Header(height, width, mode, window, max(1, window // 2), patterns, "cd" * 32)
    y = measured(header, -largest, largest)
    again = load_bytes(tmp_path_factory.mktemp("y"), y.to_bytes())
    np.testing.assert_array_equal(again.values, y.values)
    assert again.header == header


@pytest.mark.parametrize(
    ("low", "high", "stored"),
    [(-128, 127, np.int8), (-128, 128, np.int16), (-32769, 0, np.int32), (0, 32767, np.int16)],
)
def test_the_smallest_type_is_stored(tmp_path, low, high, stored):
    y = measured()
    y.values[0, 0, :2] = low, high
    y.values[...] = np.clip(y.values, low, high)
    y.save(tmp_path / "y.tsm")
    assert load_file(tmp_path / "y.tsm")["y"].dtype == stored
    np.testing.assert_array_equal(Measurements.load(tmp_path / "y.tsm").values, y.values)


def test_files_of_the_first_version_stay_readable():
    y = Measurements.load(GOLDEN / "measurements-v1.tsm")
    assert y.header == Header(
        5, 7, "RGB", 4, 2, 2, "0123456789abcdef" * 4, Readout(9, 2.5, 1.5, 11)
    )
    expected = np.arange(3 * 2 * 3 * 4) * 7 % 511 - 255
    np.testing.assert_array_equal(y.values.ravel(), expected)
    assert y.to_bytes() == (GOLDEN / "measurements-v1.tsm").read_bytes()


def test_packed_files_stay_readable_and_are_what_the_module_says():
    """The second format, byte by byte: the steps, then codes of 5 bits as one large number."""
    y = Measurements.load(GOLDEN / "measurements-v2.tsm")
    readout = Readout(5, 1.0, 1.5, 11, 0.25, 100.0, (700.0, 1.0))
    assert y.header == Header(5, 7, "RGB", 4, 2, 2, "0123456789abcdef" * 4, readout, 2)
    expected = np.arange(3 * 2 * 3 * 4) * 7 % 31 - 15
    np.testing.assert_array_equal(y.values.ravel(), expected)
    content = (GOLDEN / "measurements-v2.tsm").read_bytes()
    number = sum((int(code) % 32) << (5 * k) for k, code in enumerate(expected))
    assert content[-49:] == b"\xbc\x02\x01\x00" + number.to_bytes(45, "little")
    assert y.to_bytes() == content


def test_files_with_offsets_stay_readable_and_are_what_the_module_says():
    """The fourth format, byte by byte: steps, then offsets, then codes as in the second."""
    y = Measurements.load(GOLDEN / "measurements-v4.tsm")
    readout = Readout(5, 1.0, 1.5, 11, 0.25, 100.0, (700.0, 1.0), (-2, 300))
    assert y.header == Header(5, 7, "RGB", 4, 2, 2, "0123456789abcdef" * 4, readout, 4)
    packed = Measurements.load(GOLDEN / "measurements-v2.tsm")
    np.testing.assert_array_equal(y.values, packed.values)
    content = (GOLDEN / "measurements-v4.tsm").read_bytes()
    assert content[-53:-45] == b"\xbc\x02\x01\x00" + b"\xfe\xff\x2c\x01"
    assert content[-45:] == packed.to_bytes()[-45:]
    assert y.to_bytes() == content


@pytest.mark.parametrize("bits", [2, 4, 7, 8, 13, 32])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_codes_take_their_bits_and_the_file_is_as_large_as_it_says(tmp_path, bits, mode):
    exact = measured(replace(HEADER, mode=mode), -30_000, 30_000)
    for y in (exact.quantized(bits), exact.quantized(bits, full_scale=20_000)):
        again = load_bytes(tmp_path, y.to_bytes())
        np.testing.assert_array_equal(again.values, y.values)
        assert again.header == y.header
        content = y.to_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        channels = 1 if mode == "L" else 3
        assert y.bits_per_pixel == 8 * (len(content) - header) / (600 * channels)
        offsets = y.header.readout.offsets
        wide = 2 if max(map(abs, offsets), default=0) > 127 else 1
        of_rows = 2 * len(y.header.readout.steps) + wide * len(offsets)
        assert len(content) - header == -(-36 * channels * bits // 8) + of_rows


def test_steps_of_more_than_16_bits_are_kept(tmp_path):
    y = measured(low=-(2**30), high=2**30).quantized(3)
    assert max(y.header.readout.steps) > 2**16
    again = load_bytes(tmp_path, y.to_bytes())
    assert again.header == y.header
    assert len(again.to_bytes()) == len(y.to_bytes())


def test_offsets_of_more_than_16_bits_are_kept(tmp_path):
    y = measured(low=2**30, high=2**30 + 50).quantized(5)
    assert max(y.header.readout.offsets) > 2**16
    again = load_bytes(tmp_path, y.to_bytes())
    assert again.header == y.header
    np.testing.assert_array_equal(again.values, y.values)


def test_steps_need_a_row_each():
    with pytest.raises(ValueError, match="steps must be 3 whole numbers, got 2"):
        replace(HEADER, readout=Readout(4, steps=(1.0, 2.0)))
    with pytest.raises(ValueError, match="steps must be 3 whole numbers"):
        replace(HEADER, readout=Readout(4, steps=(1.0, 2.0, 2.5)))


def test_codes_beyond_their_bits_are_not_written():
    header = replace(HEADER, readout=Readout(4, 10.0), version=2)
    with pytest.raises(ValueError, match="within ±7"):
        measured(header).to_bytes()


@pytest.mark.parametrize("depth", range(9, 17))
def test_deep_pixels_are_said_in_a_format_that_older_programs_refuse(tmp_path, depth):
    y = measured(replace(HEADER, depth=depth), -(2**20), 2**20)
    content = y.to_bytes()
    assert rb"\"depth\": %d" % depth in content
    assert rb"\"version\": 2" in content
    again = load_bytes(tmp_path, content)
    np.testing.assert_array_equal(again.values, y.values)
    assert again.header == y.header
    assert again.header.largest_pixel == 2**depth - 1


def test_files_of_deep_pixels_stay_readable():
    y = Measurements.load(GOLDEN / "measurements-deep.tsm")
    readout = Readout(9, 2.5, 1.5, 11)
    assert y.header == Header(5, 7, "L", 4, 2, 2, "0123456789abcdef" * 4, readout, depth=12)
    np.testing.assert_array_equal(y.values.ravel(), np.arange(2 * 3 * 4) * 7 % 511 - 255)
    assert y.to_bytes() == (GOLDEN / "measurements-deep.tsm").read_bytes()


def test_eight_bits_are_not_said(content):
    assert b"depth" not in content
    assert rb"\"version\": 1" in content
    assert HEADER.depth == 8


def test_flipping_any_single_byte_is_detected(tmp_path, content):
    for place in range(len(content)):
        for flip in (0x01, 0x20, 0xFF):
            damaged = bytearray(content)
            damaged[place] ^= flip
            with pytest.raises(TersenseError):
                load_bytes(tmp_path, bytes(damaged))


def resealed(header_edit, content):
    """Edit the header and give the file a checksum that is right again."""
    length = int.from_bytes(content[:8], "little")
    outer = json.loads(content[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["tersense"])
    header_edit(outer, inner)
    inner["checksum"] = "sha256:" + "0" * 64
    outer["__metadata__"]["tersense"] = json.dumps(inner)
    text = json.dumps(outer).encode()
    blank = len(text).to_bytes(8, "little") + text + content[8 + length :]
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def deepened(depth):
    return lambda outer, inner: inner.update(version=2, depth=depth)


EDITS = {
    "newer version": (lambda o, i: i.update(version=5), "file: its format 5 is newer"),
    "version of coded files": (lambda o, i: i.update(version=3), "must not be 3"),
    "version of nobody": (lambda o, i: i.update(version=0), "version must be at least 1"),
    "packed, but not": (lambda o, i: i.update(version=2, bits=10), "packed y must be U8, got I16"),
    "deep pixels in format 1": (lambda o, i: i.update(depth=12), "depth must be 8 in format 1"),
    "no depth at all": (deepened(0), "depth must be at least 8 and at most 16, got 0"),
    "enormous depth": (deepened(99), "depth must be at least 8 and at most 16, got 99"),
    "yes as depth": (deepened(True), "depth must be an integer, got True"),
    "no number as depth": (deepened(float("nan")), "depth must be an integer, got nan"),
    "text as depth": (deepened("12"), "depth must be an integer, got '12'"),
    "half a bit": (deepened(12.5), "depth must be an integer, got 12.5"),
    "version as text": (lambda o, i: i.update(version="1"), "format"),
    "no version": (lambda o, i: i.pop("version"), "version"),
    "another height": (lambda o, i: i.update(height=200), "shape"),
    "enormous image": (lambda o, i: i.update(height=10**12, width=10**12), "pixels"),
    "enormous image and tensor": (
        lambda o, i: (i.update(height=8 * 10**6), o["y"].update(shape=[3, 10**6, 4])),
        "bytes",
    ),
    "negative height": (lambda o, i: i.update(height=-20), "height must be at least 1, got -20"),
    "real height": (lambda o, i: i.update(height=20.0), "height"),
    "yes as height": (lambda o, i: i.update(height=True), "height"),
    "unknown mode": (lambda o, i: i.update(mode="CMYK"), "mode must be L or RGB"),
    "stride beyond window": (lambda o, i: i.update(stride=9), "stride 9"),
    "no patterns": (lambda o, i: i.update(patterns=0), "patterns must be at least 1"),
    "step of nothing": (lambda o, i: i.update(step=0.0), "step"),
    "step without end": (lambda o, i: i.update(step=float("inf")), "step"),
    "other type of the same size": (lambda o, i: o["y"].update(dtype="U16"), "U16"),
    "other shape of the same size": (lambda o, i: o["y"].update(shape=[3, 4, 3]), "shape"),
    "no tensor": (lambda o, i: o.pop("y"), "file: no 'y'$"),
    "other offsets": (lambda o, i: o["y"].update(data_offsets=[0, 1]), "something else than y"),
    "another tensor": (lambda o, i: o.update(z=o["y"]), "something else than y"),
    "fewer bits than none": (lambda o, i: i.update(bits=-1), "bits must be at least 0"),
    "less noise than none": (lambda o, i: i.update(noise=-1.0), "noise must be at least 0"),
    "noise without end": (lambda o, i: i.update(noise=float("inf")), "noise must be finite"),
    "a negative seed": (lambda o, i: i.update(seed=-1), "seed must be at least 0"),
    "no hash": (lambda o, i: i.pop("phi"), "phi"),
}


PACKED_EDITS = {
    "fewer bits": (lambda o, i: i.update(bits=4), "shape"),
    "more bits": (lambda o, i: i.update(bits=6), "shape"),
    "no bits": (lambda o, i: i.update(bits=0), "shape"),
    "an older format": (lambda o, i: i.update(version=1), "shape"),
    "another type": (lambda o, i: o["y"].update(dtype="I8"), "packed y must be U8, got I8"),
    "enormous": (
        lambda o, i: (i.update(height=8 * 10**6), o["y"].update(shape=[7_500_000])),
        "bytes, not 75",
    ),
    "enormous image": (lambda o, i: i.update(height=10**12, width=10**12), "pixels"),
    "no steps": (lambda o, i: o.pop("steps"), "bytes"),
    "steps for others": (lambda o, i: o["steps"].update(shape=[2]), "there are 3 patterns"),
    "steps of reals": (lambda o, i: o["steps"].update(dtype="F16"), "F16"),
    "wider steps": (lambda o, i: o["steps"].update(dtype="I32"), "bytes"),
    "steps behind": (lambda o, i: o["steps"].update(data_offsets=[23, 29]), "something else"),
    "offsets of the second format": (lambda o, i: i.update(version=2), "bytes"),
    "offsets of reals": (lambda o, i: o["offsets"].update(dtype="F16"), "F16"),
    "offsets for others": (lambda o, i: o["offsets"].update(shape=[2]), "there are 3 patterns"),
    "more": (lambda o, i: o.update(z=o["y"]), "something else than y"),
    "steps that are none": (lambda o, i: o.update(steps=7), "measurement file"),
    "photons of nobody": (lambda o, i: i.update(photons=-1.0), "photons must be at least 0"),
    "percentile of nobody": (lambda o, i: i.update(percentile=200.0), "at most 100"),
}


@pytest.mark.parametrize("edit", PACKED_EDITS)
def test_a_lie_about_packed_values_is_refused(tmp_path, edit):
    change, expected = PACKED_EDITS[edit]
    with pytest.raises(TersenseError, match=expected):
        load_bytes(tmp_path, resealed(change, measured().quantized(5).to_bytes()))


@pytest.mark.parametrize(("place", "value", "said"), [
    (-29, 0, "steps must be above 0"),
    (-1, 0xFF, "filled up with zeros"),
    (-23, 0x10, "within ±15"),
])  # fmt: skip
def test_packed_values_that_nobody_writes_are_refused(tmp_path, place, value, said):
    y = Measurements(np.zeros(HEADER.shape, np.int32), HEADER).quantized(5)
    content = bytearray(y.to_bytes())
    assert set(content[-23:]) == {0}
    content[place] = value
    with pytest.raises(TersenseError, match=said):
        load_bytes(tmp_path, resealed(lambda o, i: None, bytes(content)))


def test_a_file_that_was_cut_or_changed_says_how(tmp_path, content):
    end = 8 + int.from_bytes(content[:8], "little")  # of the header
    with pytest.raises(TersenseError, match="it does not begin like one"):
        load_bytes(tmp_path, content[: end - 1])
    with pytest.raises(TersenseError, match=f"it has {end} bytes, not {len(content)}$"):
        load_bytes(tmp_path, content[:end])
    with pytest.raises(TersenseError, match="the checksum does not match, the file is damaged"):
        load_bytes(tmp_path, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(TersenseError, match="it has no checksum"):
        load_bytes(tmp_path, content.replace(b"sha256:", b"sha999:"))


def test_a_header_may_have_64_kib_and_no_more(tmp_path, content):
    length = int.from_bytes(content[:8], "little")

    def padded(size):  # as safetensors does, with spaces
        blank = re.sub(rb"sha256:\w{64}", b"sha256:" + b"0" * 64, content[8 : 8 + length])
        whole = size.to_bytes(8, "little") + blank.ljust(size) + content[8 + length :]
        return whole.replace(b"0" * 64, hashlib.sha256(whole).hexdigest().encode(), 1)

    np.testing.assert_array_equal(load_bytes(tmp_path, padded(2**16)).values, measured().values)
    with pytest.raises(TersenseError, match="it does not begin like one"):
        load_bytes(tmp_path, padded(2**16 + 1))


@pytest.mark.parametrize("edit", EDITS)
def test_a_well_sealed_lie_is_refused(tmp_path, content, edit):
    change, expected = EDITS[edit]
    with pytest.raises(TersenseError, match=expected):
        load_bytes(tmp_path, resealed(change, content))


def test_two_thousand_mutated_files_give_clean_errors_in_little_memory(tmp_path, content):
    rng = np.random.default_rng(7)
    tracemalloc.start()
    for number in range(2_000):  # `make fuzz` tries many more
        damaged = bytearray(content)
        kind = number % 5
        if kind == 0:
            damaged = damaged[: rng.integers(len(damaged))]
        elif kind == 1:
            damaged += rng.bytes(rng.integers(1, 64))
        elif kind == 2:
            for place in rng.integers(0, len(damaged), rng.integers(1, 9)):
                damaged[place] ^= 1 << rng.integers(8)
        elif kind == 3:  # another header length
            damaged[rng.integers(8)] ^= 1 << rng.integers(8)
        else:  # digits of the header
            digits = [p for p in range(8, 440) if damaged[p] in b"0123456789"]
            place = rng.choice(digits)
            damaged[place] = ord("0") + (damaged[place] - ord("0") + rng.integers(1, 10)) % 10
        if bytes(damaged) == content:
            continue
        with pytest.raises(TersenseError) as error:
            load_bytes(tmp_path, bytes(damaged))
        assert "\n" not in str(error.value)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20  # the file has about a thousandth of it


@pytest.mark.parametrize(
    "other", [b"", b"\x00", b"\xff" * 100, b"\x08" + b"\x00" * 7 + b"[[[[[[[[", b"PNG" * 1000]
)
def test_other_files_are_refused(tmp_path, other):
    with pytest.raises(TersenseError, match="measurement file"):
        load_bytes(tmp_path, other)


def test_deeply_nested_json_is_refused(tmp_path):
    text = b"[" * 60_000
    with pytest.raises(TersenseError, match="measurement file"):
        load_bytes(tmp_path, len(text).to_bytes(8, "little") + text)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(TersenseError, match="cannot read"):
        Measurements.load(tmp_path / "none.tsm")


def test_wrong_shapes_cannot_be_made():
    with pytest.raises(ValueError, match="shape"):
        Measurements(np.zeros((3, 3, 3), np.int16), HEADER)
    with pytest.raises(ValueError, match="float64"):
        Measurements(np.zeros(HEADER.shape), HEADER)


def test_noise_has_its_deviation_and_is_recorded():
    header = replace(HEADER, height=800, width=800)
    exact = measured(header)
    noisy = exact.with_noise(20.0, seed=3)
    error = noisy.values - exact.values
    assert error.std() == pytest.approx(20, rel=0.03)
    assert abs(error.mean()) < 1
    assert (noisy.header.readout.noise, noisy.header.readout.seed) == (20.0, 3)
    np.testing.assert_array_equal(noisy.values, exact.with_noise(20.0, seed=3).values)
    assert (noisy.values != exact.with_noise(20.0, seed=4).values).any()
    np.testing.assert_array_equal(
        exact.with_noise(20.0).values, exact.with_noise(20.0, seed=0).values
    )


def test_from_no_noise_at_all_to_the_most_that_fits():
    exact = measured()
    np.testing.assert_array_equal(exact.with_noise(0.0).values, exact.values)
    assert exact.with_noise(1e7).header.readout.noise == 1e7


@pytest.mark.parametrize("bits", [2, 6, 8, 10])
def test_a_quantized_readout_errs_by_half_a_step_at_most(bits):
    exact = measured(low=-3000, high=3000)
    coarse = exact.quantized(bits, full_scale=3000)
    assert abs(coarse.values).max() <= 2 ** (bits - 1) - 1
    error = coarse.values * coarse.header.readout.step - exact.values
    assert abs(error).max() <= coarse.header.readout.step / 2 + 1e-9
    assert coarse.bits_per_pixel == pytest.approx(bits * coarse.per_pixel)


def test_what_exceeds_the_scale_is_clipped_on_both_sides():
    y = measured(low=-300, high=300)
    y.values[0, 0, :2] = -300, 300
    codes = y.quantized(4, full_scale=70).values
    assert (codes.min(), codes.max()) == (-7, 7)


def test_numbers_of_32_bits_are_the_widest():
    y = measured()
    np.testing.assert_array_equal(y.quantized(32, full_scale=300).values, y.values)
    wide = Measurements(np.full(HEADER.shape, 2**40), HEADER)
    with pytest.raises(ValueError, match="do not fit 32 bits"):
        wide.to_bytes()


def test_enough_bits_are_exact():
    exact = measured(low=-3000, high=3000)
    fine = exact.quantized(13, full_scale=3000)
    assert fine.header.readout.step == 1
    np.testing.assert_array_equal(fine.values, exact.values)


def test_a_quantized_file_comes_back_as_the_same_image(tmp_path):
    imager = tersense.load("paper-r25")
    image = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    y = imager.sense(image, bits=9, noise=3.0, seed=5)
    y.save(tmp_path / "y.tsm")
    again = Measurements.load(tmp_path / "y.tsm")
    np.testing.assert_array_equal(imager.reconstruct(again), imager.reconstruct(y))
    assert (imager.reconstruct(y) != imager.reconstruct(imager.sense(image))).any()


@pytest.mark.parametrize(("bits", "noise"), [(1, 0.0), (33, 0.0), (None, -1.0), (None, np.nan)])
def test_impossible_readouts_are_refused(bits, noise):
    with pytest.raises(ValueError, match=r"bits|noise"):
        tersense.load("paper-r25").sense(np.zeros((9, 9), np.uint8), bits, noise)


def test_bits_a_pixel_count_what_is_read_out():
    y = measured(low=-100, high=100)  # fits 8 bits
    assert y.per_pixel == 3 * 3 * 4 / 600
    assert y.bits_per_pixel == y.per_pixel * 8


def test_a_readout_happens_once():
    coarse = measured().quantized(8, full_scale=300)
    with pytest.raises(ValueError, match=r"must begin with exact .* are 8 bits"):
        coarse.quantized(6, full_scale=300)
    with pytest.raises(ValueError, match="must begin with exact"):
        coarse.with_noise(1.0)


def test_noise_that_no_integer_holds_is_refused():
    with pytest.raises(ValueError, match="noise"):
        measured().with_noise(1e11)


def test_numpy_takes_measurements_for_their_values():
    y = measured()
    assert np.array_equal(np.asarray(y), y.values)
    assert np.asarray(y, dtype=np.float64).dtype == np.float64
    copied = np.array(y)
    copied[:] = 0
    assert y.values.any()


def test_measurements_show_their_shape():
    assert repr(measured()) == "<Measurements 3×3×4 of 30×20 L>"


def test_measured_values_are_real_finite_numbers_or_missing():
    values = np.zeros(HEADER.shape)
    assert MeasuredValues(values, HEADER).missing == 0
    values[0, 0, :3] = np.nan
    assert MeasuredValues(values, HEADER).missing == 3 / 36
    with pytest.raises(ValueError, match=r"shape \(3, 3, 4\), got float64 of \(3, 4\)"):
        MeasuredValues(values[0], HEADER)
    with pytest.raises(ValueError, match="int64"):
        MeasuredValues(np.zeros(HEADER.shape, np.int64), HEADER)
    values[1, 1, 1] = -np.inf
    with pytest.raises(ValueError, match="write NaN"):
        MeasuredValues(values, HEADER)
