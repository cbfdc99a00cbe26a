"""Patterns of the user's own: read from a file, used as they are, never learned.

A `.npy` or `.mat` file holds them as (m, W, W), or as a matrix (m, n) with n = W² pixels a row, in
the order in which a page is read. Entries are −1, 0 and +1, as whole numbers, floats or booleans;
so ternary patterns, ±1 patterns (Hadamard) and the 0/1 patterns of a mirror device all serve.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tersense.errors import TersenseError, one_line
from tersense.io.files import read_npy
from tersense.io.matlab import list_matrices
from tersense.sensing.ternary import Patterns

SUFFIXES = (".npy", ".mat")
_MOST_ENTRIES = 2**28
_VARIABLE = "phi"


def read_patterns(path: str | Path, stride: int | None = None) -> Patterns:
    """Read patterns from a `.npy` or `.mat` file.

    Args:
        path: The file. Of several variables in a `.mat` file, the one called `phi` is taken.
        stride: S; the window W where not given, that is, blocks.
    """
    path = Path(path)
    readers = {".npy": _read_npy, ".mat": _read_mat}
    if path.suffix.lower() not in readers:
        raise TersenseError(f"patterns come in .npy or .mat files; {path} is neither")
    try:
        array = readers[path.suffix.lower()](path)
    except TersenseError:
        raise
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror or one_line(error)}") from error
    except Exception as error:  # a damaged file may fail in any way inside numpy and scipy
        raise TersenseError(f"{path} holds no readable array: {one_line(error)}") from error
    phi = _check(path, array)
    window = phi.shape[1]
    if stride is not None and not 1 <= stride <= window:
        raise TersenseError(
            f"the patterns of {path} are {window}×{window} pixels; a stride of {stride} does not "
            f"fit, use one from 1 to {window}"
        )
    return Patterns(phi, stride or window)


def _read_npy(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = read_npy(path)
    return array


def _read_mat(path: Path) -> NDArray[Any]:
    found = {matrix.name: matrix for matrix in list_matrices(path) if max(matrix.shape) > 1}
    if _VARIABLE not in found and len(found) != 1:
        listed = ", ".join(found) or "none"
        raise TersenseError(f"{path} holds these matrices: {listed}; call the patterns phi")
    matrix = found[_VARIABLE] if _VARIABLE in found else next(iter(found.values()))
    if math.prod(matrix.shape) > _MOST_ENTRIES:
        raise TersenseError(f"{path}: {_too_many(matrix.shape)}")
    return matrix.read()


def _check(path: Path, array: NDArray[Any]) -> NDArray[np.int8]:
    """Return patterns (m, W, W) int8, or refuse what came."""
    shape, side = array.shape, math.isqrt(array.shape[-1]) if array.ndim else 0
    if array.size > _MOST_ENTRIES:
        raise TersenseError(f"{path}: {_too_many(shape)}")
    if array.ndim == 2 and array.size and side**2 == shape[1]:
        shape = (shape[0], side, side)
    if len(shape) != 3 or shape[1] != shape[2] or not array.size:
        raise TersenseError(
            f"{path} has shape {array.shape}; patterns have shape (m, W, W), or (m, n) with n = W²"
        )
    if array.dtype.kind not in "biuf":
        raise TersenseError(f"{path} holds {array.dtype}; patterns are −1, 0 and +1, as numbers")
    wrong = ~np.isin(array, (-1, 0, 1))
    if wrong.any():
        raise TersenseError(
            f"{path} holds {array[wrong][0]:g}, and {int(wrong.sum()):,} such entries in all; "
            "patterns are made of −1, 0 and +1"
        )
    phi: NDArray[np.int8] = array.astype(np.int8).reshape(shape)
    empty = np.flatnonzero(~phi.any(axis=(1, 2)))
    if empty.size:
        raise TersenseError(f"pattern {empty[0]} of {path} is all zeros; leave it out")
    return phi


def _too_many(shape: tuple[int, ...]) -> str:
    return f"{shape} are more than {_MOST_ENTRIES:,} entries, the most that patterns may have"


class FixedSensor(nn.Module):
    """Hold patterns that nobody trains: the camera that the user has.

    Args:
        patterns: Φ and its stride.
        learned_scale: Whether the scale of each pattern is trained with the reconstructor.
    """

    theta: Tensor

    def __init__(self, patterns: Patterns, learned_scale: bool = False) -> None:
        super().__init__()
        self.window, self.stride = patterns.window, patterns.stride
        phi = torch.from_numpy(patterns.phi.astype(np.float32)).flatten(1)
        self.register_buffer("theta", phi)
        # Rows of length 1: measurements of all patterns then reach the network equally strong.
        scale = 1 / phi.norm(dim=1)
        self.scale = nn.Parameter(scale, requires_grad=learned_scale)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return Φ (m, W, W) as float, and the scale of each pattern (m,)."""
        return self.theta.view(-1, self.window, self.window), self.scale

    def freeze(self) -> Patterns:
        """Return the patterns, as integers."""
        phi, _ = self()
        return Patterns(phi.to(torch.int8).cpu().numpy(), self.stride)
