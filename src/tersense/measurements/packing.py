"""Codes of B bits as a plain stream of bits, as a converter's serial output gives them.

Value k takes the bits k·B to k·B + B − 1, two's complement, its lowest bit first; bit b of the
stream is bit b mod 8 of byte ⌊b/8⌋, counted from the lowest. The last byte is filled up with zeros.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 2**16  # values; eight of them always end with a byte


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of so many values."""
    return -(-count * bits // 8)


def pack(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Pack codes of any shape, each within ±(2^(bits−1) − 1), in C order."""
    flat, largest = codes.ravel(), 2 ** (bits - 1) - 1
    if flat.size and max(-int(flat.min()), int(flat.max())) > largest:
        raise ValueError(f"codes of {bits} bits must lie within ±{largest:,}")
    stream = np.empty(packed_size(flat.size, bits), np.uint8)
    places = np.arange(bits, dtype=np.int64)
    for first in range(0, flat.size, _AT_ONCE):
        part = flat[first : first + _AT_ONCE].astype(np.int64)
        ones = (part[:, None] >> places & 1).astype(np.uint8)
        packed = np.packbits(ones, bitorder="little")
        begin = first * bits // 8
        stream[begin : begin + len(packed)] = packed
    return stream


def unpack(stream: NDArray[np.uint8], count: int, bits: int) -> NDArray[Any]:
    """Return so many codes, in the smallest integer type; refuse what `pack` does not write."""
    if stream.size != packed_size(count, bits):
        expected = packed_size(count, bits)
        raise ValueError(f"{count} values of {bits} bits take {expected} bytes, not {stream.size}")
    spare = 8 * stream.size - count * bits
    if spare and stream[-1] >> (8 - spare):
        raise ValueError("the last byte must be filled up with zeros")
    codes = np.empty(count, np.int8 if bits <= 8 else np.int16 if bits <= 16 else np.int32)
    weights = 2 ** np.arange(bits, dtype=np.int64)
    weights[-1] *= -1  # two's complement
    for first in range(0, count, _AT_ONCE):
        number = min(_AT_ONCE, count - first)
        part = stream[first * bits // 8 :][: packed_size(number, bits)]
        ones = np.unpackbits(part, count=number * bits, bitorder="little")
        codes[first : first + number] = ones.reshape(number, bits) @ weights
    if count and codes.min() < -(2 ** (bits - 1) - 1):
        raise ValueError(f"codes of {bits} bits must lie within ±{2 ** (bits - 1) - 1:,}")
    return codes
