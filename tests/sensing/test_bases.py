"""Patterns of Haar and Hadamard against plain transforms."""

import doctest

import numpy as np
import pytest

from reference import sense_slowly
from tersense.sensing import bases
from tersense.sensing.bases import (
    haar_kinds,
    haar_patterns,
    haar_places,
    haar_windows,
    hadamard_patterns,
)


def transform(image, levels):
    """Return the orthonormal Haar coefficients of an image, step by step: Mallat's square."""
    square = image.astype(float)
    n = len(image)
    for _ in range(levels):
        part = square[:n, :n].copy()
        for axis in (0, 1):
            first, second = (np.take(part, range(k, n, 2), axis) for k in (0, 1))
            part = np.concatenate([first + second, first - second], axis) / np.sqrt(2)
        square[:n, :n], n = part, n // 2
    return square


def test_the_examples_hold():
    assert doctest.testmod(bases).failed == 0


@pytest.mark.parametrize(("window", "side"), [(1, 1), (2, 2), (8, 8), (16, 8), (8, 1)])
def test_haar_patterns_are_ternary_and_orthogonal(window, side):
    phi = haar_patterns(window, side)
    assert phi.shape == (side**2, window, window)
    assert phi.dtype == np.int8
    flat = phi.reshape(len(phi), -1).astype(int)
    gram = flat @ flat.T
    np.testing.assert_array_equal(gram, np.diag(np.diag(gram)))
    counts = np.diag(gram)  # 4^level, the largest first
    assert (np.diff(counts) <= 0).all()
    assert set(counts) <= {4**level for level in range(10)}
    assert counts[-1] == 4 * (window / side) ** 2 or side == 1
    assert flat[0].all()
    assert not flat[1:].sum(axis=1).any()


@pytest.mark.parametrize(("levels", "side"), [(3, 32), (3, 16), (2, 8), (1, 32), (5, 32)])
def test_the_transform_of_an_image_is_that_of_its_windows(rng, levels, side):
    image = rng.integers(0, 256, (32, 32))
    window = 2**levels
    count = 32 // window
    table = haar_windows(transform(image, levels)[:side, :side], count)
    phi = haar_patterns(window, side // count)
    y = sense_slowly(image.astype(np.uint8), phi, window).reshape(len(phi), -1).T
    np.testing.assert_allclose(table, y / np.sqrt(np.count_nonzero(phi, axis=(1, 2))), atol=1e-9)


def test_the_letters_tell_what_a_pattern_compares():
    phi, kinds = haar_patterns(8, 4).astype(int), haar_kinds(4)
    assert kinds == "ahvd" + "hhhhvvvvdddd"
    for pattern, kind in zip(phi, kinds, strict=True):
        down, across = abs(pattern.sum(axis=1)).sum(), abs(pattern.sum(axis=0)).sum()
        assert (down == 0, across == 0) == (kind in "hd", kind in "vd")
    assert sorted(haar_places(4)) == [(u, v) for u in range(4) for v in range(4)]


@pytest.mark.parametrize("sides", [(0, 0), (12, 4), (8, 3), (4, 8), (-2, -2)])
def test_sides_are_powers_of_two(sides):
    with pytest.raises(ValueError, match="powers of two"):
        haar_patterns(*sides)


@pytest.mark.parametrize("shape", [(8, 4), (9, 9), (8,)])
def test_coefficients_are_a_square_of_whole_windows(shape):
    with pytest.raises(ValueError, match="must be a square of a multiple of 4"):
        haar_windows(np.zeros(shape), 4)


def pieces(pattern):
    """Count the connected pieces of one sign, by painting one after the other."""
    left, found = {tuple(place) for place in np.argwhere(pattern != 0)}, 0
    while left:
        found, edge = found + 1, [left.pop()]
        while edge:
            i, j = edge.pop()
            for near in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
                if near in left and pattern[near] == pattern[i, j]:
                    left.remove(near)
                    edge.append(near)
    return found


def test_hadamard_patterns_are_orthogonal_and_ordered_by_their_pieces():
    phi = hadamard_patterns(8)
    flat = phi.reshape(64, -1).astype(int)
    np.testing.assert_array_equal(flat @ flat.T, 64 * np.eye(64))
    counts = [pieces(pattern) for pattern in phi]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert (phi[0] == 1).all()
    np.testing.assert_array_equal(hadamard_patterns(8, 10), phi[:10])
    with pytest.raises(ValueError, match="power of two"):
        hadamard_patterns(6)
