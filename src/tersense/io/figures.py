"""Figures of images: side by side, with their error and the patterns that sensed them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tersense.io.images import ImageArray

_MARGIN, _CAPTION = 12, 30
_STRIP_WIDTH = 300
_PAPER, _INK = (255, 255, 255), (30, 30, 30)
_PLUS, _MINUS, _ZERO = (214, 96, 32), (33, 92, 168), (235, 235, 235)
_HEAT = np.array([[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]])
_BAR_HEIGHT, _BAR_FONT = 16, 13
FULL_SCALE = 64  # gray levels: larger errors look the same
ERROR_CAPTION = f"error, 0 to {FULL_SCALE} gray levels"


def draw_error(
    estimate: ImageArray, original: ImageArray, full_scale: float = FULL_SCALE
) -> ImageArray:
    """Draw the absolute error as heat: black for none, light yellow from `full_scale` on."""
    error = np.abs(estimate.astype(np.float64) - original)
    error = error.mean(axis=2) if error.ndim == 3 else error
    return _heat(error / full_scale)


def _heat(share: NDArray[np.float64]) -> ImageArray:
    """Color what is between 0 and 1, (H, W), from black to light yellow."""
    place = np.clip(share, 0, 1) * (len(_HEAT) - 1)
    channels = [np.interp(place, range(len(_HEAT)), _HEAT[:, c]) for c in range(3)]
    return np.stack(channels, axis=2).astype(np.uint8)


def draw_color_bar(width: int, full_scale: float = FULL_SCALE, numbers: bool = True) -> ImageArray:
    """Draw the colors of `draw_error` from 0 on the left to `full_scale` on the right.

    Args:
        width: Of the bar, in pixels.
        full_scale: As given to `draw_error`.
        numbers: Write the gray levels of `color_bar_ticks` below, on white paper.
    """
    bar = _heat(np.broadcast_to(np.linspace(0, 1, width), (_BAR_HEIGHT, width)))
    if not numbers:
        return bar
    sheet = Image.new("RGB", (width, _BAR_HEIGHT + _BAR_FONT + 7), _PAPER)
    sheet.paste(Image.fromarray(bar))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=_BAR_FONT)
    ticks = color_bar_ticks(full_scale)
    for number, text in enumerate(ticks):
        half, middle = draw.textlength(text, font) / 2, width * number / (len(ticks) - 1)
        middle = min(max(middle, half), width - half)  # the outer ones stay below the bar
        draw.text((middle - half, _BAR_HEIGHT + 3), text, _INK, font)
    return np.array(sheet)


def color_bar_ticks(full_scale: float = FULL_SCALE) -> list[str]:
    """Return the numbers to write below a color bar, evenly spaced from left to right."""
    return [f"{full_scale * quarter / 4:g}" for quarter in range(5)]


def draw_patterns(phi: NDArray[np.int8], width: int, scale: int = 3) -> ImageArray:
    """Draw as many patterns (m, B, B) as fit into `width` pixels: +1 orange, −1 blue, 0 light."""
    side = phi.shape[1] * scale
    count = min(len(phi), (width + _MARGIN) // (side + _MARGIN))
    strip = np.full((side, width, 3), _PAPER, np.uint8)
    chosen = phi[np.linspace(0, len(phi) - 1, count).astype(int)]
    lefts = np.linspace(0, width - side, count).astype(int)
    for left, pattern in zip(lefts, chosen, strict=True):
        strip[:, left : left + side] = _colored(pattern[None], scale)[0]
    return strip


def draw_pattern_sheet(
    phi: NDArray[np.int8], columns: int | None = None, scale: int = 2, transparent: bool = False
) -> ImageArray:
    """Draw all patterns (m, B, B) in rows of `columns`, each pixel `scale` pixels wide.

    Without `columns`, the sheet is about 8 wide and 5 high. Between the patterns it is white, or
    `transparent`: (H, W, 4).
    """
    return _in_rows(_colored(phi, scale), columns, 2 * scale, transparent)


def _colored(phi: NDArray[np.int8], scale: int) -> NDArray[np.uint8]:
    """Turn patterns (m, B, B) into images (m, B·scale, B·scale, 3)."""
    return _enlarged(np.array([_MINUS, _ZERO, _PLUS], np.uint8)[phi + 1], scale)


def draw_measurements(
    values: NDArray[Any], columns: int | None = None, transparent: bool = False
) -> ImageArray:
    """Draw measurements (m, h, w), or (3, m, h, w), as m small images: middle gray is zero.

    Each pattern has its own scale, because some see the brightness and others only edges. Small
    grids are enlarged, so that a pattern takes about 64 pixels. Between the images it is white, or
    `transparent`: (H, W, 4).
    """
    y = values[None] if values.ndim == 3 else values
    largest = np.abs(y.astype(np.float64)).max(axis=(0, 2, 3), keepdims=True)
    shade = np.rint(127.5 + 127.5 * y / np.maximum(largest, 1)).astype(np.uint8)
    tiles = np.moveaxis(np.broadcast_to(shade, (3, *shade.shape[1:])), 0, -1)
    scale = max(1, 64 // max(tiles.shape[1:3]))
    return _in_rows(_enlarged(tiles, scale), columns, 2, transparent)


def _enlarged(tiles: NDArray[Any], scale: int) -> NDArray[np.uint8]:
    return tiles.repeat(scale, axis=1).repeat(scale, axis=2)


def _in_rows(
    tiles: NDArray[np.uint8], columns: int | None, gap: int, transparent: bool
) -> ImageArray:
    """Lay tiles (m, h, w, 3) out in rows on white or transparent paper."""
    count, height, width, _ = tiles.shape
    columns = columns or max(1, round(math.sqrt(1.6 * count * height / width)))
    columns = min(columns, count)
    rows = -(-count // columns)
    size = rows * (height + gap) - gap, columns * (width + gap) - gap
    sheet = np.full((*size, 4), (*_PAPER, 0), np.uint8)
    for number, tile in enumerate(tiles):
        top, left = (number // columns) * (height + gap), (number % columns) * (width + gap)
        place = sheet[top : top + height, left : left + width]
        place[..., :3], place[..., 3] = tile, 255
    return sheet if transparent else sheet[..., :3].copy()


def draw_strip(original: ImageArray, estimates: Sequence[tuple[str, ImageArray]]) -> ImageArray:
    """Draw an image beside its reconstructions, with their captions, and the errors below.

    The scale of the errors is drawn below the original. Small images are enlarged by an
    integer, so that the captions fit.
    """
    scale = max(1, round(_STRIP_WIDTH / original.shape[1]))

    def enlarged(image: ImageArray) -> ImageArray:
        color = image if image.ndim == 3 else np.stack([image] * 3, axis=2)
        large: ImageArray = _enlarged(color[None], scale)[0]
        return large

    bar = draw_color_bar(original.shape[1] * scale)
    errors = [("error", enlarged(draw_error(image, original))) for _, image in estimates]
    return draw_sheet([
        [("original", enlarged(original)), *((text, enlarged(p)) for text, p in estimates)],
        [(ERROR_CAPTION, bar), *errors],
    ])  # fmt: skip


def draw_sheet(rows: Sequence[Sequence[tuple[str, ImageArray]]]) -> ImageArray:
    """Lay captioned images out in rows on white paper."""
    heights = [max(image.shape[0] for _, image in row) for row in rows]
    widths = [sum(image.shape[1] + _MARGIN for _, image in row) for row in rows]
    size = (max(widths) + _MARGIN, sum(h + _CAPTION + _MARGIN for h in heights) + _MARGIN)
    sheet = Image.new("RGB", size, _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=17)
    top = _MARGIN
    for row, height in zip(rows, heights, strict=True):
        left = _MARGIN
        for caption, image in row:
            draw.text((left, top), caption, _INK, font)
            sheet.paste(Image.fromarray(image), (left, top + _CAPTION))
            left += image.shape[1] + _MARGIN
        top += height + _CAPTION + _MARGIN
    return np.array(sheet)
