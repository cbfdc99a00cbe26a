"""How many measurements each window takes, where windows differ.

The rows of a nested camera are ordered, so that a window may be measured with its first m_b rows
only. Counts are integers (h, w), the same for all channels of a color image, or (3, h, w), a map
for each. A budget is the sum of them, which `proportional_counts` never exceeds.
"""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.io.files import read_npy
from tersense.sensing.geometry import Geometry

Counts = NDArray[np.int32]

# Values are dense in memory, so that a small file could claim a lot of it. Deflate gives about a
# thousand bytes for one at most; with values of 2 bits, this is as much.
LARGEST_SPARE = 256  # values in memory for each that was measured
_ALWAYS_FINE = 2**24  # values in memory, however few were measured
_MOST_ROWS = 2**16 - 1  # that a file can count


def check_counts(counts: Any, shape: tuple[int, ...]) -> Counts:
    """Return counts for y of a shape, (m, h, w) or (3, m, h, w); refuse what cannot be.

    Args:
        counts: A number for all windows, or integers (h, w) or (in color) (3, h, w).
        shape: Of y.
    """
    given, (rows, *grid) = np.asarray(counts), shape[-3:]
    allowed = [tuple(grid)] if len(shape) == 3 else [tuple(grid), (shape[0], *grid)]
    if given.dtype.kind not in "iu":
        raise TersenseError(f"counts per window must be integers, got {given.dtype}")
    if given.ndim == 0:
        given = np.broadcast_to(given, grid)
    if given.shape not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise TersenseError(
            f"counts per window must have shape {wanted}, one for each window, got {given.shape}"
        )
    if given.min() < 0 or given.max() > rows:
        raise TersenseError(
            f"counts per window must be from 0 to {rows}, the rows of this camera, "
            f"got {given.min()} to {given.max()}"
        )
    if rows > _MOST_ROWS:
        raise TersenseError(
            f"counts per window need a camera of at most {_MOST_ROWS} rows, not {rows}"
        )
    checked: Counts = given.astype(np.int32)
    _require_enough(count_all(checked, shape), shape)
    return checked


def _require_enough(taken: int, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape, dtype=np.int64))
    if taken < 1 or size > max(_ALWAYS_FINE, LARGEST_SPARE * taken):
        raise TersenseError(
            f"counts per window must measure something, and at least one of {LARGEST_SPARE} of the "
            f"{size:,} values of a large image, got {taken:,}; crop the image or measure more"
        )


def count_all(counts: Counts, shape: tuple[int, ...]) -> int:
    """Return how many values of y were measured, in all channels."""
    shared = len(shape) == 4 and counts.ndim == 2
    return int(counts.sum(dtype=np.int64)) * (shape[0] if shared else 1)


def which_measured(counts: Counts, rows: int) -> NDArray[np.bool_]:
    """Return (…, m, h, w): whether a window was measured with a row; it broadcasts to y."""
    there: NDArray[np.bool_] = np.arange(rows)[:, None, None] < counts[..., None, :, :]
    return there


def to_stream(values: NDArray[Any], counts: Counts) -> NDArray[Any]:
    """Return what was measured of y (…, m, h, w): window after window, the first m_b of each."""
    of_windows = np.moveaxis(values, -3, -1)
    there = np.arange(values.shape[-3]) < counts[..., None]
    return of_windows[np.broadcast_to(there, of_windows.shape)]


def from_stream(stream: NDArray[Any], counts: Counts, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return y of a shape, zero where it was not measured; what `to_stream` took apart."""
    values = np.zeros(shape, stream.dtype)
    of_windows = np.moveaxis(values, -3, -1)
    there = np.arange(shape[-3]) < counts[..., None]
    of_windows[np.broadcast_to(there, of_windows.shape)] = stream
    return values


def compress(counts: Counts) -> NDArray[np.uint8]:
    """Return counts as a file keeps them: 16 bits each, lowest byte first, deflated (zlib)."""
    return np.frombuffer(zlib.compress(counts.astype("<u2").tobytes(), 9), np.uint8)


def decompress(content: bytes, shape: tuple[int, ...]) -> Counts:
    """Return the counts for y of a shape; at most as many bytes are inflated as there can be."""
    windows = int(np.prod(shape[-2:], dtype=np.int64))
    sizes = [2 * windows] if len(shape) == 3 else [2 * windows, 6 * windows]
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(content, sizes[-1] + 1)
    except zlib.error as error:
        raise ValueError(f"the counts per window cannot be inflated: {error}") from error
    if not inflater.eof or inflater.unused_data or len(plain) not in sizes:
        raise ValueError(f"the counts per window must be those of {windows} windows and end there")
    counts = np.frombuffer(plain, "<u2").reshape(-1, *shape[-2:])
    return check_counts(counts[0] if len(plain) == sizes[0] else counts, shape)


def proportional_counts(
    weights: NDArray[Any], budget: int, lowest: int, highest: int
) -> NDArray[np.int32]:
    """Share a budget out in proportion to weights, as whole numbers and never one too many.

    What is above or below the bounds is given to the others, in proportion too; of the fractions,
    the largest are rounded up.

    Args:
        weights: Of any shape, finite and at least 0; all zero counts as all equal.
        budget: The sum. If it is beyond highest times the number of weights, that is given.
        lowest: That each gets.
        highest: That none exceeds.

    Example:
        >>> import numpy as np
        >>> from tersense.measurements import proportional_counts
        >>> proportional_counts(np.array([1, 1, 2]), budget=9, lowest=1, highest=4).tolist()
        [3, 2, 4]
    """
    flat = np.asarray(weights, np.float64).ravel()
    if not (np.isfinite(flat).all() and flat.size and flat.min() >= 0):
        raise TersenseError("weights must be finite and at least 0")
    if not 0 <= lowest <= highest:
        raise TersenseError(f"lowest must be from 0 to {highest}, got {lowest}")
    if budget < lowest * flat.size:
        raise TersenseError(
            f"the budget must be at least {lowest * flat.size:,}, {lowest} for each of "
            f"{flat.size:,} windows, got {budget:,}; measure more"
        )
    budget = min(int(budget), highest * flat.size)
    shares = _bounded_shares(flat, budget, lowest, highest)
    counts = np.floor(shares).astype(np.int64)
    # Rounding errors of the shares may leave a few too many or too few: the order decides them.
    order = np.argsort(counts - shares, kind="stable")
    while (rest := budget - int(counts.sum())) != 0:
        step = 1 if rest > 0 else -1
        free = order[(counts < highest)[order] if step > 0 else (counts > lowest)[order]]
        chosen = free[:rest] if step > 0 else free[::-1][:-rest]
        counts[chosen] += step
    return counts.reshape(np.shape(weights)).astype(np.int32)


def _bounded_shares(
    weights: NDArray[np.float64], budget: int, lowest: int, highest: int
) -> NDArray[np.float64]:
    """Return clip(c·weight, lowest, highest) with the c that spends the budget."""
    if not weights.any():
        weights = np.ones_like(weights)
    weights = weights / weights.max()
    # Who weighs nothing still takes a share when all the others have reached the highest.
    weights = np.maximum(weights, 1e-12)
    low, high = 0.0, highest / weights.min()
    for _ in range(200):
        middle = (low + high) / 2
        if np.clip(middle * weights, lowest, highest).sum() > budget:
            high = middle
        else:
            low = middle
    return np.clip(low * weights, lowest, highest)


def counts_by_importance(
    importance: NDArray[Any], geometry: Geometry, mean: int, lowest: int, highest: int
) -> Counts:
    """Share measurements out to the windows of an image by how important its pixels are.

    Args:
        importance: (H, W), at least 0; a window weighs as much as the mean of its own S×S cell.
        geometry: Window and stride.
        mean: Measurements per window, on average; not one more is taken in all.
        lowest: That each window gets.
        highest: m, the rows of the camera.

    Example:
        >>> import numpy as np
        >>> from tersense.measurements import counts_by_importance
        >>> from tersense.sensing import Geometry
        >>> face = np.zeros((64, 96))
        >>> face[:32, 32:64] = 1
        >>> counts_by_importance(face, Geometry(32, 32), 100, lowest=10, highest=512).tolist()
        [[18, 512, 18], [18, 17, 17]]
    """
    weights = window_means(importance, geometry)
    return proportional_counts(weights, mean * weights.size, lowest, highest)


def read_counts(path: str | Path) -> NDArray[Any]:
    """Read counts per window from a `.npy` file; `check_counts` tells whether they fit."""
    counts = read_npy(Path(path))
    if counts.dtype.kind not in "iu" or counts.ndim not in (2, 3) or not counts.size:
        raise TersenseError(
            f"{path} must hold integers, windows down × windows across, got {counts.dtype} of "
            f"shape {counts.shape}"
        )
    return np.array(counts)


def window_means(image: NDArray[Any], geometry: Geometry) -> NDArray[np.float64]:
    """Return the mean of each window's own S×S cell of an image (H, W): (h, w)."""
    stride, (h, w) = geometry.stride, geometry.grid(image.shape[0], image.shape[1])
    down, across = np.arange(h) * stride, np.arange(w) * stride
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.float64), down, 0), across, 1)
    means: NDArray[np.float64] = sums / cell_pixels((image.shape[0], image.shape[1]), stride)
    return means


def cell_pixels(size: tuple[int, int], stride: int) -> NDArray[np.int64]:
    """Return how many pixels of an image (H, W) lie in each S×S cell, (h, w)."""
    sides = [np.minimum(stride, side - np.arange(0, side, stride)) for side in size]
    return np.outer(*sides)
