"""Where the measurements went: counts per window as colors over an image, and their scale.

Blue windows took fewer measurements than a uniform share, orange ones more. Colors follow the
logarithm of the count, from a uniform share down to the fewest and up to the most.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tersense.io.images import ImageArray

_FEW, _UNIFORM, _MANY = (24, 78, 190), (238, 238, 238), (226, 84, 8)
_PAPER, _INK = (255, 255, 255), (30, 30, 30)
_OVER = 0.55  # share of the colors; the rest is the image
_BAR_HEIGHT, _FONT = 16, 13
_CELL_WITH_NUMBER = 28  # pixels; three digits need them
_DARK = 120  # gray levels, below which numbers are white


class CountScale(NamedTuple):
    """What the colors mean, in measurements per window."""

    lowest: int
    uniform: int  # what each window would take if all took the same
    highest: int

    @classmethod
    def of(cls, counts: NDArray[Any]) -> "CountScale":
        """Return the scale of some counts; small differences shall not look large."""
        uniform = round(float(counts.mean()))
        return cls(
            min(int(counts.min()), uniform // 2), uniform, max(int(counts.max()), 2 * uniform)
        )

    @property
    def ticks(self) -> list[int]:
        """Five counts, evenly spaced on the scale from the lowest to the highest."""
        low, uniform, high = (max(1, count) for count in self)
        return [low, round((low * uniform) ** 0.5), uniform, round((uniform * high) ** 0.5), high]

    def colors(self, counts: NDArray[Any]) -> NDArray[np.float64]:
        """Return the color of each count, (…, 3)."""
        logs = np.log(np.maximum(counts, 1))
        low, uniform, high = (np.log(max(1, count)) for count in self)
        # A uniform share is neutral, whatever the others are.
        knots = [low - 1e-9, uniform, high + 1e-9]
        stops = np.array([_FEW, _UNIFORM, _MANY], np.float64)
        return np.stack([np.interp(logs, knots, stops[:, channel]) for channel in range(3)], -1)


def draw_counts(
    image: ImageArray,
    counts: NDArray[Any],
    stride: int,
    scale: CountScale,
    enlarge: int = 1,
    numbers: bool = False,
) -> ImageArray:
    """Draw the counts per window over an image.

    Args:
        image: (H, W) or (H, W, 3); what is below is shown in gray.
        counts: (h, w), or (C, h, w), of which the mean over the channels is drawn.
        stride: S; each window colors its own S×S cell.
        scale: What the colors mean.
        enlarge: Pixels of the drawing per pixel of the image.
        numbers: Write the counts into the windows, where they have room.
    """
    means = counts.reshape(-1, *counts.shape[-2:]).mean(axis=0)
    gray = image if image.ndim == 2 else image.mean(axis=2)
    cell = stride * enlarge
    gray, colors = (
        values.repeat(times, axis=0).repeat(times, axis=1)
        for values, times in ((gray, enlarge), (scale.colors(means), cell))
    )
    colors = colors[: gray.shape[0], : gray.shape[1]]
    drawn = np.rint(_OVER * colors + (1 - _OVER) * gray[..., None]).astype(np.uint8)
    if numbers and cell >= _CELL_WITH_NUMBER:
        return _write_numbers(drawn, np.rint(means).astype(np.int64), cell)
    return drawn


def _write_numbers(drawn: ImageArray, counts: NDArray[np.int64], cell: int) -> ImageArray:
    """Write each count into the middle of what is seen of its cell."""
    sheet = Image.fromarray(drawn)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=round(0.36 * cell))
    for (row, column), count in np.ndenumerate(counts):
        seen = drawn[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell]
        height, width = seen.shape[:2]
        if height >= cell // 2 and width >= cell - 4:
            middle = column * cell + width / 2, row * cell + height / 2
            draw.text(middle, f"{count}", _PAPER if seen.mean() < _DARK else _INK, font, "mm")
    return np.array(sheet)


def draw_count_bar(width: int, scale: CountScale, stride: int | None = None) -> ImageArray:
    """Draw the colors from the lowest count on the left to the highest on the right.

    Args:
        width: Of the bar, in pixels.
        scale: What the colors mean.
        stride: S: write the ticks below, per window and per pixel, on white paper. None for the
            colors alone.
    """
    stops = np.interp(np.linspace(0, 4, width), range(5), np.log(scale.ticks))
    bar = np.rint(scale.colors(np.exp(stops))).astype(np.uint8)
    bar = np.broadcast_to(bar, (_BAR_HEIGHT, *bar.shape)).copy()
    if stride is None:
        return bar
    line = _FONT + 4
    sheet = Image.new("RGB", (width, _BAR_HEIGHT + 2 * line + 6), _PAPER)
    sheet.paste(Image.fromarray(bar))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=_FONT)
    lines = [f"{tick}" for tick in scale.ticks], [f"{tick / stride**2:.2g}" for tick in scale.ticks]
    for number, texts in enumerate(lines):
        for place, text in enumerate(texts):
            half, middle = draw.textlength(text, font) / 2, width * place / 4
            middle = min(max(middle, half), width - half)  # the outer ones stay below the bar
            draw.text((middle - half, _BAR_HEIGHT + 3 + number * line), text, _INK, font)
    return np.array(sheet)
