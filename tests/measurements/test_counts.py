"""Counts per window: a budget is never exceeded, and a file keeps only what was measured."""

import hashlib
import json
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from tersense.errors import TersenseError
from tersense.measurements.counts import (
    counts_by_importance,
    proportional_counts,
    read_counts,
    window_means,
)
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import Header
from tersense.sensing.geometry import Geometry

GOLDEN = Path(__file__).parents[1] / "golden"
HEADER = Header(20, 30, "L", 8, 8, 5, "ab" * 32)  # 3×4 windows
COUNTS = np.array([[5, 0, 1, 3], [2, 2, 4, 5], [0, 1, 5, 5]])


def counted(header=HEADER, counts=COUNTS, largest=300, seed=0):
    values = np.random.default_rng(seed).integers(-largest, largest, header.shape, dtype=np.int32)
    counts = np.asarray(counts)
    values[~np.broadcast_to(there(header, counts), header.shape)] = 0
    return Measurements(values, header, counts)


def there(header, counts):
    """Say plainly, window by window, what was measured."""
    full = np.broadcast_to(counts, (*header.shape[:-3], *header.shape[-2:]))
    mask = np.zeros(header.shape, bool)
    for place in np.ndindex(full.shape):
        mask[(*place[:-2], slice(full[place]), *place[-2:])] = True
    return mask


def load_bytes(folder, content):
    (folder / "y.tsm").write_bytes(content)
    return Measurements.load(folder / "y.tsm")


def assert_same(one, other):
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.counts, other.counts)
    assert one.header == other.header


# The budget


@given(
    st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=40),
    st.integers(0, 5), st.integers(0, 60), st.floats(0, 1.1),
)  # fmt: skip
def test_a_budget_is_spent_to_the_last_and_never_exceeded(weights, lowest, more, share):
    highest, number = lowest + more, len(weights)
    budget = lowest * number + int(share * more * number)
    counts = proportional_counts(np.array(weights), budget, lowest, highest)
    assert counts.sum() == min(budget, highest * number)
    assert counts.min() >= lowest
    assert counts.max() <= highest
    order = np.argsort(weights, kind="stable")
    assert (np.diff(counts[order]) >= -1).all()  # more weight, not less but for the rounding


def test_without_bounds_the_shares_are_proportional_to_less_than_one():
    weights = np.random.default_rng(0).random((7, 9))
    counts = proportional_counts(weights, 10_000, 0, 10_000)
    assert counts.shape == (7, 9)
    np.testing.assert_array_less(abs(counts - 10_000 * weights / weights.sum()), 1)


def test_what_the_bounds_leave_goes_to_the_others_in_proportion():
    counts = proportional_counts(np.array([0, 1, 2, 100]), 80, 5, 30)
    assert counts.tolist() == [5, 15, 30, 30]
    assert proportional_counts(np.zeros(3), 10, 1, 9).tolist() == [4, 3, 3]
    assert proportional_counts(np.array([0, 0, 1]), 10, 1, 6).tolist() == [2, 2, 6]


@pytest.mark.parametrize(("weights", "budget", "said"), [
    ([1.0, 2.0], 3, "budget must be at least 4, 2 for each of 2 windows, got 3"),
    ([1.0, -2.0], 9, "finite and at least 0"),
    ([1.0, np.nan], 9, "finite and at least 0"),
    ([], 9, "finite and at least 0"),
])  # fmt: skip
def test_what_cannot_be_shared_out_is_refused(weights, budget, said):
    with pytest.raises(TersenseError, match=said):
        proportional_counts(np.array(weights), budget, 2, 7)


@pytest.mark.parametrize("size", [(64, 96), (50, 70), (5, 1)])
def test_a_window_is_as_important_as_its_own_cell(size):
    image = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    means = window_means(image, Geometry(32, 16))
    assert means.shape == Geometry(32, 16).grid(*size)
    for i, j in np.ndindex(means.shape):
        cell = image[16 * i : 16 * i + 16, 16 * j : 16 * j + 16]
        assert means[i, j] == pytest.approx(cell.mean())
    counts = counts_by_importance(image, Geometry(32, 16), 20, 3, 90)
    assert counts.sum() == 20 * counts.size


# Measurements


def test_only_what_was_measured_counts():
    y = counted()
    assert y.taken == COUNTS.sum() == 33
    assert y.per_pixel == 33 / 600
    assert "33 taken" in repr(y)
    color = replace(HEADER, mode="RGB")
    assert counted(color).taken == 99
    assert counted(color).per_pixel == 33 / 600
    assert counted(color, np.stack([COUNTS, COUNTS, 0 * COUNTS])).taken == 66
    assert Measurements(y.values, HEADER).taken == y.values.size


@pytest.mark.parametrize(("counts", "said"), [
    (COUNTS.T, r"must have shape \(3, 4\), one for each window, got \(4, 3\)"),
    (np.stack([COUNTS] * 3), r"must have shape \(3, 4\)"),
    (COUNTS * 1.0, "must be integers, got float64"),
    (COUNTS - 1, "from 0 to 5, the rows of this camera, got -1 to 4"),
    (COUNTS + 1, "from 0 to 5, the rows of this camera, got 1 to 6"),
    (COUNTS * 0, "must measure something"),
])  # fmt: skip
def test_counts_that_cannot_be_are_refused(counts, said):
    with pytest.raises(TersenseError, match=said):
        Measurements(np.zeros(HEADER.shape, np.int16), HEADER, counts)


def test_values_that_were_not_measured_must_be_zero():
    y = counted()
    y.values[0, 0, 1] = 1
    with pytest.raises(ValueError, match="beyond the counts per window must be 0"):
        Measurements(y.values, HEADER, COUNTS)


@pytest.mark.parametrize("readout", [Readout(noise=50.0), Readout.ranging(6, 9.0),
                                     Readout.covering(200, 5), Readout(photons=0.5)])  # fmt: skip
def test_a_readout_leaves_what_was_not_measured_at_zero(readout):
    y, light = counted(), np.full(HEADER.shape, 400)
    read = y.read_out(readout, light)
    np.testing.assert_array_equal(read.counts, COUNTS)
    mask = there(HEADER, COUNTS)
    assert not read.values[~mask].any()
    full = Measurements(y.values, HEADER).read_out(readout, light)
    if not readout.percentile:  # the same light and the same noise
        np.testing.assert_array_equal(read.values[mask], full.values[mask])


def test_steps_range_over_what_was_measured():
    values = np.arange(1, 6)[:, None, None] * np.full(HEADER.shape, 1000)
    counts = np.full((3, 4), 3)
    counts[0, 0] = 4
    values[~there(HEADER, counts)] = 0
    values[2, 0, 0] = 7000
    y = Measurements(values, HEADER, counts)
    values[0, 1], values[0, 2] = 400, 700
    readout = y.read_out(Readout.ranging(5, percentile=50)).header.readout
    # The middle half of each row; nobody measured the fifth, which gets what the fourth has.
    assert readout.steps == (np.ceil(600 / 30), 1, 1, 1, 1)
    assert readout.offsets == (700 // 20, 2000, 3000, 4000, 4000)


def test_a_camera_that_stops_early_has_counts():
    values = np.where(there(HEADER, COUNTS), 7.0, np.nan)
    np.testing.assert_array_equal(MeasuredValues(values, HEADER).counts, COUNTS)
    values[0, 0, 0] = np.nan  # the first row is missing, later ones are not
    assert MeasuredValues(values, HEADER).counts is None
    assert MeasuredValues(np.zeros(HEADER.shape), HEADER).counts is None


# The file


@settings(max_examples=50)
@given(st.data())
def test_round_trip(tmp_path_factory, data):
    mode, rows = data.draw(st.sampled_from(["L", "RGB"])), data.draw(st.integers(1, 9))
    height, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    header = Header(height, width, mode, 8, data.draw(st.sampled_from([4, 8])), rows, "cd" * 32)
    header = replace(header, depth=data.draw(st.sampled_from([8, 12])))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    own = mode == "RGB" and data.draw(st.booleans())
    counts = rng.integers(0, rows + 1, ((3,) if own else ()) + header.shape[-2:])
    counts.flat[-1] = rows
    y = counted(header, counts, data.draw(st.sampled_from([1, 100, 30_000, 2_000_000])))
    kind = data.draw(st.sampled_from(["exact", "own steps", "one step"]))
    if kind != "exact":
        y = y.quantized(data.draw(st.integers(2, 12)), None if kind == "own steps" else 900)
    again = load_bytes(tmp_path_factory.mktemp("y"), y.to_bytes())
    assert_same(again, y)
    content = y.to_bytes()
    assert len(content) - 8 - int.from_bytes(content[:8], "little") == y.payload_bytes
    pixels = height * width * (1 if mode == "L" else 3)
    assert y.bits_per_pixel == 8 * y.payload_bytes / pixels


def test_files_with_counts_stay_readable_and_are_what_the_page_says():
    """Window after window, the first values of each; 16 bits for a count, deflated."""
    y = Measurements.load(GOLDEN / "measurements-counts.tsm")
    assert y.header == replace(HEADER, version=2)
    np.testing.assert_array_equal(y.counts, COUNTS)
    tensors = load_file(GOLDEN / "measurements-counts.tsm")
    stored = np.frombuffer(zlib.decompress(tensors["counts"].tobytes()), "<u2")
    np.testing.assert_array_equal(stored.reshape(3, 4), COUNTS)
    np.testing.assert_array_equal(tensors["y"], np.arange(33) * 7 % 255 - 127)
    at = 0
    for (i, j), count in np.ndenumerate(COUNTS):
        np.testing.assert_array_equal(y.values[:count, i, j], tensors["y"][at : at + count])
        assert not y.values[count:, i, j].any()
        at += count


def test_less_that_was_measured_is_a_smaller_file():
    header = replace(HEADER, height=512, width=512, rows=40)
    full, half = (counted(header, np.full((64, 64), count)) for count in (40, 20))
    assert len(half.to_bytes()) < 0.51 * len(full.to_bytes())


def resealed(content, edit, payload=None):
    """Edit the header, and perhaps what is behind it, and make the checksum right again."""
    length = int.from_bytes(content[:8], "little")
    outer = json.loads(content[8 : 8 + length])
    inner = json.loads(outer["__metadata__"]["tersense"])
    edit(outer, inner)
    inner["checksum"] = "sha256:" + "0" * 64
    outer["__metadata__"]["tersense"] = json.dumps(inner)
    text = json.dumps(outer).encode()
    payload = content[8 + length :] if payload is None else payload
    blank = len(text).to_bytes(8, "little") + text + payload
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def with_stream(counts, values, **said):
    """Make a well-sealed file of these bytes: counts as they are, and so many zeros of int8."""

    def edit(outer, inner):
        outer["counts"] = {"dtype": "U8", "shape": [len(counts)], "data_offsets": [0, len(counts)]}
        ends = [len(counts), len(counts) + values]
        outer["y"] = {"dtype": "I8", "shape": [values], "data_offsets": ends}
        inner.update(said)

    return resealed(counted().to_bytes(), edit, counts + bytes(values))


def deflated(counts):
    return zlib.compress(np.asarray(counts, "<u2").tobytes())


EDITS = {
    "an older format": (lambda o, i: i.update(version=1), "shape"),
    "no counts": (lambda o, i: o.pop("counts"), "shape"),
    "counts of 16 bits": (lambda o, i: o["counts"].update(dtype="U16"), "counts must be U8"),
    "counts in a table": (lambda o, i: o["counts"].update(shape=[3, 4]), "must be one stream"),
    "fewer than none": (lambda o, i: o["counts"].update(shape=[-1]), "must be one stream"),
    "enormous counts": (lambda o, i: o["counts"].update(shape=[10**12]), "bytes"),
    "enormous y": (lambda o, i: o["y"].update(shape=[10**12]), "bytes"),
    "y in a table": (lambda o, i: o["y"].update(shape=[3, 11]), "must be one stream"),
    "another place": (lambda o, i: o["y"].update(data_offsets=[1, 67]), "something else than y"),
    "no place": (lambda o, i: o["counts"].pop("data_offsets"), "data_offsets"),
    "a place in words": (lambda o, i: o["counts"].update(data_offsets="ab"), "measurement file"),
    "more": (lambda o, i: o.update(z=o["y"]), "something else than y"),
    "fewer patterns": (lambda o, i: i.update(patterns=4), "from 0 to 4, the rows of this camera"),
    "another image": (lambda o, i: i.update(width=90), "those of 36 windows"),
    "a smaller image": (lambda o, i: i.update(width=20), "those of 9 windows"),
    "color": (lambda o, i: i.update(mode="RGB"), "has 33 values, but the counts .* give 99"),
    "few bits": (lambda o, i: i.update(bits=4), "packed y must be U8"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_well_sealed_lie_is_refused(tmp_path, edit):
    change, said = EDITS[edit]
    with pytest.raises(TersenseError, match=said):
        load_bytes(tmp_path, resealed(counted().to_bytes(), change))


BOMB = zlib.compress(bytes(2**24))
LIES = {
    "not deflated": (with_stream(b"abcdef", 9), "cannot be inflated"),
    "cut off": (with_stream(deflated(COUNTS)[:-6], 33), "those of 12 windows and end there"),
    "followed by more": (with_stream(deflated(COUNTS) + b"x", 33), "and end there"),
    "too few": (with_stream(deflated(COUNTS[:2]), 22), "those of 12 windows"),
    "a bomb": (with_stream(BOMB, 33), "those of 12 windows"),
    "fewer values": (with_stream(deflated(COUNTS), 32), "32 values, but the counts .* give 33"),
    "more values": (with_stream(deflated(COUNTS), 34), "34 values, but the counts .* give 33"),
    "counts beyond the rows": (with_stream(deflated(COUNTS * 9), 297), "from 0 to 5"),
    "nothing at all": (with_stream(deflated(COUNTS * 0), 1), "must measure something"),
    "a large image of nothing": (
        with_stream(deflated(np.eye(1, 2**17)), 1, height=8, width=2**20, patterns=2**15),
        "at least one of 256 of the 4,294,967,296 values",
    ),
    "more rows than can be counted": (
        with_stream(deflated(COUNTS), 33, patterns=10**9), "at most 65535 rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_counts_that_lie_are_refused_in_little_memory(tmp_path, lie):
    content, said = LIES[lie]
    tracemalloc.start()
    with pytest.raises(TersenseError, match=said) as error:
        load_bytes(tmp_path, content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(error.value)
    assert peak < 2**22


def test_what_is_not_written_cannot_be_made():
    """What the reader refuses for its size, nobody can write either."""
    header = Header(8, 2**20, "L", 8, 8, 2**10, "ab" * 32)
    values = np.broadcast_to(np.int8(0), header.shape)
    with pytest.raises(TersenseError, match="crop the image or measure more"):
        Measurements(values, header, np.eye(1, 2**17, dtype=int))


@pytest.mark.parametrize("make", [counted, lambda: counted().quantized(5)])
def test_flipping_any_single_byte_is_detected(tmp_path, make):
    content = make().to_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x21
        with pytest.raises(TersenseError):
            load_bytes(tmp_path, bytes(damaged))


def test_counts_come_from_a_file(tmp_path):
    np.save(tmp_path / "c.npy", COUNTS.astype(np.uint8))
    np.testing.assert_array_equal(read_counts(tmp_path / "c.npy"), COUNTS)
    for wrong in (COUNTS * 1.0, np.array(3), np.zeros((0, 3), int)):
        np.save(tmp_path / "c.npy", wrong)
        with pytest.raises(TersenseError, match="must hold integers, windows down × windows"):
            read_counts(tmp_path / "c.npy")
