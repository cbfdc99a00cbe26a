"""The coder of a sensor: the terms that predict its rows, and streams to try it with.

`measurements.rice` defines the code. What it leaves open is which rows predict which, with what
weights: they are chosen here, from Φ alone, once and for all streams of the camera. `coder_c` and
`coder_verilog` write the coder out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.export.arithmetic import Quantizer, RowQuantizer, limits
from tersense.export.test_vectors import cut_windows, measure, photograph
from tersense.io.deep import USUAL
from tersense.measurements.rice import (
    FRACTION_BITS,
    KEPT,
    MOST_TERMS,
    NAME,
    RiceCoder,
    Terms,
    make_term,
)
from tersense.reconstruction.allocation.decision import measurement_covariance
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

GRID = (3, 4)  # windows of a test stream, down and across
_LEAST_GAIN = 0.01  # of the variance that is left, for a term to be worth its clock
_NO_WEIGHT = FRACTION_BITS + 1
LAST_TERM = 1 << 9  # beside the last term of a row, in a memory
MEMORY_BITS = 10

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


def make_coder(
    patterns: Patterns,
    depth: int,
    quantizer: Quantizer | RowQuantizer | None,
    counted: bool,
    name: str,
) -> RiceCoder:
    """Return the coder of a camera that gives measurements, or codes if there is a quantizer.

    Args:
        patterns: Φ.
        depth: Bits per pixel.
        quantizer: What measurements are rounded by, if they are.
        counted: Whether windows differ in their counts.
        name: What the user asked for.
    """
    if name != NAME:
        raise TersenseError(f"coder must be {NAME}, got {name!r}; there is no other for sensors")
    bits = quantizer.bits if quantizer else patterns.accumulator_bits_at(depth)
    steps = quantizer.steps if isinstance(quantizer, RowQuantizer) else None
    return RiceCoder(bits, choose_terms(patterns.phi, steps), counted)


def choose_terms(phi: NDArray[np.int8], steps: tuple[int, ...] | None = None) -> Terms:
    """Return the terms that predict each row from what is new in the first ones.

    One after the other, the term that leaves the least variance is taken, while it is worth its
    clock. What is new in one row has little to do with what is new in another, so this comes near
    to the best.

    Args:
        phi: (m, B, B).
        steps: Of the codes of each row, where rows have their own.
    """
    covariance = measurement_covariance(phi)
    if steps:
        covariance /= np.outer(steps, steps)
    kept = min(KEPT, len(phi))
    mixed = np.zeros((kept, len(phi)))  # the news of the first rows, as sums of rows
    among = np.zeros((kept, kept))  # how they go together
    chosen: list[tuple[int, ...]] = []
    for row in range(len(phi)):
        before = min(row, kept)
        shared = mixed[:before] @ covariance[row]
        found = _pursue(shared, among[:before, :before], float(covariance[row, row]))
        chosen.append(tuple(make_term(*term) for term in found))
        if row < kept:
            mixed[row, row] = 1.0
            for sign, weight, place in found:
                mixed[row] -= sign * 2.0 ** (weight - FRACTION_BITS) * mixed[place]
            among[row, : row + 1] = mixed[: row + 1] @ (covariance @ mixed[row])
            among[: row + 1, row] = among[row, : row + 1]
    return tuple(chosen)


def _pursue(shared: Reals, among: Reals, variance: float) -> list[tuple[int, int, int]]:
    """Return (sign, weight, place) of the terms that a row is predicted by.

    Args:
        shared: Covariances of the row with the news before it.
        among: Those of the news themselves.
        variance: Of the row.
    """
    found: list[tuple[int, int, int]] = []
    shared = shared.copy()
    factors = 2.0 ** (np.arange(FRACTION_BITS + 1)[:, None] - FRACTION_BITS)
    while len(shared) and len(found) < MOST_TERMS:
        left = variance - 2 * factors * np.abs(shared) + factors**2 * np.diag(among)
        weight, place = (int(k) for k in np.unravel_index(left.argmin(), left.shape))
        if left[weight, place] > (1 - _LEAST_GAIN) * variance:
            break
        sign = 1 if shared[place] > 0 else -1
        found.append((sign, weight, place))
        shared -= sign * factors[weight, 0] * among[place]
        variance = float(left[weight, place])
    return found


def term_memory(coder: RiceCoder) -> list[int]:
    """Return the terms as a memory has them, {last, minus, weight, place}, row after row.

    A row without terms has one whose weight, 7, means nothing.
    """
    nothing = make_term(1, _NO_WEIGHT, 0)
    rows = [row or (nothing,) for row in coder.terms]
    return [term | LAST_TERM * (k == len(row) - 1) for row in rows for k, term in enumerate(row)]


@dataclass(frozen=True)
class CodedImage:
    """What a coder is given, and what it must make of it.

    Args:
        values: Measurements or codes, (m, h, w).
        counts: (h, w), or None for all rows.
        stream: The bytes.
    """

    values: Integers
    counts: NDArray[np.int32] | None
    stream: bytes

    @property
    def given(self) -> Integers:
        """Return the values that are coded, in their order."""
        of_windows = np.moveaxis(self.values, 0, -1).reshape(-1, len(self.values))
        if self.counts is None:
            return of_windows.ravel()
        there = np.arange(of_windows.shape[1]) < self.counts.reshape(-1, 1)
        return of_windows[there]


def code_image(
    coder: RiceCoder, values: NDArray[np.integer], counts: NDArray[np.int32] | None = None
) -> CodedImage:
    """Return values, and counts where the coder writes them, with their stream."""
    if coder.counted and counts is None:
        counts = np.full(values.shape[1:], coder.rows, np.int32)
    return CodedImage(values.astype(np.int64), counts, coder.encode(values, counts))


def make_images(
    coder: RiceCoder,
    patterns: Patterns,
    depth: int,
    quantizer: Quantizer | RowQuantizer | None,
    seed: int = 0,
) -> list[CodedImage]:
    """Return images of all kinds: real, at the ends of the range, noise, nearly quiet."""
    random, geometry = np.random.default_rng(seed), Geometry(patterns.window, patterns.stride)
    side = [n * geometry.stride for n in GRID]
    real = measure(patterns, cut_windows(geometry, photograph(side[0], side[1])))
    half = 2 ** (coder.bits - 1)
    ends = np.array(limits(patterns, depth)).clip(-half, half - 1)
    shape = (coder.rows, *GRID)
    sizes = 2.0 ** -random.uniform(0, coder.bits, shape)
    deep = real.astype(np.int64) << (depth - USUAL)
    codes = quantizer.codes(deep) if quantizer else deep
    quiet = np.zeros(shape, np.int64)
    quiet[coder.rows // 2 :, -1, 0] = random.integers(-half, half, coder.rows - coder.rows // 2)
    kinds = [
        np.moveaxis(np.asarray(codes), -1, 0),
        random.choice(ends, shape),
        random.choice([-half, half - 1], shape),
        random.integers(-half, half, shape),
        (random.integers(-half, half, shape) * sizes).astype(np.int64),
        quiet,
    ]
    if not coder.counted:
        return [code_image(coder, values) for values in kinds]
    few = random.integers(0, coder.rows + 1, (len(kinds), *GRID)).astype(np.int32)
    few[:, 1, 1], few[2, -1, -1] = coder.rows, 0
    return [code_image(coder, y, counts) for y, counts in zip(kinds, few, strict=True)]
