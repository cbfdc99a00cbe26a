"""Plain loops for where vector instructions do not compile, and how to find out.

The kernels of `additions` speak LLVM directly, which another processor, Numba or llvmlite may not
understand. These loops are any Numba's and give the same integers. They take 30 to 60 times as
long, 16 to 62 ms for a megapixel at 25 %: far less than its reconstruction.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from numba import __version__ as version
from numba import njit, typeof

from tersense.errors import TersenseWarning

Array = npt.NDArray[Any]

_works: dict[Any, bool] = {}  # by kernel and the types of its arrays


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba, kept for the next process where there is a folder to keep it in."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return njit(nogil=True)(function)


def compiles(kernel: Any, image: Array, out: Array, task: tuple[Any, ...]) -> bool:
    """Tell whether a kernel compiles for its arguments; of the first that does not, say so."""
    key = kernel, image.dtype, out.dtype
    if key not in _works:
        try:
            kernel.compile(tuple(map(typeof, task)))
            _works[key] = True
        except Exception:  # Numba, llvmlite and LLVM have their own
            if all(_works.values()):
                note = f"numba {version} has no vector instructions here, so sensing takes longer"
                warnings.warn(note, TersenseWarning, stacklevel=3)
            _works[key] = False
    return _works[key]


@compiled
def sense_plainly(
    begin: int, end: int, image: Array, down: Array, right: Array, chunks: Array, bounds: Array,
    stride: int, lead: int, first: int, out: Array,
) -> None:  # fmt: skip
    """Fill ``out[:, begin:end]`` as ``_sense`` of `additions` does, from uint8 or uint16 pixels.

    ``down`` and ``right`` say where the pixels of the chunks lie in a window, which begins ``lead``
    pixels above and left of its cell. Pixels outside of the image are zero.
    """
    (m, _, w), (height, width) = out.shape, image.shape
    out[:, begin:end] = 0
    for i in range(begin, end):
        top = (first + i) * stride - lead
        for r in range(m):
            sums = out[r, i]
            for c in range(bounds[r], bounds[r + 1]):
                plus, minus, stop = chunks[c]
                for k in range(plus, stop):
                    y, left, sign = top + down[k], right[k] - lead, 1 if k < minus else -1
                    if 0 <= y < height:
                        for j in range(max(0, -(left // stride)), w):
                            x = left + j * stride
                            if x >= width:
                                break
                            sums[j] += sign * image[y, x]
