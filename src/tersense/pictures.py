"""Pictures about pictures: side by side, with their error and the patterns that sensed them."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tersense.images import Picture

_MARGIN, _CAPTION = 12, 30
_PAPER, _INK = (255, 255, 255), (30, 30, 30)
_PLUS, _MINUS, _ZERO = (214, 96, 32), (33, 92, 168), (235, 235, 235)
_HEAT = np.array([[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]])


def draw_error(estimate: Picture, original: Picture, full_scale: float = 64.0) -> Picture:
    """Draw the absolute error as heat: black for none, light yellow from `full_scale` on."""
    error = np.abs(estimate.astype(np.float64) - original)
    error = error.mean(axis=2) if error.ndim == 3 else error
    place = np.clip(error / full_scale, 0, 1) * (len(_HEAT) - 1)
    channels = [np.interp(place, range(len(_HEAT)), _HEAT[:, c]) for c in range(3)]
    return np.stack(channels, axis=2).astype(np.uint8)


def draw_patterns(phi: NDArray[np.int8], width: int, scale: int = 3) -> Picture:
    """Draw as many patterns (m, W, W) as fit into `width` pixels: +1 orange, −1 blue, 0 light."""
    side = phi.shape[1] * scale
    count = min(len(phi), (width + _MARGIN) // (side + _MARGIN))
    strip = np.full((side, width, 3), _PAPER, np.uint8)
    chosen = phi[np.linspace(0, len(phi) - 1, count).astype(int)]
    lefts = np.linspace(0, width - side, count).astype(int)
    for left, pattern in zip(lefts, chosen, strict=True):
        strip[:, left : left + side] = _draw_pattern(pattern, scale)
    return strip


def draw_pattern_grid(phi: NDArray[np.int8]) -> Picture:
    """Draw every pattern (m, W, W), row by row in about a square, each at least 64 pixels wide."""
    across = math.isqrt(len(phi) - 1) + 1
    scale = max(1, -(-64 // phi.shape[1]))
    side = phi.shape[1] * scale
    pitch = side + _MARGIN // 2
    down = -(-len(phi) // across)
    size = down * pitch - _MARGIN // 2, across * pitch - _MARGIN // 2, 3
    grid = np.full(size, _PAPER, np.uint8)
    for number, pattern in enumerate(phi):
        top, left = (pitch * place for place in divmod(number, across))
        grid[top : top + side, left : left + side] = _draw_pattern(pattern, scale)
    return grid


def _draw_pattern(pattern: NDArray[np.int8], scale: int) -> Picture:
    colours = np.array([_MINUS, _ZERO, _PLUS], np.uint8)
    return colours[pattern + 1].repeat(scale, axis=0).repeat(scale, axis=1)


def draw_sheet(rows: Sequence[Sequence[tuple[str, Picture]]]) -> Picture:
    """Lay captioned pictures out in rows on white paper."""
    heights = [max(picture.shape[0] for _, picture in row) for row in rows]
    widths = [sum(picture.shape[1] + _MARGIN for _, picture in row) for row in rows]
    size = (max(widths) + _MARGIN, sum(h + _CAPTION + _MARGIN for h in heights) + _MARGIN)
    sheet = Image.new("RGB", size, _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=17)
    top = _MARGIN
    for row, height in zip(rows, heights, strict=True):
        left = _MARGIN
        for caption, picture in row:
            draw.text((left, top), caption, _INK, font)
            sheet.paste(Image.fromarray(picture), (left, top + _CAPTION))
            left += picture.shape[1] + _MARGIN
        top += height + _CAPTION + _MARGIN
    return np.array(sheet)
