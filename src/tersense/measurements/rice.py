"""The bits of a sensor: an adaptive Golomb–Rice code that needs adders, shifts and small memories.

A stream holds the measurements of one gray image, exact sums or codes of a quantizer: integers of W
bits, two's complement. Windows come in raster order, of each window its first rows in order. Bits
are written from the most significant one on, bytes too; zeros fill the last byte. There is no
header: the manifest of the camera says what W, the terms and m are, and whether windows differ in
their counts. If so, a window begins with its count, in as many bits as hold m.

**Prediction.** Rows of Φ that look at the same pixels tell much of each other. What is new in row i
of a window,

    n_i = y_i − ((Σ ±2^w·n_j + 32) >> 6),    at most 16 terms (±, w, j), 0 ≤ w ≤ 6, j < min(i, 32)

is kept for the rows after it while i < 32. The first row has no terms, so that n_0 = y_0; what is
coded of it is y_0 − y_0 of the window before (0 before the first), and n_i itself of all others.
All of this is taken modulo 2^W, so that nothing ever needs more than W bits.

**Code.** An n becomes u = 2n, or −2n − 1 if n < 0. With a k of its own, u is written as u >> k
ones, a zero, and the k lowest bits of u; or, from 16 ones on, as 16 ones and all W bits of u.

**Adaptation.** A_i and R follow eight times the mean of u, in row i and in the whole stream: after
each value both grow by u − (A >> 3), where A is the one or the other. k is the number of bits of
(A_i + R) >> 5, taken before. R begins as 2^W; A_i, when its row is coded for the first time, as R.

Shifts round down. The exported C and Verilog write the same bytes as `RiceCoder.encode`. A stream
has no checksum: a transport that loses bytes should bring its own.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.measurements.counts import Counts, check_counts, from_stream, to_stream
from tersense.sensing.loops import compiled

KEPT = 32  # rows whose news predict others
MOST_TERMS = 16
FRACTION_BITS = 6  # of a weight 2^w
MOST_ONES = 16
MOST_VALUE_BITS = 32
NAME = "rice"

_PLACE_BITS, _WEIGHT_BITS = 5, 3
_MINUS = 1 << (_PLACE_BITS + _WEIGHT_BITS)
_DIGITS = 3  # of a term in the manifest, hexadecimal

_ENDED, _ROUNDABOUT, _TOO_MANY, _LEFT_OVER = range(1, 5)
_REASONS = {
    _ENDED: "it ends too early",
    _ROUNDABOUT: "a value is written longer than it need be",
    _TOO_MANY: "a window has more measurements than the camera has rows",
    _LEFT_OVER: "it does not end with its last value",
}

Array = NDArray[Any]
Terms = tuple[tuple[int, ...], ...]


def make_term(sign: int, weight: int, place: int) -> int:
    """Return a term as one number, {minus, weight, place}: it stands for ±2^weight/64 of n_place.

    Args:
        sign: +1 or −1.
        weight: w, from 0 to 6.
        place: j, from 0 to 31.
    """
    return (_MINUS if sign < 0 else 0) | weight << _PLACE_BITS | place


@dataclass(frozen=True)
class RiceCoder:
    """Writes and reads the streams of one camera; see the module.

    Args:
        bits: W, from 1 to 32.
        terms: Those that predict each row of Φ, as `make_term` packs them; m of them.
        counted: Whether the count of each window is written.

    Example:
        >>> import numpy as np
        >>> from tersense.measurements.rice import RiceCoder, make_term
        >>> coder = RiceCoder(bits=8, terms=((), (make_term(-1, 6, 0),)))
        >>> y = np.array([[[50, 51]], [[-49, -51]]])
        >>> stream = coder.encode(y)
        >>> len(stream), coder.decode(stream, (1, 2))[0].tolist()
        (4, [[[50, 51]], [[-49, -51]]])
    """

    bits: int
    terms: Terms
    counted: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_VALUE_BITS:
            raise ValueError(f"bits must be from 1 to {MOST_VALUE_BITS}, got {self.bits}")
        for row, terms in enumerate(self.terms):
            places = [term & (KEPT - 1) for term in terms]
            fits = all(0 <= t < 2 * _MINUS and _weight(t) <= FRACTION_BITS for t in terms)
            if len(terms) > MOST_TERMS or not fits or max(places, default=-1) >= row:
                raise ValueError(f"row {row} of Φ has terms that cannot be")

    @property
    def rows(self) -> int:
        """Return m."""
        return len(self.terms)

    @property
    def count_bits(self) -> int:
        """Return the bits of a count, 0 where it is not written."""
        return self.rows.bit_length() if self.counted else 0

    @property
    def details(self) -> dict[str, Any]:
        """Return what the manifest tells; of each row the terms, three hexadecimal digits each."""
        terms = ["".join(f"{term:0{_DIGITS}x}" for term in row) for row in self.terms]
        return {"name": NAME, "bits": self.bits, "counted": self.counted, "terms": terms}

    @classmethod
    def from_details(cls, details: Any, rows: int) -> "RiceCoder":
        """Build the coder that a manifest tells of."""
        if details is None:
            raise TersenseError("the manifest tells of no coder; export with --coder rice")
        try:
            terms = tuple(
                tuple(int(row[k : k + _DIGITS], 16) for k in range(0, len(row), _DIGITS))
                for row in details["terms"]
            )
            usable = details["name"] == NAME and type(details["counted"]) is bool
            if usable and type(details["bits"]) is int and len(terms) == rows:
                return cls(details["bits"], terms, details["counted"])
        except (KeyError, TypeError, ValueError):
            pass  # told below, whatever it is
        raise TersenseError("the manifest has no usable coder; export the camera again")

    def encode(self, values: Array, counts: Counts | None = None) -> bytes:
        """Write y (m, h, w), integers of W bits, as a stream.

        Args:
            values: What the camera read out.
            counts: (h, w), how many of the first rows of each window are written; None for all.
        """
        if (counts is not None) > self.counted:
            raise ValueError("this coder writes all rows of every window; leave out counts")
        whole = check_counts(self.rows if counts is None else counts, values.shape)
        stream = to_stream(values, whole).astype(np.int64)
        largest = 2 ** (self.bits - 1)
        if stream.min() < -largest or stream.max() >= largest:
            raise ValueError(f"values must have {self.bits} bits, two's complement")
        most = whole.size * self.count_bits + stream.size * (MOST_ONES + self.bits)
        out = np.zeros(most // 8 + 1, np.uint8)
        flat = whole.ravel().astype(np.int64)
        end = _encode(stream, flat, *self._program, self.bits, self.count_bits, out)
        return out[: (end + 7) // 8].tobytes()

    def decode(self, content: bytes, grid: tuple[int, int]) -> tuple[Array, Counts | None]:
        """Read a stream of h×w windows: y (m, h, w), and the counts if they were written.

        A stream that is damaged, or that of another image size, is refused if it can be told; no
        more is done, or held in memory, than its length allows.
        """
        windows, shape = grid[0] * grid[1], (self.rows, *grid)
        size, most = 8 * len(content), windows * self.rows
        if windows * (self.count_bits or self.rows) > size:  # a value takes a bit at least
            raise TersenseError(
                f"the stream cannot be that of {windows:,} windows: {_REASONS[_ENDED]}"
            )
        counts = np.full(windows, self.rows, np.int64)
        stream = np.empty(min(most, size), np.int32)
        given = np.frombuffer(content, np.uint8)
        fault, taken = _decode(given, counts, *self._program, self.bits, self.count_bits, stream)
        if fault:
            raise TersenseError(
                f"the stream is damaged, or not that of {windows:,} windows: {_REASONS[fault]}"
            )
        whole = check_counts(counts.reshape(grid), shape)
        return from_stream(stream[:taken], whole, shape), whole if self.counted else None

    @cached_property
    def _program(self) -> tuple[Array, Array]:
        """Return the terms of all rows one after the other, (terms, 2), and where each row begins.

        A term is its place and its weight with the sign.
        """
        flat = np.array([term for row in self.terms for term in row], np.int64)
        weights = (1 << _weight(flat)) * np.where(flat & _MINUS, -1, 1)
        starts = np.cumsum([0, *(len(row) for row in self.terms)])
        return np.stack([flat & (KEPT - 1), weights], axis=1), starts.astype(np.int64)


def _weight(term: Any) -> Any:
    return term >> _PLACE_BITS & ((1 << _WEIGHT_BITS) - 1)


@compiled
def _wrap(value: int, bits: int) -> int:
    """Return a value modulo 2^bits, two's complement."""
    half = 1 << (bits - 1)
    return ((value + half) & (2 * half - 1)) - half


@compiled
def _predict(news: Array, terms: Array, begin: int, end: int) -> int:
    """Return what the rows before tell of a row."""
    told = 1 << (FRACTION_BITS - 1)
    for k in range(begin, end):
        told += news[terms[k, 0]] * terms[k, 1]
    return told >> FRACTION_BITS


@compiled
def _choose_k(mean: int, running: int) -> int:
    rest, k = (mean + running) >> 5, 0
    while rest > 0:
        rest, k = rest >> 1, k + 1
    return k


@compiled
def _put(out: Array, at: int, word: int, bits: int) -> int:
    """Write the lowest bits of a word, the most significant one first; return the next place."""
    for k in range(bits - 1, -1, -1):
        out[at >> 3] |= (word >> k & 1) << (7 - (at & 7))
        at += 1
    return at


@compiled
def _encode(
    values: Array, counts: Array, terms: Array, starts: Array, bits: int, count_bits: int,
    out: Array,
) -> int:  # fmt: skip
    """Write all windows; return how many bits there are."""
    means, news = np.zeros(len(starts), np.int64), np.zeros(KEPT, np.int64)
    running, left, known, at, place = 1 << bits, 0, 0, 0, 0
    for count in counts:
        at = _put(out, at, count, count_bits)
        for row in range(count):
            y = values[place]
            place += 1
            new = _wrap(y - _predict(news, terms, starts[row], starts[row + 1]), bits)
            if row < KEPT:
                news[row] = new
            if row == 0:
                new, left = _wrap(y - left, bits), y
            u = 2 * new if new >= 0 else -2 * new - 1
            mean = means[row] if row < known else running
            known = max(known, row + 1)
            k = _choose_k(mean, running)
            ones = min(u >> k, MOST_ONES)
            at = _put(out, at, (1 << ones) - 1, ones)
            if ones < MOST_ONES:
                at = _put(out, at, u & ((1 << k) - 1), k + 1)
            else:
                at = _put(out, at, u, bits)
            means[row] = mean + u - (mean >> 3)
            running += u - (running >> 3)
    return at


@compiled
def _take(content: Array, at: int, bits: int) -> int:
    """Return the next bits as a number; there must be so many."""
    word = 0
    for place in range(at, at + bits):
        word = word << 1 | (content[place >> 3] >> (7 - (place & 7)) & 1)
    return word


@compiled
def _decode(
    content: Array, counts: Array, terms: Array, starts: Array, bits: int, count_bits: int,
    values: Array,
) -> tuple[int, int]:  # fmt: skip
    """Read all windows; return what is wrong, 0 for nothing, and how many values there are."""
    means, news = np.zeros(len(starts), np.int64), np.zeros(KEPT, np.int64)
    running, left, known, at, taken = 1 << bits, 0, 0, 0, 0
    size = 8 * len(content)
    for window in range(len(counts)):
        if count_bits:
            if at + count_bits > size:
                return _ENDED, taken
            counts[window] = _take(content, at, count_bits)
            at += count_bits
            if counts[window] >= len(starts):
                return _TOO_MANY, taken
        for row in range(counts[window]):
            mean = means[row] if row < known else running
            known = max(known, row + 1)
            k, ones = _choose_k(mean, running), 0
            while ones < MOST_ONES and at < size and _take(content, at, 1):
                ones, at = ones + 1, at + 1
            rest = bits if ones == MOST_ONES else k + 1  # with the zero after the ones
            if at + rest > size:
                return _ENDED, taken
            u = _take(content, at, rest)
            at += rest
            if ones < MOST_ONES:
                u |= ones << k
            elif u >> k < MOST_ONES:
                return _ROUNDABOUT, taken
            new = u >> 1 if u & 1 == 0 else -(u >> 1) - 1
            y = _wrap(new + (_predict(news, terms, starts[row], starts[row + 1])
                             if row else left), bits)  # fmt: skip
            if row == 0:
                new, left = y, y
            if row < KEPT:
                news[row] = new
            values[taken] = y
            taken += 1
            means[row] = mean + u - (mean >> 3)
            running += u - (running >> 3)
    if size - at >= 8 or _take(content, at, size - at):
        return _LEFT_OVER, taken
    return 0, taken
