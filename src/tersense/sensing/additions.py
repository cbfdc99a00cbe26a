"""Sense uint8 images by additions alone, on the CPU; uint16 images as two of them.

The image is first taken apart into S * S *planes*, one for each place that a pixel can have in
its S x S cell.  A given pixel of all windows then lies in one plane, at one distance from the
windows' own cells.  With S = 2::

    image       a b A B     planes     a A    b B    c C    d D
                c d C D                e E    f F    g G    h H
                e f E F
                g h G H

So a measurement of many neighboring windows is a sum of vectors of neighboring bytes, whatever
the geometry: windows are never copied out, and overlapping ones share their pixels.
"""

import contextlib
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tersense.sensing.loops import Array, compiled, compiles, sense_plainly

with contextlib.suppress(Exception):  # another llvmlite; what needs these will not compile
    from tersense.sensing._simd import prefetch, sum_64, sum_128, transpose

CHUNK = 128  # the sum of 128 pixels still fits int16: 128 * 255 = 32640
STRIP_BYTES = 128 * 1024  # the planes of a strip of the image stay in the second-level cache
DEEP_PIXELS = 1 << 18  # of uint16, split into bytes at a time
THREAD_PIXELS = 1 << 21  # smaller images take about as long to share out as to sense


class _Layout(NamedTuple):
    """Say where the cells of a strip of the image lie in the planes."""

    stride: int  # S, the side of a cell
    lead: int  # pixels of the first window before the image begins
    halo: int  # cells that a window reaches beyond its own, down and to the right
    depth: int  # rows of windows in a strip
    pitch: int  # cells in a row of cells
    size: int  # bytes in a plane


@compiled
def _copy(source: Array, target: Array) -> None:
    """Copy a row.  Numba's own slice assignment is slower: it minds overlap and strides."""
    for k in range(source.size):
        target[k] = source[k]


@compiled
def _deal(pixels: Array, x: int, cells: int, planes: Array, at: int, layout: _Layout) -> None:
    """Deal ``cells`` cells of a pixel row, from ``x`` on, out to S planes, from ``at`` on."""
    stride, size = layout.stride, layout.size
    for q in range(0, stride, 16):
        for j in range(0, cells, 32):
            transpose(pixels, x + j * stride + q, stride, planes, at + q * size + j, size)


@compiled
def _reach(cells: int, stride: int) -> int:
    """Return how many pixels ``_deal`` reads: all of its tiles of 32 cells and 16 columns."""
    return ((cells + 31) // 32 * 32 - 1) * stride + (stride + 15) // 16 * 16


@compiled
def _take_apart(
    image: Array, top: int, rows: int, layout: _Layout, padded: Array, planes: Array
) -> None:
    """Write ``rows`` rows of cells, from pixel row ``top`` on, into the planes.

    Rows are dealt in whole tiles.  What a tile writes too much lies where a later one writes, or
    behind everything.  ``padded`` holds one pixel row of all the cells, with zeros around the
    image; rows of the image that fill their tiles do without.  ``pixels`` is not sliced for
    them: to count references to a slice waits for all that is being written.
    """
    (height, width), pixels = image.shape, image.reshape(image.size)
    stride, pitch = layout.stride, layout.pitch
    as_is = layout.lead == 0 and _reach(pitch, stride) <= width and top + rows * stride <= height
    for p in range(stride):
        at = p * stride * layout.size
        for i in range(rows):
            y = top + i * stride + p
            if as_is:
                _deal(pixels, y * width, pitch, planes, at + i * pitch, layout)
                continue
            inside = padded[i * pitch * stride + layout.lead :][:width]
            if 0 <= y < height:
                _copy(image[y], inside)
            else:
                inside[:] = 0
        if not as_is:
            _deal(padded, 0, rows * pitch, planes, at, layout)


@compiled
def _close_gaps(sums: Array, begin: int, end: int, pitch: int, w: int, out: Array) -> None:
    """Copy the ``w`` windows of each row of ``pitch`` cells; cell ``begin`` is ``sums[0]``."""
    for i in range(begin // pitch, (end - 1) // pitch + 1):
        a, b = max(begin, i * pitch), min(end, i * pitch + w)
        if a < b:
            _copy(sums[a - begin : b - begin], out[a - i * (pitch - w) :])


@compiled
def _sense(
    begin: int, end: int, image: Array, layout: _Layout, offsets: Array, chunks: Array,
    bounds: Array, first: int, out: Array,
) -> None:  # fmt: skip
    """Fill ``out[:, begin:end]``, where ``out[:, 0]`` is window row ``first``.

    Args:
        begin: first row of ``out`` to fill.
        end: the row after the last.
        image: (H, W) uint8.
        layout: of the planes of a strip.
        offsets: (non-zeros,) int32, the way in the planes from a window's own cell to its pixels.
        chunks: (chunks, 3) int64, where in ``offsets`` plus begins, minus begins and both end.
        bounds: (m + 1,) int64, where in ``chunks`` each pattern begins.
        first: a window row of the image.
        out: (m, rows, w) int16 or int32.
    """
    (m, rows, w), width = out.shape, image.shape[1]
    stride, lead, halo, depth, pitch, size = layout
    space = np.empty((stride * stride + 16) * size + 64, np.uint8)
    planes = space[-space.ctypes.data % 64 :]  # vectors that cross no cache line load faster
    padded = np.zeros(_reach((depth + halo) * pitch, stride), np.uint8)
    sums = np.empty(128, out.dtype)
    flat = out.reshape(out.size)
    stop = min(((first + end + halo) * stride - lead) * width, image.size)
    for i0 in range(begin, end, depth):
        deep = min(depth, end - i0)
        top = (first + i0) * stride - lead
        _take_apart(image, top, deep + halo, layout, padded, planes)
        # Windows are sensed straight into ``out``, the last ones twice if need be, where there are
        # no gaps between them or where one row of windows is enough.
        alone = pitch != w and (w == 64 or w >= 128)
        lanes = w if alone else (deep - 1) * pitch + w
        direct = alone or (pitch == w and (lanes == 64 or lanes >= 128))
        blocks = (lanes + 127) // 128  # of windows, few enough to keep their pixels near
        runs = deep * blocks if alone else blocks
        ahead = (top + (deep + halo) * stride) * width
        share = deep * stride * width // max(m * runs, 1) + 1
        for run in range(runs):
            i, n = run // blocks, run % blocks * 128
            long = lanes - n > 64
            if direct:
                n = min(n, lanes - (128 if long else 64))
            for r in range(m):
                # Memory is slower than the sums, so ask early for the next strip.
                for k in range(ahead, min(ahead + share, stop), 64):
                    prefetch(image, k)
                ahead += share
                here = (r * rows + i0 + i) * w
                target, at = (flat, here + n) if direct else (sums, 0)
                place, first_chunk, last_chunk = i * pitch + n, bounds[r], bounds[r + 1]
                if long:
                    sum_128(target, at, planes, place, offsets, chunks, first_chunk, last_chunk)
                else:
                    sum_64(target, at, planes, place, offsets, chunks, first_chunk, last_chunk)
                if not direct:
                    _close_gaps(sums, n, min(n + 128, lanes), pitch, w, flat[here:])


@compiled
def _sense_deep(
    begin: int, end: int, image: Array, layout: _Layout, offsets: Array, chunks: Array,
    bounds: Array, first: int, out: Array, window: int, step: int,
) -> None:  # fmt: skip
    """Fill ``out[:, begin:end]`` as ``_sense`` does, from uint16 pixels.

    The upper and the lower bytes are images of their own: with x = 256 u + l, y is 256 times the
    measurements of u plus those of l.  ``step`` rows of windows are done at a time, so that bytes
    and sums stay in the cache.  ``out`` holds every y; on the way there, sums may wrap around.
    """
    (m, _, w), (height, width) = out.shape, image.shape
    stride, lead = layout.stride, layout.lead
    above = (lead + stride - 1) // stride  # rows of cells above a window's own that it may reach
    most = (step + above) * stride + window
    lower, upper = np.empty((most, width), np.uint8), np.empty((most, width), np.uint8)
    sums = np.empty(m * step * w, np.int32), np.empty(m * step * w, np.int32)
    for i0 in range(begin, end, step):
        deep = min(step, end - i0)
        row = first + i0
        cell = max(0, row - above)
        top = cell * stride
        length = min(height, (row + deep - 1) * stride - lead + window) - top
        for y in range(length):
            pixels, low, high = image[top + y], lower[y], upper[y]
            for x in range(width):
                low[x], high[x] = pixels[x] & 255, pixels[x] >> 8
        size = deep * w
        of_lower, of_upper = sums[0][: m * size], sums[1][: m * size]
        task = layout, offsets, chunks, bounds, row - cell
        _sense(0, deep, lower[:length], *task, of_lower.reshape((m, deep, w)))
        _sense(0, deep, upper[:length], *task, of_upper.reshape((m, deep, w)))
        for r in range(m):
            target = out[r, i0 : i0 + deep].reshape(size)
            for k in range(size):
                target[k] = of_lower[r * size + k] + 256 * of_upper[r * size + k]


@functools.cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Keep threads for the next call: to start them takes as long as to sense a megapixel."""
    return ThreadPoolExecutor(count, "tersense-sensing")


if hasattr(os, "register_at_fork"):  # a forked process has the pools but not their threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


class AddOnlySensor:
    """Sense uint8 and uint16 images by additions alone.

    Args:
        phi: (m, B, B) int8, the patterns, of -1, 0 and +1.
        stride: S, pixels from one window to the next, at most B.

    Attributes:
        dtype: int16, or int32 where a pattern has more than 128 pixels of one sign.
        deep_dtype: of uint16 images: int32, or int64 from 32,769 pixels of one sign on.

    Example:
        >>> phi = np.array([[[1, -1], [0, 1]]], np.int8)
        >>> AddOnlySensor(phi, stride=2)(np.array([[5, 3], [9, 200]], np.uint8))
        array([[[202]]], dtype=int16)
    """

    def __init__(self, phi: Array, stride: int) -> None:
        m, window, _ = phi.shape
        self._window, self._stride = window, stride
        pixels: list[Array] = [np.empty(0, np.intp)]
        chunks, bounds, count, most = [], [0], 0, 0
        for pattern in phi.reshape(m, window * window):
            signs = np.flatnonzero(pattern > 0), np.flatnonzero(pattern < 0)
            most = max(most, *map(len, signs))
            for k in range(0, max(map(len, signs)), CHUNK):
                plus, minus = (sign[k : k + CHUNK] for sign in signs)
                pixels += plus, minus
                chunks.append((count, count + len(plus), count + len(plus) + len(minus)))
                count = chunks[-1][-1]
            bounds.append(len(chunks))
        self._pixels = np.divmod(np.concatenate(pixels), window)
        self._chunks = np.array(chunks, np.int64).reshape(-1, 3)
        self._bounds = np.array(bounds, np.int64)
        wide = np.diff(self._bounds).max(initial=0) > 1
        self.dtype: np.dtype[Any] = np.dtype(np.int32 if wide else np.int16)
        self.deep_dtype: np.dtype[Any] = np.dtype(np.int32 if most <= 2**15 else np.int64)
        self._latest: tuple[tuple[int, int], _Layout, Array] | None = None

    def __call__(
        self,
        image: Array,
        threads: int = 1,
        rows: tuple[int, int] | None = None,
        most: int | None = None,
    ) -> Array:
        """Return the exact measurements of an image, or of some of its window rows.

        Args:
            image: (H, W) uint8 or uint16.
            threads: how many share the work; below two megapixels one does it all.
            rows: the first window row to sense and the one after the last; None for all.
            most: how many of the first patterns to sense with; None for all.

        Returns:
            (m, h, w) of ``dtype`` or ``deep_dtype``, h = ceil(H / S) or the rows asked for,
            w = ceil(W / S).
        """
        deep = image.dtype != np.uint8
        if (deep and image.dtype != np.uint16) or image.ndim != 2:
            raise TypeError(
                f"image is {image.ndim}-D {image.dtype}; it must be 2-D uint8 or uint16"
            )
        height, width = (-(-side // self._stride) for side in image.shape)
        first, stop = rows or (0, height)
        # Always read-only, or Numba would compile again for the first read-only image.
        image = np.ascontiguousarray(image).view()
        image.flags.writeable = False
        length, dtype = stop - first, self.deep_dtype if deep else self.dtype
        bounds = self._bounds if most is None else self._bounds[: most + 1]
        out = np.empty((len(bounds) - 1, length, width), dtype)
        step = max(1, min(length, DEEP_PIXELS // (self._stride * image.shape[1])))
        layout, offsets = self._plan(step if deep else length, width)
        fill, more = (_sense_deep, (self._window, step)) if deep else (_sense, ())
        task = image, layout, offsets, self._chunks, bounds, first, out, *more
        if not compiles(fill, image, out, (0, length, *task)):
            fill, places = sense_plainly, (*self._pixels, self._chunks, bounds)
            task = image, *places, self._stride, layout.lead, first, out
        if threads <= 1 or length * self._stride * image.shape[1] < THREAD_PIXELS:
            fill(0, length, *task)
        else:
            cuts = [length * k // threads for k in range(threads + 1)]
            others = [_helpers(threads - 1).submit(fill, begin, end, *task)
                      for begin, end in pairwise(cuts[1:])]  # fmt: skip
            fill(0, cuts[1], *task)
            for other in others:
                other.result()
        return out

    def _plan(self, rows: int, width: int) -> tuple[_Layout, Array]:
        """Return the layout for so many windows and the offsets in it; keep the latest."""
        latest = self._latest
        if latest is None or latest[0] != (rows, width):
            stride, halo = self._stride, (self._window - 1) // self._stride
            pitch = width + halo
            depth = max(1, min(rows, STRIP_BYTES // (stride * stride * pitch) - halo))
            # Sums are taken 64 at a time and so look up to 63 cells too far.  An odd number of
            # cache lines spreads the planes over all of the cache.
            size = (((depth + halo) * pitch + 63 + 63) // 64 | 1) * 64
            layout = _Layout(stride, (self._window - stride) // 2, halo, depth, pitch, size)
            (down, p), (right, q) = (np.divmod(place, stride) for place in self._pixels)
            offsets = (p * stride + q) * size + down * pitch + right
            self._latest = latest = (rows, width), layout, offsets.astype(np.int32)
        return latest[1:]
