"""Sense each window with its first rows only, and add up little else.

The sums of many neighboring windows are taken at once, so windows of different counts would wait
for each other. Those of like counts are therefore brought together: windows are copied out of the
image, the ones with the most rows first, and laid side by side in groups. A group is an image of
blocks, which `additions` senses with the rows that its first window needs. Where copies would cost
more than they save, all windows are sensed with as many rows as the largest count.
"""

import numpy as np

from tersense.sensing.additions import THREAD_PIXELS, AddOnlySensor, _helpers, _Layout, _sense
from tersense.sensing.loops import Array, compiled, compiles

GROUP = 64  # windows that are sensed together
STRIP = 8 * GROUP  # windows that are sorted together; their measurements stay in the cache
# What copying costs, in additions of one pixel: of a window's row of pixels, of a measurement.
_COPY_ROW, _COPY_VALUE = 500, 30


@compiled
def _copy_window(image: Array, top: int, left: int, side: int, shift: int, target: Array) -> None:
    """Copy a window that may reach beyond the image, one byte of each pixel."""
    height, width = image.shape
    begin, end = max(0, -left), min(side, width - left)
    for p in range(side):
        row, y = target[p], top + p
        if not 0 <= y < height:
            row[:] = 0
            continue
        row[:begin], row[end:] = 0, 0
        pixels = image[y, left + begin : left + end]
        for q in range(pixels.size):
            row[begin + q] = (pixels[q] >> shift) & 255


@compiled
def _leave_out(counts: Array, out: Array) -> None:
    """Set to zero what windows were not to be sensed with: out (m, windows), counts (windows,)."""
    for r in range(len(out)):
        row = out[r]
        for k in range(row.size):
            row[k] = row[k] if r < counts[k] else 0


@compiled
def _sense_strips(
    begin: int, end: int, image: Array, layout: _Layout, offsets: Array, chunks: Array,
    bounds: Array, counts: Array, stride: int, columns: int, out: Array,
) -> None:  # fmt: skip
    """Sense the strips of windows from ``begin`` to ``end``.

    Args:
        begin: the first strip.
        end: the one after the last.
        image: (H, W) uint8 or uint16.
        layout: of the planes of a group, an image of blocks.
        offsets: as in ``additions``, like chunks and bounds.
        chunks: of all patterns.
        bounds: of all patterns.
        counts: (windows,), the rows of each.
        stride: S.
        columns: w, windows in a row.
        out: (m, windows) zeros.
    """
    m, side = len(out), layout.stride
    lead = (side - stride) // 2
    blocks = np.zeros((side, GROUP * side), np.uint8)
    sums = np.empty((STRIP // GROUP, m * GROUP), out.dtype)
    for strip in range(begin, end):
        of_strip = counts[strip * STRIP : (strip + 1) * STRIP]
        order = np.argsort(-of_strip, kind="mergesort")
        for shift in range(0, 8 * image.itemsize, 8):
            for group in range((order.size + GROUP - 1) // GROUP):
                chosen = order[group * GROUP : (group + 1) * GROUP]
                most = of_strip[chosen[0]]
                for k in range(chosen.size if most else 0):
                    i, j = divmod(strip * STRIP + chosen[k], columns)
                    target = blocks[:, k * side : (k + 1) * side]
                    _copy_window(image, i * stride - lead, j * stride - lead, side, shift, target)
                of_group = sums[group, : most * GROUP].reshape((most, 1, GROUP))
                _sense(0, 1, blocks, layout, offsets, chunks, bounds[: most + 1], 0, of_group)
            _put_back(sums, order, of_strip, shift, out[:, strip * STRIP :])


@compiled
def _put_back(sums: Array, order: Array, counts: Array, shift: int, out: Array) -> None:
    """Add measurements of sorted windows, times 2^shift, to where the windows lie."""
    number = order.size
    for r in range(counts[order[0]]):
        while counts[order[number - 1]] <= r:
            number -= 1
        row = out[r]
        for group in range((number + GROUP - 1) // GROUP):
            first = group * GROUP
            of_row = sums[group, r * GROUP : (r + 1) * GROUP]
            for k in range(min(GROUP, number - first)):
                row[order[first + k]] += of_row[k] << shift


class CountedSensor:
    """Sense uint8 and uint16 images by additions alone, with a count of rows for each window.

    Args:
        phi: (m, B, B) int8, the patterns, of -1, 0 and +1.
        stride: S, pixels from one window to the next, at most B.

    Example:
        >>> phi = np.array([[[1, -1], [0, 1]], [[0, 1], [0, 0]]], np.int8)
        >>> image = np.array([[5, 3, 0, 8], [9, 200, 0, 0]], np.uint8)
        >>> CountedSensor(phi, stride=2)(image, np.array([[2, 1]])).tolist()
        [[[202, -8]], [[3, 0]]]
    """

    def __init__(self, phi: Array, stride: int) -> None:
        self._rows, self._window, self._stride = len(phi), phi.shape[1], stride
        self._windows = AddOnlySensor(phi, stride)
        self._blocks = AddOnlySensor(phi, phi.shape[1])
        self._nonzeros = np.count_nonzero(phi) / len(phi)

    def __call__(self, image: Array, counts: Array, threads: int = 1) -> Array:
        """Return the exact measurements, (m, h, w), zero where counts (h, w) ask for none.

        Args:
            image: (H, W) uint8 or uint16.
            counts: (h, w), the rows that each window is sensed with.
            threads: how many share the work; below two megapixels one does it all.
        """
        flat = np.ascontiguousarray(counts, np.int64).ravel()
        if not self._pays(flat):
            return self._alike(image, counts, threads)
        image = np.ascontiguousarray(image).view()
        image.flags.writeable = False  # as in `additions`
        sensor, strips = self._blocks, -(-flat.size // STRIP)
        dtype = sensor.dtype if image.dtype == np.uint8 else sensor.deep_dtype
        out = np.zeros((self._rows, *counts.shape), dtype)
        task = (
            image, *sensor._plan(1, GROUP), sensor._chunks, sensor._bounds, flat, self._stride,
            counts.shape[1], out.reshape(self._rows, counts.size),
        )  # fmt: skip
        if not compiles(_sense_strips, image, out, (0, strips, *task)):
            return self._alike(image, counts, threads)
        if threads <= 1 or image.size < THREAD_PIXELS:
            _sense_strips(0, strips, *task)
            return out
        # One after the other, because a strip with many rows takes longer.
        done = [_helpers(threads - 1).submit(_sense_strips, strip, strip + 1, *task)
                for strip in range(strips)]  # fmt: skip
        for strip in done:
            strip.result()
        return out

    def _pays(self, counts: Array) -> bool:
        """Tell whether groups save more than their copies cost."""
        strips = np.sort(np.pad(counts, (0, -counts.size % STRIP)).reshape(-1, STRIP))
        together = counts.size * int(counts.max()) * self._nonzeros
        grouped = GROUP * int(strips[:, GROUP - 1 :: GROUP].sum()) * self._nonzeros
        copies = counts.size * _COPY_ROW * self._window + _COPY_VALUE * int(counts.sum())
        return bool(grouped + copies < together)

    def _alike(self, image: Array, counts: Array, threads: int) -> Array:
        """Sense all windows with as many rows as the largest count, then leave out."""
        most = int(counts.max())
        y = self._windows(image, threads, most=most)
        _leave_out(np.ascontiguousarray(counts, np.int64).ravel(), y.reshape(most, counts.size))
        if most == self._rows:
            return y
        out = np.zeros((self._rows, *counts.shape), y.dtype)
        out[:most] = y
        return out
