"""Counts per window as colors: fewer blue, more orange, and a scale that tells how many."""

import numpy as np

from tersense.io.count_maps import CountScale, draw_count_bar, draw_counts

SCALE = CountScale(10, 100, 400)


def test_a_uniform_share_is_neutral_fewer_is_blue_more_is_orange():
    fewer, uniform, more = SCALE.colors(np.array([20, 100, 300]))
    assert len(set(uniform)) == 1
    assert fewer[2] > fewer[0]
    assert more[0] > more[2]
    assert len(set(CountScale(512, 512, 512).colors(np.array(512)))) == 1


def test_colors_end_at_the_ends_of_the_scale():
    for beyond, end in ((1, 10), (512, 400)):
        np.testing.assert_allclose(*SCALE.colors(np.array([beyond, end])), atol=1e-3)


def test_the_bar_has_the_color_of_each_tick_at_its_place():
    bar = draw_count_bar(401, SCALE)
    assert SCALE.ticks == [10, 32, 100, 200, 400]
    for tick, place in zip(SCALE.ticks, range(0, 401, 100), strict=True):
        np.testing.assert_allclose(bar[0, place], SCALE.colors(np.array(tick)), atol=1)
    with_numbers = draw_count_bar(401, SCALE, stride=32)
    np.testing.assert_array_equal(with_numbers[: len(bar)], bar)
    assert (with_numbers[len(bar) :] < 100).any()


def test_small_differences_do_not_look_large():
    assert CountScale.of(np.array([[99, 101]])) == CountScale(50, 100, 200)
    assert CountScale.of(np.array([[10, 10, 10, 370]])) == CountScale(10, 100, 370)


def test_each_window_colors_its_own_cell_as_far_as_the_image_goes():
    image = np.full((5, 7), 90, np.uint8)
    counts = np.array([[10, 400], [100, 100]])
    drawn = draw_counts(image, counts, 4, SCALE)
    assert drawn.shape == (5, 7, 3)
    for row, column in np.ndindex(5, 7):
        same = drawn[4 * (row // 4), 4 * (column // 4)]
        np.testing.assert_array_equal(drawn[row, column], same)
    assert drawn[0, 0, 2] > drawn[0, 0, 0]
    assert drawn[0, 4, 0] > drawn[0, 4, 2]


def test_channels_are_averaged_and_numbers_only_where_they_have_room():
    image = np.full((64, 64, 3), 90, np.uint8)
    counts = np.stack([np.full((2, 2), count) for count in (50, 100, 150)])
    plain = draw_counts(image, counts, 32, SCALE)
    np.testing.assert_array_equal(plain, draw_counts(image, np.full((2, 2), 100), 32, SCALE))
    assert (draw_counts(image, counts, 32, SCALE, numbers=True) != plain).any()
    small = draw_counts(image, np.full((8, 8), 100), 8, SCALE, numbers=True)
    np.testing.assert_array_equal(small, plain)
