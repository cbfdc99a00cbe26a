"""The frozen measurement matrix Φ: its patterns, where they come from, what they cost.

Φ is learned (`ternary`), drawn at random, or the user's own. A `.npy` or `.mat` file holds patterns
as (m, B, B), or as a matrix (m, n) with n = B² pixels per row, in raster order. Entries are −1, 0
and +1, as integers, floats or booleans; so ternary patterns, ±1 patterns (Hadamard) and the 0/1
patterns of a mirror device all serve.

A nested matrix works at every rate: its first m patterns are the matrix of that rate.
`nested_order` is how such an order begins; training settles what the patterns look like.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError, one_line
from tersense.io.deep import DEEPEST, USUAL, largest_pixel
from tersense.io.files import read_npy
from tersense.io.matlab import list_matrices

SUFFIXES = (".npy", ".mat")
MAX_ACCUMULATOR_BITS = 32  # of every implementation: CPU, GPU, Verilog, C, files
MAX_ENTRIES = 2**28
_VARIABLE = "phi"
_CORRELATION = 0.95  # of neighboring pixels in photographs


def rows_for_rate(rate: float, stride: int) -> int:
    """Return m = ⌊R·S²⌋, the number of patterns that a sensing rate allows, at least one."""
    if not (rate >= 0 and math.isfinite(rate * stride**2)):
        raise TersenseError(f"rate must be a number above 0, as 0.1, got {rate:g}")
    return max(1, math.floor(rate * stride**2 + 1e-9))


def nonzeros_for_density(density: float, size: int) -> int:
    """Return K = ⌊n·γ⌋, at least one."""
    return max(1, math.floor(density * size + 1e-9))


@dataclass(frozen=True, eq=False)
class Patterns:
    """The frozen Φ of a camera and the figures that its designer asks for.

    Args:
        phi: (m, B, B) int8 with entries −1, 0, +1.
        stride: S; the patterns are applied every S pixels.
    """

    phi: NDArray[np.int8]
    stride: int

    def __post_init__(self) -> None:
        shape, dtype = self.phi.shape, self.phi.dtype
        if dtype != np.int8 or len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
            raise ValueError(f"patterns are int8 of shape (m, B, B), not {dtype} of {shape}")
        if not 1 <= self.stride <= shape[1]:
            raise ValueError(f"stride {self.stride} must lie between 1 and the window {shape[1]}")
        if self.phi.min() < -1 or self.phi.max() > 1:
            raise ValueError("patterns hold −1, 0 and +1 only")
        if self.accumulator_bits > MAX_ACCUMULATOR_BITS:
            raise ValueError(
                f"measurements must fit {MAX_ACCUMULATOR_BITS} bits, but a pattern with "
                f"{max(map(max, self.signs_per_row)):,} entries of one sign needs "
                f"{self.accumulator_bits}; use smaller windows"
            )
        frozen = np.ascontiguousarray(self.phi).copy()
        frozen.setflags(write=False)
        object.__setattr__(self, "phi", frozen)

    def __len__(self) -> int:
        return len(self.phi)

    def first(self, count: int) -> "Patterns":
        """Return the first `count` patterns: the camera at a lower rate."""
        return Patterns(self.phi[:count], self.stride)

    def in_order(self, rows: NDArray[np.intp]) -> "Patterns":
        """Return the same patterns in another order."""
        return Patterns(self.phi[rows], self.stride)

    @property
    def window(self) -> int:
        """B, the side of a pattern in pixels."""
        return int(self.phi.shape[1])

    @property
    def rate(self) -> float:
        """R = m/S², measurements per pixel of a large image."""
        return len(self.phi) / self.stride**2

    @cached_property
    def nonzeros(self) -> int:
        """Return the number of non-zero entries in all patterns together."""
        return int(np.count_nonzero(self.phi))

    @property
    def density(self) -> float:
        """Return the share of entries that are not zero."""
        return self.nonzeros / self.phi.size

    @property
    def additions_per_measurement(self) -> float:
        """Return the additions into an accumulator that starts at zero, on average."""
        return self.nonzeros / len(self.phi)

    @cached_property
    def signs_per_row(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many +1 and how many −1 each pattern has, (m,) and (m,)."""
        return (self.phi > 0).sum(axis=(1, 2)), (self.phi < 0).sum(axis=(1, 2))

    @property
    def largest_magnitude(self) -> int:
        """Return the largest |y| that 8-bit pixels can give."""
        return self.largest_magnitude_at(USUAL)

    @property
    def accumulator_bits(self) -> int:
        """Return the width of a two's-complement accumulator that no 8-bit image overflows."""
        return self.accumulator_bits_at(USUAL)

    @property
    def measurement_dtype(self) -> np.dtype[Any]:
        """Return the integer type that holds all measurements of 8-bit pixels: int16 or int32."""
        return np.dtype(np.int16 if self.accumulator_bits <= 16 else np.int32)

    def largest_magnitude_at(self, depth: int) -> int:
        """Return the largest |y| that pixels of `depth` bits can give."""
        plus, minus = self.signs_per_row
        return largest_pixel(depth) * int(max(plus.max(), minus.max()))

    def accumulator_bits_at(self, depth: int) -> int:
        """Return the width of an accumulator that no image of `depth` bits per pixel overflows."""
        plus, minus = self.signs_per_row
        white = largest_pixel(depth)
        highest, lowest = white * int(plus.max()), -white * int(minus.max())
        return max(highest.bit_length(), (-lowest - 1).bit_length() if lowest else 0) + 1

    def require_depth(self, depth: int) -> None:
        """Refuse pixels so deep that a sum of them may need more than 32 bits.

        Sums are not widened: files, Verilog and C hold 32 bits too. The paper's windows are far
        from that; it takes a pattern with more than 32,768 entries of one sign.
        """
        if self.accumulator_bits_at(depth) > MAX_ACCUMULATOR_BITS:
            fits = (d for d in range(DEEPEST, USUAL, -1)
                    if self.accumulator_bits_at(d) <= MAX_ACCUMULATOR_BITS)  # fmt: skip
            raise TersenseError(
                f"depth must be at most {next(fits, USUAL)} bits per pixel for these patterns, "
                f"got {depth}: a measurement would need {self.accumulator_bits_at(depth)} bits, "
                f"more than {MAX_ACCUMULATOR_BITS}"
            )

    @cached_property
    def storage_bytes(self) -> dict[str, int]:
        """Return the bytes of Φ in each storage form."""
        m, n = len(self.phi), self.window**2
        index_bytes = 1 if m <= 256 else 2
        return {
            "float32": 4 * m * n,
            "int8": m * n,
            "2-bit": math.ceil(m * n / 4),
            "CSC": self.nonzeros * index_bytes + 2 * n * index_bytes,
            "Golomb-Rice": math.ceil(self._golomb_rice_bits() / 8),
            "random-support entropy": math.ceil(self._entropy_bits() / 8),
        }

    def _golomb_rice_bits(self) -> int:
        """Return the bits of all gaps between non-zeros, Golomb-Rice coded, and of the signs."""
        gaps = [np.diff(np.flatnonzero(row), prepend=-1) - 1 for row in self.phi]
        every = np.concatenate(gaps)
        return min(int((every >> k).sum()) + (k + 1) * every.size for k in range(16)) + every.size

    def _entropy_bits(self) -> float:
        """Return log2 of the number of ternary matrices with these counts a row."""
        n = self.window**2
        counts = np.count_nonzero(self.phi, axis=(1, 2))
        supports = sum(
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in counts
        )
        return supports / math.log(2) + self.nonzeros

    @cached_property
    def hash(self) -> str:
        """Return the SHA-256 of shape and entries: the name of this Φ in files."""
        shape = "x".join(map(str, self.phi.shape))
        return hashlib.sha256(shape.encode() + b":" + self.phi.tobytes()).hexdigest()


def random_patterns(
    m: int, window: int = 32, density: float | None = None, stride: int | None = None, seed: int = 0
) -> Patterns:
    """Draw ternary patterns that nobody learned.

    Args:
        m: Number of patterns.
        window: B.
        density: γ: every pattern has exactly K = ⌊γB²⌋ non-zeros, at least one, in random places
            and of random sign. None for the paper's baseline, "ternary but not sparse": the paper
            does not say how likely each value is; here −1, 0 and +1 are equally so.
        stride: S; B where not given.
        seed: The same seed gives the same patterns.
    """
    rng, n = np.random.default_rng(seed), window**2
    if density is None:
        phi = rng.integers(-1, 2, (m, n), dtype=np.int8)
    else:
        phi = np.zeros((m, n), np.int8)
        places = rng.random((m, n)).argsort(axis=1)[:, : nonzeros_for_density(density, n)]
        np.put_along_axis(phi, places, rng.choice([-1, 1], places.shape), axis=1)
    return Patterns(phi.reshape(m, window, window), stride or window)


def nested_order(patterns: Patterns) -> NDArray[np.intp]:
    """Return an order of the patterns, each the one that tells most about what is still unknown.

    Pixels are taken for Gaussian with covariance C = ρ^(|Δrow| + |Δcolumn|). Measuring φ lowers
    the variance of the whole window by ‖Cφ‖²/φᵀCφ, and leaves C − Cφφᵀ C/φᵀCφ.
    """
    count, window = len(patterns), patterns.window
    apart = np.abs(np.subtract.outer(np.arange(window), np.arange(window)))
    covariance = _CORRELATION**apart
    phi = patterns.phi.astype(np.float64)
    known = (covariance @ phi @ covariance).reshape(count, -1)  # row i is φᵢᵀC
    phi = phi.reshape(count, -1)
    order: list[int] = []
    for _ in range(count):
        variances = np.einsum("ij,ij->i", known, phi)
        tells = np.einsum("ij,ij->i", known, known) / np.maximum(variances, 1e-9)
        tells[order] = -1.0
        best = int(np.argmax(tells))
        order.append(best)
        known -= np.outer(known @ phi[best], known[best]) / max(variances[best], 1e-9)
    return np.array(order)


def read_patterns(path: str | Path, stride: int | None = None) -> Patterns:
    """Read patterns from a `.npy` or `.mat` file.

    Args:
        path: The file. Of several variables in a `.mat` file, the one called `phi` is taken.
        stride: S; the window B where not given, that is, blocks.
    """
    path = Path(path)
    readers = {".npy": _read_npy, ".mat": _read_mat}
    if path.suffix.lower() not in readers:
        raise TersenseError(f"patterns come in .npy or .mat files; {path} is neither")
    try:
        array = readers[path.suffix.lower()](path)
    except TersenseError:
        raise
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror or one_line(error)}") from error
    except Exception as error:  # a damaged file may fail in any way inside numpy and scipy
        raise TersenseError(f"{path} holds no readable array: {one_line(error)}") from error
    phi = _check(path, array)
    window = phi.shape[1]
    if stride is not None and not 1 <= stride <= window:
        raise TersenseError(
            f"the patterns of {path} are {window}×{window} pixels; a stride of {stride} does not "
            f"fit, use one from 1 to {window}"
        )
    return Patterns(phi, stride or window)


def _read_npy(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = read_npy(path)
    return array


def _read_mat(path: Path) -> NDArray[Any]:
    found = {matrix.name: matrix for matrix in list_matrices(path) if max(matrix.shape) > 1}
    if _VARIABLE not in found and len(found) != 1:
        listed = ", ".join(found) or "none"
        raise TersenseError(f"{path} holds these matrices: {listed}; call the patterns phi")
    matrix = found[_VARIABLE] if _VARIABLE in found else next(iter(found.values()))
    if math.prod(matrix.shape) > MAX_ENTRIES:
        raise TersenseError(f"{path}: {_too_many(matrix.shape)}")
    return matrix.read()


def _check(path: Path, array: NDArray[Any]) -> NDArray[np.int8]:
    """Return patterns (m, B, B) int8, or refuse what came."""
    shape, side = array.shape, math.isqrt(array.shape[-1]) if array.ndim else 0
    if array.size > MAX_ENTRIES:
        raise TersenseError(f"{path}: {_too_many(shape)}")
    if array.ndim == 2 and array.size and side**2 == shape[1]:
        shape = (shape[0], side, side)
    if len(shape) != 3 or shape[1] != shape[2] or not array.size:
        raise TersenseError(
            f"{path} has shape {array.shape}; patterns have shape (m, B, B), or (m, n) with n = B²"
        )
    if array.dtype.kind not in "biuf":
        raise TersenseError(f"{path} holds {array.dtype}; patterns are −1, 0 and +1, as numbers")
    wrong = ~np.isin(array, (-1, 0, 1))
    if wrong.any():
        raise TersenseError(
            f"{path} holds {array[wrong][0]:g}, and {int(wrong.sum()):,} such entries in all; "
            "patterns are made of −1, 0 and +1"
        )
    phi: NDArray[np.int8] = array.astype(np.int8).reshape(shape)
    empty = np.flatnonzero(~phi.any(axis=(1, 2)))
    if empty.size:
        raise TersenseError(f"pattern {empty[0]} of {path} is all zeros; leave it out")
    return phi


def _too_many(shape: tuple[int, ...]) -> str:
    return f"{shape} are more than {MAX_ENTRIES:,} entries, the most that patterns may have"
