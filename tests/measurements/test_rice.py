"""The sensor's code against its definition, written a second time; streams that are wrong."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage import data

import tersense
from cameras import random_camera
from tersense.errors import TersenseError
from tersense.export.base import export
from tersense.export.coder import choose_terms
from tersense.measurements.rice import RiceCoder, make_term


def random_terms(random, rows):
    """Return terms of all kinds for a number of rows, none for the first."""
    return tuple(
        tuple(
            make_term(*(int(n) for n in (random.choice([-1, 1]), random.integers(7),
                                         random.integers(min(row, 32)))))
            for _ in range(random.integers(17) if row else 0)
        )
        for row in range(rows)
    )  # fmt: skip


def write_by_definition(windows, bits, terms, count_bits):
    """Return the stream of windows (lists of values) as the module defines it, one bit a sign."""
    size, text, means, running, left = 2**bits, "", {}, 2**bits, 0
    for values in windows:
        news = []
        text += f"{len(values):0{count_bits}b}" if count_bits else ""
        for row, y in enumerate(values):
            told = sum(
                (-1 if term >> 8 else 1) * 2 ** (term >> 5 & 7) * news[term & 31]
                for term in terms[row]
            )
            new = (y - (told + 32) // 64 + size // 2) % size - size // 2
            news.append(new)
            if row == 0:
                new, left = (y - left + size // 2) % size - size // 2, y
            u = 2 * new if new >= 0 else -2 * new - 1
            mean = means.get(row, running)
            k = ((mean + running) // 32).bit_length()
            ones, rest = divmod(u, 2**k)
            short = "1" * ones + "0" + (f"{rest:0{k}b}" if k else "")
            text += short if ones < 16 else "1" * 16 + f"{u:0{bits}b}"
            means[row] = mean + u - mean // 8
            running += u - running // 8
    text += "0" * (-len(text) % 8)
    return bytes(int(text[k : k + 8], 2) for k in range(0, len(text), 8))


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    bits=st.integers(1, 32),
    rows=st.integers(1, 50),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    counted=st.booleans(),
)
def test_streams_are_those_of_the_definition_and_come_back(seed, bits, rows, grid, counted):
    random = np.random.default_rng(seed)
    coder = RiceCoder(bits, random_terms(random, rows), counted)
    half = 2 ** (bits - 1)
    values = random.integers(-half, half, (rows, *grid))
    small = 2.0 ** -random.uniform(0, bits, (rows, 1, 1)) * (random.random() < 0.7)
    values = np.where(random.random(values.shape) < 0.9, values * small, values).astype(np.int64)
    counts = random.integers(0, rows + 1, grid).astype(np.int32)
    counts[0, 0] = rows
    if not counted:
        counts[:] = rows
    values[np.arange(rows)[:, None, None] >= counts] = 0
    stream = coder.encode(values, counts if counted else None)
    windows = [values[: counts[place], *place].tolist() for place in np.ndindex(*grid)]
    assert stream == write_by_definition(windows, bits, coder.terms, coder.count_bits)
    found, found_counts = coder.decode(stream, grid)
    np.testing.assert_array_equal(found, values)
    if counted:
        np.testing.assert_array_equal(found_counts, counts)
    else:
        assert found_counts is None


@pytest.fixture(scope="module")
def photograph():
    """Codes of a photograph in steps of 96, and the coder of their camera."""
    imager = tersense.load("flex").at_rate(0.1)
    y = imager.sense(data.camera()).values.astype(np.int64)
    return (2 * y + 96) // 192, RiceCoder(9, choose_terms(imager.phi))


def test_photographs_take_fewer_bits_than_their_codes_have_entropy(photograph):
    codes, coder = photograph
    _, often = np.unique(codes, return_counts=True)
    share = often / codes.size
    entropy = -(share * np.log2(share)).sum()
    stream = coder.encode(codes)
    assert entropy > 6.5
    assert 8 * len(stream) / codes.size < 0.65 * entropy
    np.testing.assert_array_equal(coder.decode(stream, codes.shape[1:])[0], codes)
    alone = RiceCoder(coder.bits, ((),) * coder.rows)  # what prediction is worth
    assert len(stream) < 0.65 * len(alone.encode(codes))


# Streams that are wrong.


@pytest.mark.parametrize("counted", [False, True])
def test_a_stream_of_another_length_is_refused(refused, counted):
    random = np.random.default_rng(1)
    coder = RiceCoder(8, random_terms(random, 5), counted)
    stream = coder.encode(random.integers(-128, 128, (5, 3, 4)))
    for length in range(len(stream)):
        with refused("ends too early"):
            coder.decode(stream[:length], (3, 4))
    with refused("does not end with its last value"):
        coder.decode(stream + b"\0", (3, 4))
    with refused("does not end"):
        coder.decode(stream, (2, 4))
    with refused("20 windows"):
        coder.decode(stream, (4, 5))


def test_bits_after_the_last_value_must_be_zero(refused):
    coder = RiceCoder(8, ((),))
    stream = coder.encode(np.zeros((1, 1, 1), np.int64))
    assert stream[-1] & 1 == 0
    with refused("does not end with its last value"):
        coder.decode(stream[:-1] + bytes([stream[-1] | 1]), (1, 1))


def test_what_no_coder_writes_is_refused(refused):
    coder = RiceCoder(8, ((),))
    with refused("longer than it need be"):
        coder.decode(b"\xff\xff\x00", (1, 1))
    with refused("more measurements than the camera has rows"):
        RiceCoder(8, ((), ()), True).decode(b"\xff\xff", (1, 1))
    with refused("must measure something"):
        RiceCoder(8, ((), ()), True).decode(b"\x00", (1, 1))


def test_a_few_bytes_cannot_ask_for_much_memory(refused):
    tracemalloc.start()
    for counted in (False, True):
        with refused("cannot be that of 10,000,000,000 windows"):
            RiceCoder(8, ((),) * 500, counted).decode(bytes(1000), (100_000, 100_000))
    with refused("at least one of 256"):  # windows that measured nothing, one of many rows
        RiceCoder(8, ((),) * 60_000, True).decode(bytes(1999) + b"\1\0", (500, 2))
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_flipped_bits_are_refused_or_give_other_values():
    random = np.random.default_rng(2)
    coder = RiceCoder(10, random_terms(random, 40), True)
    values = np.round(random.laplace(0, 20, (40, 3, 4))).astype(np.int64)
    stream, outcomes = coder.encode(values), set()
    for place in range(0, 8 * len(stream), 5):
        damaged = bytearray(stream)
        damaged[place // 8] ^= 128 >> place % 8
        try:
            found, _ = coder.decode(bytes(damaged), (3, 4))
        except TersenseError:
            outcomes.add("refused")
        else:
            assert (found != values).any()
            assert np.abs(found).max() <= 512
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


def test_values_and_coders_that_cannot_be_are_refused():
    coder = RiceCoder(8, ((),))
    for values in (128, -129):
        with pytest.raises(ValueError, match="8 bits"):
            coder.encode(np.full((1, 1, 1), values))
    with pytest.raises(ValueError, match="leave out counts"):
        coder.encode(np.zeros((1, 1, 1), np.int64), np.ones((1, 1), np.int32))
    for bits, terms in ((0, ((),)), (33, ((),)), (8, ((make_term(1, 0, 0),),)),
                        (8, ((), (make_term(1, 7, 0),))), (8, ((), (make_term(1, 0, 1),))),
                        (8, ((), (0,) * 17)), (8, ((), (-1,)))):  # fmt: skip
        with pytest.raises(ValueError, match=r"bits must be|cannot be"):
            RiceCoder(bits, terms)


# The file, with the manifest of its camera.


@pytest.fixture
def coded(tmp_path):
    """A stream of codes, where it is, and the folder of the export."""
    imager, folder = random_camera(6, 8, 8), tmp_path / "c"
    manifest, _ = export("c", imager, folder, bits=7, step=40, coder="rice")
    coder = RiceCoder.from_details(manifest.details["coder"], 6)
    y = imager.sense(data.camera()[:20, :30])
    codes = ((2 * y.values.astype(np.int64) + 40) // 80).clip(-63, 63)
    (tmp_path / "y.rice").write_bytes(coder.encode(codes))
    return codes, tmp_path / "y.rice", folder


def test_a_stream_is_read_with_the_manifest(coded, refused):
    codes, path, folder = coded
    y = tersense.read_measured(path, folder, (20, 30))
    np.testing.assert_array_equal(y.values, codes)
    assert (y.header.readout.bits, y.header.readout.step) == (7, 40)
    with refused("y.rice", "--size"):
        tersense.read_measured(path, folder)
    content = json.loads((folder / "manifest.json").read_text())
    sized = content | {"measured": {"height": 20, "width": 30}}
    (folder / "manifest.json").write_text(json.dumps(sized))
    np.testing.assert_array_equal(tersense.read_measured(path, folder).values, codes)
    sized["measured"]["gain"] = 2.0
    (folder / "manifest.json").write_text(json.dumps(sized))
    with refused("needs no calibration"):
        tersense.read_measured(path, folder)


def test_a_manifest_must_tell_of_a_usable_coder(coded, refused):
    _, path, folder = coded
    content = json.loads((folder / "manifest.json").read_text())

    def change(**entries):
        details = content["details"] | {"coder": content["details"]["coder"] | entries}
        (folder / "manifest.json").write_text(json.dumps(content | {"details": details}))

    for wrong in ({"name": "zip"}, {"bits": 99}, {"bits": True}, {"counted": 1}, {"terms": [""]},
                  {"terms": ["0"] * 6}, {"terms": ["zz1"] * 6}, {"terms": 5}):  # fmt: skip
        change(**wrong)
        with refused("no usable coder"):
            tersense.read_measured(path, folder, (20, 30))
    del content["details"]["coder"]
    (folder / "manifest.json").write_text(json.dumps(content))
    with refused("no coder", "--coder rice"):
        tersense.read_measured(path, folder, (20, 30))


def test_a_code_that_the_quantizer_does_not_have_is_damage(coded, refused):
    codes, path, folder = coded
    manifest = json.loads((folder / "manifest.json").read_text())
    coder = RiceCoder.from_details(manifest["details"]["coder"], 6)
    codes[2, 1, 1] = -64
    path.write_bytes(coder.encode(codes))
    with refused("codes have 7 bits"):
        tersense.read_measured(path, folder, (20, 30))
