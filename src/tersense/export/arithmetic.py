"""The integers of every export: how wide pixels, sums and codes are, and how sums are rounded.

Pixels have D bits, from 0 to 2^D − 1; a sum of them never leaves its accumulator. A quantizer of B
bits and a whole step turns a sum y into the code

    clip(floor(y/step + 1/2), ±(2^(B−1) − 1)),

that is, it rounds half up. No divider is needed: y is clipped first, to where the last code begins,
and moved by a bias to u = y + ⌊step/2⌋ + zero·step ≥ 0; then the code is ⌊u/step⌋ − zero, and
⌊u/step⌋ = (u·factor) >> shift. With factor = ⌈2^shift/step⌉ and e = factor·step − 2^shift, the
product is u/step + u·e/(step·2^shift). The error must not reach the 1/step that u/step at least
lacks to the next integer, so u·e < 2^shift for the largest u proves the rule for all. It stays
true for a larger shift, where e at most doubles; so rows of Φ with steps of their own share one.

Rows may have offsets too: clip(floor(y/step + 1/2) − offset, …). A whole number passes through the
rounding, so this is the code of y − middle, middle = offset·step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.files import read_npy
from tersense.io.images import ImageArray
from tersense.measurements.readout import Readout
from tersense.models.zoo import read
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
        return _reciprocal(self.step, self.high + self.bias)

    @property
    def rule(self) -> str:
        """Return how the quotient is made, in words."""
        factor, shift = self.reciprocal
        return f"a shift by {shift} bits" if factor == 1 else f"(u·{factor}) >> {shift}"

    @property
    def details(self) -> dict[str, Any]:
        """Return what the manifest tells."""
        return {"bits": self.bits, "step": self.step}

    def __str__(self) -> str:
        return f"{self.bits} bits in steps of {self.step:,}"

    def codes(self, y: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes of measurements: those of the readout that it stands for."""
        return Readout(self.bits, float(self.step)).apply(y)


@dataclass(frozen=True)
class RowQuantizer:
    """Rounding to codes of B bits with a step and an offset for each row of Φ, set per pattern.

    What a row has beyond its middle is clipped at ±reach, the largest code times its step, and the
    bias is reach + ⌊step/2⌋: a memory of middles, steps and factors is enough.

    Args:
        bits: B; codes lie within ±(2^(B−1) − 1).
        steps: What one unit of a code stands for, row by row.
        highest: Measurement that can come.
        offsets: Which multiple of its step the code 0 stands for, row by row; 0 where not given.
    """

    bits: int
    steps: tuple[int, ...]
    highest: int
    offsets: tuple[int, ...] = ()

    @property
    def middles(self) -> tuple[int, ...]:
        """Return the measurement that the code 0 stands for, row by row."""
        offsets = self.offsets or (0,) * len(self.steps)
        return tuple(k * step for k, step in zip(offsets, self.steps, strict=True))

    @property
    def largest_code(self) -> int:
        """Return 2^(B−1) − 1."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def largest_reach(self) -> int:
        """Return where the row of the largest step is clipped."""
        return self.largest_code * max(self.steps)

    @property
    def dividend_bits(self) -> int:
        """Return the width of a clipped measurement plus bias, in any row."""
        return max(largest.bit_length() for _, largest in self._dividends)

    @property
    def reciprocals(self) -> tuple[list[int], int]:
        """Return (factors, shift) with ⌊u/step⌋ = (u·factor) >> shift in every row."""
        shift = max(_reciprocal(step, largest)[1] for step, largest in self._dividends)
        return [-(-(1 << shift) // step) for step in self.steps], shift

    @property
    def rule(self) -> str:
        """Return how the quotient is made, in words."""
        return f"(u·factor) >> {self.reciprocals[1]}"

    @property
    def details(self) -> dict[str, Any]:
        """Return what the manifest tells."""
        offsets = {"offsets": list(self.offsets)} if self.offsets else {}
        return {"bits": self.bits, "steps": list(self.steps), **offsets}

    def __str__(self) -> str:
        return f"{self.bits} bits in steps of {min(self.steps):,} to {max(self.steps):,}, by row"

    def codes(self, y: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the codes of measurements (…, m): those of the readout that it stands for."""
        readout = Readout(self.bits, steps=tuple(map(float, self.steps)), offsets=self.offsets)
        by_row = np.moveaxis(y, -1, 0).reshape(len(self.steps), -1, 1)
        codes = readout.apply(by_row).reshape(len(self.steps), *y.shape[:-1])
        return np.moveaxis(codes, 0, -1)

    @property
    def _dividends(self) -> set[tuple[int, int]]:
        """Return the steps, and the largest clipped measurement plus bias that each divides."""
        found = set()
        for step, middle in zip(self.steps, self.middles, strict=True):
            reach = self.largest_code * step
            found.add((step, reach + max(-reach, min(reach, self.highest - middle)) + step // 2))
        return found


def _reciprocal(step: int, largest: int) -> tuple[int, int]:
    """Return (factor, shift) with ⌊u/step⌋ = (u·factor) >> shift for 0 ≤ u ≤ largest."""
    shift = (step - 1).bit_length()
    while True:
        factor = -(-(1 << shift) // step)
        if largest * (factor * step - (1 << shift)) < 1 << shift:
            return factor, shift
        shift += 1


def make_quantizer(
    patterns: Patterns,
    depth: int,
    bits: int | None,
    step: int | None,
    steps: Sequence[float] | None = None,
    offsets: Sequence[int] = (),
) -> Quantizer | RowQuantizer | None:
    """Return the quantizer that an export was asked for, or None for exact measurements.

    Args:
        patterns: Φ.
        depth: Bits per pixel.
        bits: B, or None.
        step: None for the smallest step with which no measurement is clipped.
        steps: One for each row of Φ instead, as `Readout.ranged` chooses them.
        offsets: One for each row of Φ, with the steps.
    """
    if bits is None:
        if step is not None or steps is not None:
            given = "steps need" if step is None else f"a step of {step} needs"
            raise TersenseError(f"{given} bits: say how many bits a code has")
        return None
    if not LEAST_CODE_BITS <= bits <= MOST_CODE_BITS:
        raise TersenseError(
            f"bits must be from {LEAST_CODE_BITS} to {MOST_CODE_BITS} per code, got {bits}"
        )
    lowest, highest = limits(patterns, depth)
    largest = max(highest, -lowest, 1)
    if steps is not None:
        if step is not None:
            raise TersenseError(f"give one step ({step}) or a step for each row, not both")
        whole = _check_steps(steps, len(patterns), largest)
        _check_offsets(offsets, whole, largest)
        return RowQuantizer(bits, whole, max(highest, 0), tuple(offsets))
    if step is None:
        step = -(-largest // (2 ** (bits - 1) - 1))
    if not 1 <= step <= largest:
        raise TersenseError(
            f"the step must be from 1 to {largest:,}, the largest measurement, got {step}"
        )
    return Quantizer(bits, step, lowest, highest)


def read_steps(
    path: str | Path, bits: int | None = None, model: str | None = None
) -> tuple[int, tuple[float, ...], tuple[int, ...]]:
    """Read the bits of codes, and the step and the offset of each row of Φ.

    Args:
        path: A measurement file (`.tsm`) whose rows have steps of their own, or a `.npy` file.
        bits: B; a measurement file knows it.
        model: That sensed the file, where it is not built in.
    """
    if Path(path).suffix.lower() == ".npy":
        if bits is None:
            raise TersenseError(f"{path} does not tell how many bits a code has; say --bits")
        found = read_npy(Path(path))
        if found.dtype.kind not in "iuf" or found.ndim != 1:
            raise TersenseError(
                f"{path} must hold a list of steps, got {found.dtype} {found.shape}"
            )
        return bits, tuple(float(step) for step in found), ()
    readout = read(path, model).header.readout
    if not readout.steps:
        raise TersenseError(
            f"{path} has no step for each row ({readout}); sense with --bits and the usual "
            "--full-scale auto"
        )
    if bits not in (None, readout.bits):
        raise TersenseError(f"{path} has steps for codes of {readout.bits} bits, not {bits}")
    return readout.bits, readout.steps, readout.offsets


def _check_steps(steps: Sequence[float], rows: int, largest: int) -> tuple[int, ...]:
    """Return one whole step for each row of Φ."""
    if len(steps) != rows:
        raise TersenseError(f"steps must be {rows}, one for each row of Φ, got {len(steps)}")
    wrong = [step for step in steps if step % 1 or not 1 <= step <= largest]
    if wrong:
        raise TersenseError(
            f"steps must be whole numbers from 1 to {largest:,}, the largest measurement, "
            f"got {wrong[0]:g}"
        )
    return tuple(int(step) for step in steps)


def _check_offsets(offsets: Sequence[int], steps: tuple[int, ...], largest: int) -> None:
    """Refuse offsets from which no measurement can be reached."""
    if len(offsets) not in (0, len(steps)):
        raise TersenseError(
            f"offsets must be {len(steps)}, one for each row of Φ, got {len(offsets)}"
        )
    for offset, step in zip(offsets, steps, strict=False):
        if abs(offset * step) > largest + step:
            raise TersenseError(
                f"offsets times steps must be within ±{largest:,}, the largest measurement, "
                f"got {offset * step:,}"
            )


def c_number(value: int) -> str:
    """Write a number as an int of C: -2147483648 is none, but minus a number too large for one."""
    return "-2147483647 - 1" if value == -(2**31) else str(value)


def c_numbers(values: Iterable[Any]) -> str:
    """Write the numbers of a table of C, as many on a line as fit."""
    listed = ", ".join(c_number(int(value)) for value in values)
    return fill(listed, 96, initial_indent="    ", subsequent_indent="    ")
