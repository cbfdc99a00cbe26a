"""Packed codes: a plain stream of bits, as other programs read it, and nothing but that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tersense.measurements.packing import pack, packed_size, unpack


def codes_of(bits):
    largest = 2 ** (bits - 1) - 1
    return st.tuples(st.just(bits), st.lists(st.integers(-largest, largest), max_size=40))


@given(st.integers(2, 32).flatmap(codes_of))
def test_a_stream_is_one_large_number_of_all_codes(case):
    """Python's own integers are the reference: code k stands at bit k·B."""
    bits, codes = case
    stream = pack(np.array(codes, np.int64), bits)
    number = sum((code % 2**bits) << (k * bits) for k, code in enumerate(codes))
    assert stream.tobytes() == number.to_bytes(packed_size(len(codes), bits), "little")
    assert unpack(stream, len(codes), bits).tolist() == codes


@pytest.mark.parametrize("bits", [2, 3, 7, 11, 32])
def test_long_streams_go_piece_by_piece(bits):
    largest = 2 ** (bits - 1) - 1
    codes = np.random.default_rng(bits).integers(-largest, largest, 70_001, endpoint=True)
    stream = pack(codes, bits)
    assert stream.size == -(-70_001 * bits // 8)
    np.testing.assert_array_equal(unpack(stream, codes.size, bits), codes)


@pytest.mark.parametrize(("bits", "width"), [(2, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4)])
def test_codes_come_back_in_the_smallest_type(bits, width):
    assert unpack(pack(np.array([1, -1]), bits), 2, bits).itemsize == width


def test_what_pack_does_not_write_is_refused():
    with pytest.raises(ValueError, match="codes of 4 bits must lie within ±7"):
        pack(np.array([0, -8]), 4)
    with pytest.raises(ValueError, match="codes of 4 bits must lie within ±7"):
        unpack(np.array([0x80], np.uint8), 2, 4)
    with pytest.raises(ValueError, match="the last byte must be filled up with zeros"):
        unpack(np.array([0x10], np.uint8), 1, 4)
    with pytest.raises(ValueError, match="3 values of 4 bits take 2 bytes, not 1"):
        unpack(np.zeros(1, np.uint8), 3, 4)
