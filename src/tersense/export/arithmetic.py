"""The integers of every export: how wide pixels, sums and codes are, and how sums are rounded.

Pixels have D bits, from 0 to 2^D − 1; a sum of them never leaves its accumulator. A quantizer of B
bits and a whole step turns a sum y into the code

    clip(floor(y/step + 1/2), ±(2^(B−1) − 1)),

that is, it rounds half up. No divider is needed: y is clipped first, to where the last code begins,
and moved by a bias to u = y + ⌊step/2⌋ + zero·step ≥ 0; then the code is ⌊u/step⌋ − zero, and
⌊u/step⌋ = (u·factor) >> shift. With factor = ⌈2^shift/step⌉ and e = factor·step − 2^shift, the
product is u/step + u·e/(step·2^shift). The error must not reach the 1/step that u/step at least
lacks to the next integer, so u·e < 2^shift for the largest u proves the rule for all.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.images import ImageArray
from tersense.measurements.readout import Readout
from tersense.sensing.patterns import Patterns

LEAST_CODE_BITS, MOST_CODE_BITS = 2, 32
Pixels = NDArray[np.uint8] | NDArray[np.uint16]  # uint16 for more than 8 bits


def limits(patterns: Patterns, depth: int = USUAL) -> tuple[int, int]:
    """Return the lowest and the highest measurement that pixels of so many bits can give."""
    plus, minus = patterns.signs_per_row
    white = largest_pixel(depth)
    return -white * int(minus.max()), white * int(plus.max())


def deepen(image: ImageArray, depth: int) -> Pixels:
    """Return 8-bit pixels as such of another depth: black stays 0, white becomes 2^D − 1.

    The upper bits are repeated below, so that the lower ones are not all zero.
    """
    if depth == USUAL:
        return image
    wide = image.astype(np.uint16)
    return (wide << (depth - 8) | wide >> (16 - depth)).astype(np.uint16)


@dataclass(frozen=True)
class Quantizer:
    """Rounding of measurements within known limits to codes of B bits.

    Args:
        bits: B; codes lie within ±(2^(B−1) − 1).
        step: What one unit of a code stands for.
        lowest: Measurement that can come.
        highest: Measurement that can come.
    """

    bits: int
    step: int
    lowest: int
    highest: int

    @property
    def largest_code(self) -> int:
        """Return 2^(B−1) − 1."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def low(self) -> int:
        """Return where measurements are clipped below: beyond, the code stays the same."""
        return max(self.lowest, -self.largest_code * self.step)

    @property
    def high(self) -> int:
        """Return where measurements are clipped above."""
        return min(self.highest, self.largest_code * self.step)

    @property
    def zero(self) -> int:
        """Return the quotient that stands for the code 0."""
        return -((self.low + self.step // 2) // self.step)

    @property
    def bias(self) -> int:
        """Return what is added to a clipped measurement, so that none is negative."""
        return self.step // 2 + self.zero * self.step

    @property
    def dividend_bits(self) -> int:
        """Return the width of a clipped measurement plus bias."""
        return max(1, (self.high + self.bias).bit_length())

    @property
    def reciprocal(self) -> tuple[int, int]:
        """Return (factor, shift) with ⌊u/step⌋ = (u·factor) >> shift for every u that can come."""
        shift = (self.step - 1).bit_length()
        while True:
            factor = -(-(1 << shift) // self.step)
            if (self.high + self.bias) * (factor * self.step - (1 << shift)) < 1 << shift:
                return factor, shift
            shift += 1

    @property
    def rule(self) -> str:
        """Return how the quotient is made, in words."""
        factor, shift = self.reciprocal
        return f"a shift by {shift} bits" if factor == 1 else f"(u·{factor}) >> {shift}"

    def __str__(self) -> str:
        return f"{self.bits} bits in steps of {self.step:,}"

    def codes(self, y: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes of measurements: those of the readout that it stands for."""
        return Readout(self.bits, float(self.step)).apply(y)


def make_quantizer(
    patterns: Patterns, depth: int, bits: int | None, step: int | None
) -> Quantizer | None:
    """Return the quantizer that an export was asked for, or None for exact measurements.

    Args:
        patterns: Φ.
        depth: Bits per pixel.
        bits: B, or None.
        step: None for the smallest step with which no measurement is clipped.
    """
    if bits is None:
        if step is not None:
            raise TersenseError(f"a step of {step} needs bits: say how many bits a code has")
        return None
    if not LEAST_CODE_BITS <= bits <= MOST_CODE_BITS:
        raise TersenseError(
            f"bits must be from {LEAST_CODE_BITS} to {MOST_CODE_BITS} per code, got {bits}"
        )
    lowest, highest = limits(patterns, depth)
    largest = max(highest, -lowest, 1)
    if step is None:
        step = -(-largest // (2 ** (bits - 1) - 1))
    if not 1 <= step <= largest:
        raise TersenseError(
            f"the step must be from 1 to {largest:,}, the largest measurement, got {step}"
        )
    return Quantizer(bits, step, lowest, highest)
