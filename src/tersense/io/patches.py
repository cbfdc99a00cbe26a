"""HDF5 files of image patches: a uint8 dataset `patches` of shape (P, n), n a square, or (P, H, W).

A header that claims more than the file holds is refused before memory is taken.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.errors import TersenseError, install_hint
from tersense.io.files import require_file

_MAX_COMPRESSED = 1100  # times; what deflate reaches with nothing but zeros
_LARGEST_CHUNK = 2**28  # bytes that are unpacked at once
_BYTES_AT_ONCE = 2**26


@dataclass(frozen=True)
class Patches:
    """An open dataset of `count` patches of `height`×`width` pixels."""

    count: int
    height: int
    width: int
    dataset: Any

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all patches, (some, height, width) at a time."""
        step = max(1, _BYTES_AT_ONCE // (self.height * self.width))
        for begin in range(0, self.count, step):
            block: NDArray[np.uint8] = self.dataset[begin : begin + step]
            yield block.reshape(-1, self.height, self.width)

    @property
    def block_count(self) -> int:
        """Return how many blocks there are."""
        return -(-self.count // max(1, _BYTES_AT_ONCE // (self.height * self.width)))


def is_patch_file(path: Path) -> bool:
    """Tell, by the ending of its name, whether a path means an HDF5 file and not a folder."""
    return path.suffix.lower() in (".h5", ".hdf5") and not path.is_dir()


@contextmanager
def open_patches(path: Path) -> Iterator[Patches]:
    """Open the dataset `patches` of an HDF5 file, checked."""
    try:
        import h5py
    except ImportError as error:
        raise TersenseError(f"reading HDF5 needs h5py: {install_hint('hdf5')}") from error
    require_file(path)
    try:
        with h5py.File(path) as file:
            dataset = file["patches"]
            patches = Patches(*_shape(path, dataset), dataset)
            _require_stored_here(path, file, patches)
            yield patches
    except (OSError, KeyError, RuntimeError) as error:
        raise TersenseError(f"{path} is not an HDF5 file with a dataset `patches`") from error


def _require_stored_here(path: Path, file: Any, patches: Patches) -> None:
    """Refuse patches that lie in other files, or that claim far more than this one holds."""
    dataset, size = patches.dataset, patches.count * patches.height * patches.width
    stored, chunk = dataset.id.get_storage_size(), math.prod(dataset.chunks or (1,))
    linked = "HardLink" not in type(file.get("patches", getlink=True)).__name__
    if linked or dataset.external or dataset.is_virtual or not stored:
        raise TersenseError(f"{path}: `patches` is not stored in this file")
    if size > _MAX_COMPRESSED * stored or chunk > _LARGEST_CHUNK:
        raise TersenseError(
            f"{path}: `patches` claims {size:,} bytes in chunks of {chunk:,}, but {stored:,} are "
            "stored; no compression makes this of images"
        )


def _shape(path: Path, dataset: Any) -> tuple[int, int, int]:
    """Return count, height and width; flat patches are square."""
    shape: tuple[int, ...] = getattr(dataset, "shape", ())
    if len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]:
        shape = (shape[0], math.isqrt(shape[1]), math.isqrt(shape[1]))
    if len(shape) != 3 or 0 in shape or dataset.dtype != np.uint8:
        raise TersenseError(
            f"{path}: `patches` must be uint8 of shape (P, n) with n a square, or (P, H, W)"
        )
    return shape[0], shape[1], shape[2]
