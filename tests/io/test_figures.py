"""Images about images: the scale of an error, and sheets for paper of any color."""

import numpy as np
import pytest

from tersense.io.figures import (
    FULL_SCALE,
    color_bar_ticks,
    draw_color_bar,
    draw_error,
    draw_measurements,
    draw_pattern_sheet,
    draw_strip,
)

PAPER = 255


def error_of(gray_levels):
    """Return the color of an error of so many gray levels."""
    original = np.zeros((1, 1), np.uint8)
    return tuple(draw_error(original + np.uint8(gray_levels), original)[0, 0])


@pytest.mark.parametrize("gray_levels", [0, 1, 16, 37, FULL_SCALE])
def test_the_color_bar_has_the_color_of_each_error_at_its_place(gray_levels):
    bar = draw_color_bar(FULL_SCALE + 1, numbers=False)
    assert {tuple(pixel) for pixel in bar[:, gray_levels]} == {error_of(gray_levels)}


def test_errors_beyond_full_scale_look_like_full_scale():
    assert error_of(FULL_SCALE) == error_of(200) != error_of(FULL_SCALE - 8)


def test_the_numbers_of_a_color_bar_are_below_their_colors():
    assert color_bar_ticks() == ["0", "16", "32", "48", "64"]
    assert color_bar_ticks(10) == ["0", "2.5", "5", "7.5", "10"]
    width = 400
    bar, plain = draw_color_bar(width), draw_color_bar(width, numbers=False)
    np.testing.assert_array_equal(bar[: len(plain)], plain)
    inked = np.flatnonzero((bar[len(plain) :, :, 0] < PAPER).any(axis=0))
    words = np.split(inked, np.flatnonzero(np.diff(inked) > 20) + 1)
    middles = [(word[0] + word[-1]) / 2 for word in words]
    np.testing.assert_allclose(middles, [0, 100, 200, 300, 400], atol=12)


def test_a_strip_draws_the_scale_of_its_errors_below_the_original():
    original = np.full((40, 300), 90, np.uint8)
    strip = draw_strip(original, [("a", original + np.uint8(30))])
    bar = draw_color_bar(300, numbers=False)
    places = [row for row in range(len(strip)) if (strip[row, 12:312] == bar[0]).all()]
    assert len(places) == len(bar)


@pytest.mark.parametrize("draw", [draw_pattern_sheet, draw_measurements])
def test_a_transparent_sheet_is_opaque_only_where_something_is_drawn(rng, draw):
    tiles = rng.integers(-1, 2, (3, 64, 64)).astype(np.int8)
    white, clear = draw(tiles, columns=2), draw(tiles, columns=2, transparent=True)
    alpha = clear[..., 3]
    np.testing.assert_array_equal(clear[..., :3], white)
    assert set(np.unique(alpha)) == {0, 255}
    assert (alpha == 255).sum() == 3 * (len(alpha) // 2 // 64 * 64) ** 2
    assert (white[alpha == 0] == PAPER).all()
    assert not alpha[-1, -1]  # the fourth place is empty
