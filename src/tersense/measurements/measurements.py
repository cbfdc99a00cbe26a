"""What the camera read out: measurements of one image and how they were made."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.io.files import require_file, written_whole
from tersense.measurements import tsm
from tersense.measurements.counts import Counts, check_counts, count_all, which_measured
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import Header
from tersense.sensing.patterns import Patterns

FindPatterns = Callable[[str, int, int], Patterns]  # by digits of the hash, the stride and m


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one image; `numpy.asarray` gives the values.

    Args:
        values: Integers of shape (m, h, w), or (3, m, h, w) in color: y itself, or the codes of
            a quantized readout: `header.readout.values` tells what they stand for. Zero where
            counts say that nothing was measured.
        header: How they were made.
        counts: Of a nested camera, with how many of its first rows each window was measured:
            integers (h, w), or (3, h, w) for channels of their own. None for all rows everywhere.
    """

    values: NDArray[Any]
    header: Header
    counts: Counts | None = None

    def __post_init__(self) -> None:
        if self.values.dtype.kind != "i" or self.values.shape != self.header.shape:
            raise ValueError(
                f"measurements of this image must be integers of shape {self.header.shape}, "
                f"got {self.values.dtype} of {self.values.shape}"
            )
        if self.counts is None:
            return
        object.__setattr__(self, "counts", check_counts(self.counts, self.header.shape))
        if self.values.any(where=~self._measured):
            raise ValueError("values beyond the counts per window must be 0, some are not")
        version = max(self.header.version, tsm.COUNTED)
        object.__setattr__(self, "header", replace(self.header, version=version))

    @property
    def _measured(self) -> Any:
        """Where a value was measured, broadcasting to values; True for everywhere."""
        return True if self.counts is None else which_measured(self.counts, self.header.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    @property
    def taken(self) -> int:
        """Return how many measurements were taken, of all channels."""
        return (
            self.values.size if self.counts is None else count_all(self.counts, self.values.shape)
        )

    @property
    def per_pixel(self) -> float:
        """Return the true number of measurements per pixel (of each channel, in color).

        Windows that are partly outside the image count in full.
        """
        return self.taken / self.pixels

    @property
    def pixels(self) -> int:
        """Return how many pixels the image has, of all channels."""
        return self.header.height * self.header.width * self.header.channels

    @property
    def bits_per_pixel(self) -> float:
        """Return the bits per pixel (of each channel, in color) of the file without its header."""
        return 8 * self.payload_bytes / self.pixels

    @property
    def payload_bytes(self) -> int:
        """Return the bytes of the file without its header."""
        return tsm.payload_bytes(self.values, self.header, self.counts)

    def __repr__(self) -> str:
        shape, header = "×".join(map(str, self.values.shape)), self.header
        some = "" if self.counts is None else f", {self.taken:,} taken,"
        return f"<Measurements {shape}{some} of {header.width}×{header.height} {header.mode}>"

    def read_out(self, readout: Readout, light: NDArray[Any] | None = None) -> "Measurements":
        """Model a readout of these exact measurements: light and noise, then few bits.

        Args:
            readout: What happens. One that follows the image is ranged for this one; the header
                records steps and offsets.
            light: |Φ|x of the shape of y, where the readout counts photons.
        """
        before = self.header.readout
        random = readout.noise or readout.photons
        if before.bits or (random and not before.exact):
            raise ValueError(f"a readout must begin with exact measurements, these are {before}")
        noisy = readout.disturb(self.values, light)
        final = readout.ranged(noisy, None if self.counts is None else self._measured)
        values = np.asarray(final.quantize(noisy)).astype(np.int32)
        if self.counts is not None:
            values = np.where(self._measured, values, 0)
        if not random:
            final = replace(final, noise=before.noise, photons=before.photons, seed=before.seed)
        version = tsm.PACKED if final.bits else self.header.version
        header = replace(self.header, readout=final, version=version)
        return Measurements(values, header, self.counts)

    def with_noise(self, sigma: float, seed: int = 0) -> "Measurements":
        """Model a noisy sensor: add Gaussian noise, then read out integers.

        Args:
            sigma: Standard deviation, in units of a pixel value (0 to 255, or 2^depth − 1).
            seed: The same seed gives the same noise.
        """
        return self.read_out(Readout(noise=float(sigma), seed=seed))

    def quantized(self, bits: int, full_scale: float | None = None) -> "Measurements":
        """Model a readout of few bits: a uniform quantizer that reaches ±`full_scale`.

        Args:
            bits: B, at least 2. The codes lie between −(2^(B−1) − 1) and 2^(B−1) − 1.
            full_scale: The largest magnitude to represent; what exceeds it is clipped. None to
                range each pattern to its measurements.
        """
        if full_scale is None:
            return self.read_out(Readout.ranging(bits))
        return self.read_out(Readout.covering(full_scale, bits))

    def to_bytes(self, patterns: Patterns | None = None) -> bytes:
        """Return the content of a measurement file; see `save`."""
        if patterns is None:
            return tsm.encode(self.values, self.header, self.counts)
        from tersense.measurements import codec  # Numba takes a while to import

        self.header.require_taken_with(patterns, "the camera given")
        return codec.encode(self.values, self.header, self.counts, patterns)

    def save(self, path: str | Path, patterns: Patterns | None = None) -> None:
        """Write a measurement file (`.tsm`), whole or not at all.

        Args:
            path: The file.
            patterns: Φ, to code the values in few bytes; whoever reads the file then needs it,
                too. Without, a plain file that needs nothing else.
        """
        content = self.to_bytes(patterns)
        with written_whole(path) as partial:
            partial.write_bytes(content)

    @classmethod
    def load(
        cls,
        path: str | Path,
        max_pixels: int = tsm.MAX_PIXELS,
        patterns: Patterns | FindPatterns | None = None,
    ) -> "Measurements":
        """Read a measurement file (`.tsm`), checking all of it.

        Args:
            path: The file.
            max_pixels: Refuse larger images, before memory is taken for them.
            patterns: Φ, which a coded file needs; or what finds it, given the first digits of its
                hash, the stride and the number of rows.
        """
        with _opened(path) as (file, size):
            if not _is_coded(file):
                return cls(*tsm.decode(file, size, max_pixels))
            from tersense.measurements import codec

            content = file.read()
            header, _ = codec.peek(content, max_pixels)
        found = _find_patterns(patterns, header, path)
        with _explained(path):
            return cls(*codec.decode(content, found, max_pixels))

    @staticmethod
    def peek(path: str | Path, max_pixels: int = tsm.MAX_PIXELS) -> tuple[Header, Counts | None]:
        """Return what a file says about its measurements, header and counts, without any patterns.

        Of a coded file, the header has only the first digits of the hash of Φ.
        """
        with _opened(path) as (file, size):
            if not _is_coded(file):
                return tsm.decode(file, size, max_pixels)[1:]
            from tersense.measurements import codec

            return codec.peek(file.read(), max_pixels)


def _find_patterns(
    patterns: Patterns | FindPatterns | None, header: Header, path: str | Path
) -> Patterns:
    """Return the patterns that a coded file needs; what goes wrong is not the file's fault."""
    if patterns is None:
        raise TersenseError(
            f"{path} is coded with the patterns {header.phi[:12]}…, which are needed to read it; "
            "give them, or read it with `tersense.read`"
        )
    if isinstance(patterns, Patterns):
        return patterns if header.rows >= len(patterns) else patterns.first(header.rows)
    return patterns(header.phi, header.stride, header.rows)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a measurement file and tell its size."""
    size = require_file(path)
    with _explained(path), Path(path).open("rb") as file:
        yield file, size


@contextlib.contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    """Make one line of whatever is wrong with a measurement file."""
    try:
        yield
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise TersenseError(f"{path} is not a usable measurement file: {reason}") from error


def _is_coded(file: BinaryIO) -> bool:
    start = file.read(len(tsm.CODED_MAGIC))
    file.seek(0)
    return start == tsm.CODED_MAGIC


@dataclass(frozen=True, eq=False)
class MeasuredValues:
    """What a real camera delivered: real numbers, and some perhaps not at all.

    Args:
        values: (m, h, w), or (3, m, h, w) in color: y as far as it is known, NaN where it is
            missing.
        header: How they were made.
        deviation: Standard deviation of the error of each value, of a shape that broadcasts to
            theirs; None where it is not known, or only what the header's readout tells.
    """

    values: NDArray[np.floating[Any]]
    header: Header
    deviation: NDArray[np.floating[Any]] | None = None

    def __post_init__(self) -> None:
        if self.deviation is not None:
            self._check_deviation(self.deviation)
        if self.values.dtype.kind != "f" or self.values.shape != self.header.shape:
            raise ValueError(
                f"values of this image must be real numbers of shape {self.header.shape}, "
                f"got {self.values.dtype} of {self.values.shape}"
            )
        if np.isinf(self.values).any():
            raise ValueError("infinite measurements cannot be right; write NaN for missing ones")

    def _check_deviation(self, deviation: NDArray[np.floating[Any]]) -> None:
        try:
            np.broadcast_to(deviation, self.header.shape)
        except ValueError as error:
            raise ValueError(
                f"deviations must broadcast to {self.header.shape}, got {deviation.shape}"
            ) from error
        if not (np.isfinite(deviation) & (deviation >= 0)).all():
            raise ValueError("deviations must be finite and at least 0")

    @property
    def counts(self) -> Counts | None:
        """Return how many of its first rows each window was measured with, (h, w) or (3, h, w).

        None where nothing is missing, or where windows lack other rows than their last ones.
        """
        known = ~np.isnan(self.values)
        counts = known.sum(axis=-3, dtype=np.int32)
        in_front = np.array_equal(known, which_measured(counts, self.header.rows))
        return counts if in_front and not known.all() else None

    @property
    def missing(self) -> float:
        """Return the share of measurements that are missing."""
        return float(np.isnan(self.values).mean())
