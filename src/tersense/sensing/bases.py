"""Patterns of known bases: Haar wavelets, which are sparse and ternary, and Walsh–Hadamard.

A Haar transform of L levels is a block camera. Its coarsest patterns cover 2^L × 2^L pixels and do
not overlap, and every other pattern lies inside one of them: the transform of a whole image is that
of its blocks, B = S = 2^L. Coefficients are arranged as usual (Mallat's square): those of a window
form a square, quadrants of the finest scale outside,

    a h │ h h         a: the sum
    v d │ h h         h: the left half minus the right one
    ────┼────         v: the upper half minus the lower one
    v v │ d d         d: the product of both patterns
    v v │ d d

The square may be smaller than the window: without its outer quadrants, the finest scale is not
measured. Cameras and programs differ in the signs of h, v and d.
"""

import numpy as np
from numpy.typing import NDArray

_KINDS = "ahvd"


def haar_patterns(window: int, side: int | None = None) -> NDArray[np.int8]:
    """Return the Haar patterns of a window, coarsest scale first: (side², B, B) of −1, 0 and +1.

    A transform with orthonormal patterns has the coefficients y/√K, K being the number of non-zeros
    of the pattern.

    Args:
        window: B, a power of two.
        side: Of the square of coefficients that are measured, a power of two: B for all of them,
            B/2 without the finest scale. B where not given.

    Example:
        >>> from tersense.sensing.bases import haar_patterns
        >>> haar_patterns(2).tolist()[1:3]
        [[[1, -1], [1, -1]], [[1, 1], [-1, -1]]]
    """
    side = window if side is None else side
    if min(window, side) < 1 or window & (window - 1) or side & (side - 1) or side > window:
        raise ValueError(
            f"window and side must be powers of two, side at most window, got {window} and {side}"
        )
    places = haar_places(side)
    phi = np.zeros((len(places), window, window), np.int8)
    for pattern, (u, v) in zip(phi, places, strict=True):
        n = _places_per_side(u, v)
        width = window // n
        down, across = (_halves(width, index >= n) for index in (u, v))
        top, left = u % n * width, v % n * width
        pattern[top : top + width, left : left + width] = np.outer(down, across)
    return phi


def haar_places(side: int) -> list[tuple[int, int]]:
    """List where each pattern of `haar_patterns` has its coefficient in the square of a window."""
    square = [(u, v) for u in range(side) for v in range(side)]
    # Within a scale horizontal, vertical, then diagonal differences, each in raster order.
    return sorted(square, key=lambda place: _rank(*place))


def haar_kinds(side: int) -> str:
    """Return a letter for each pattern of `haar_patterns`: a, h, v or d, as in the module."""
    return "".join(_kind(u, v) for u, v in haar_places(side))


def haar_windows(coefficients: NDArray[np.generic], count: int) -> NDArray[np.generic]:
    """Cut the coefficients of a whole image into those of its windows.

    Args:
        coefficients: The square of a whole image, (s, s), of any number of levels L.
        count: Of windows down, and across: the side of the square of sums, H/2^L.

    Returns:
        (windows, rows): a line for each window, in raster order, and a column for each pattern of
        `haar_patterns(2^L, s / count)`: a table as `read_measured` takes it.
    """
    if coefficients.ndim != 2 or len(set(coefficients.shape)) != 1 or len(coefficients) % count:
        raise ValueError(
            f"coefficients of {count}×{count} windows must be a square of a multiple of {count}, "
            f"got {coefficients.shape}"
        )
    i, j = (index.ravel() for index in np.indices((count, count)))
    columns = []
    for u, v in haar_places(len(coefficients) // count):
        n = _places_per_side(u, v)
        row, column = (index // n * n * count + place * n + index % n
                       for index, place in ((u, i), (v, j)))  # fmt: skip
        columns.append(coefficients[row, column])
    return np.stack(columns, axis=1)


def hadamard_patterns(window: int, count: int | None = None) -> NDArray[np.int8]:
    """Return Walsh–Hadamard patterns (count, B, B) of −1 and +1, those of few pieces first.

    The order is "cake cutting": by the number of pieces of one sign that lines cut the window into,
    that is (changes down + 1)·(changes across + 1).

    Args:
        window: B, a power of two.
        count: How many; all B² where not given.
    """
    if window < 1 or window & (window - 1):
        raise ValueError(f"window must be a power of two, got {window}")
    walsh = np.ones((1, 1), np.int8)
    while len(walsh) < window:
        walsh = np.block([[walsh, walsh], [walsh, -walsh]])
    changes = (np.diff(walsh, axis=1) != 0).sum(axis=1)
    walsh = walsh[np.argsort(changes)]
    square = [(u, v) for u in range(window) for v in range(window)]
    square.sort(key=lambda place: ((place[0] + 1) * (place[1] + 1), sum(place)))
    return np.stack([np.outer(walsh[u], walsh[v]) for u, v in square[:count]])


def _places_per_side(u: int, v: int) -> int:
    """Return how many patterns of the scale of (u, v) lie side by side in a window."""
    return 1 << max(0, max(u, v).bit_length() - 1)


def _kind(u: int, v: int) -> str:
    n = _places_per_side(u, v)
    return _KINDS[(v >= n) + 2 * (u >= n)]


def _rank(u: int, v: int) -> tuple[int, int, int, int]:
    return max(u, v).bit_length(), _KINDS.index(_kind(u, v)), u, v


def _halves(width: int, difference: bool) -> NDArray[np.int8]:
    """Return ones, or +1 in the first half and −1 in the second."""
    signs = np.ones(width, np.int8)
    if difference:
        signs[width // 2 :] = -1
    return signs
