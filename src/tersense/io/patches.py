"""HDF5 files of image patches: a uint8 dataset `patches` of shape (P, n), n a square, or (P, H, W).

A header that claims more than the file holds is refused before memory is taken, and so is a chunk
that would unpack to more than its place.
"""

import itertools
import math
import zlib
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
_DEFLATE, _SHUFFLE, _CHECKSUM, _LZF = 1, 2, 3, 32000  # as HDF5 numbers its filters
_CHECKSUM_BYTES = 4
_LZF_EXPANSION = 88  # times at most: 264 bytes of 3


@dataclass(frozen=True)
class Patches:
    """An open dataset of `count` patches of `height`×`width` pixels."""

    path: Path
    count: int
    height: int
    width: int
    dataset: Any

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        """Yield all patches, (some, height, width) at a time."""
        step = max(1, _BYTES_AT_ONCE // (self.height * self.width))
        for begin in range(0, self.count, step):
            _require_bounded_chunks(self, begin, min(begin + step, self.count))
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
            patches = Patches(path, *_shape(path, dataset), dataset)
            _require_stored_here(path, file, patches)
            _require_known_filters(patches)
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


def _filters(dataset: Any) -> list[int]:
    """Return the numbers of the filters that the chunks of a dataset went through."""
    made = dataset.id.get_create_plist()
    return [made.get_filter(number)[0] for number in range(made.get_nfilters())]


def _require_known_filters(patches: Patches) -> None:
    """Refuse filters that may make anything of a chunk, or that are stacked to do so."""
    filters = _filters(patches.dataset)
    stacked = len(set(filters)) < len(filters) or {_DEFLATE, _LZF} <= set(filters)
    if stacked or not set(filters) <= {_DEFLATE, _LZF, _SHUFFLE, _CHECKSUM}:
        raise TersenseError(
            f"{patches.path}: `patches` must be stored plainly, with gzip or with lzf, got the "
            f"filters {filters}; write it anew"
        )


def _require_bounded_chunks(patches: Patches, begin: int, end: int) -> None:
    """Refuse chunks, of patches from `begin` to `end`, that unpack to more than a chunk holds.

    libhdf5 takes as much memory as a chunk unpacks to, whatever it should hold.
    """
    dataset, filters = patches.dataset, _filters(patches.dataset)
    if not {_DEFLATE, _LZF} & set(filters):
        return
    chunk, most = dataset.chunks, math.prod(dataset.chunks) + _CHECKSUM_BYTES
    places = [range(begin - begin % chunk[0], end, chunk[0])]
    places += [range(0, n, c) for n, c in zip(dataset.shape[1:], chunk[1:], strict=True)]
    for place in itertools.product(*places):
        stored = dataset.id.get_chunk_info_by_coord(place)
        if stored.byte_offset is None:
            continue  # never written: zeros
        if _LZF in filters:
            bounded = stored.size * _LZF_EXPANSION <= _LARGEST_CHUNK
        else:
            skipped = stored.filter_mask >> filters.index(_DEFLATE) & 1
            bounded = bool(skipped) or _inflates_to(dataset, place, most)
        if not bounded:
            raise TersenseError(
                f"{patches.path}: a chunk of `patches` has {stored.size:,} bytes and does not "
                f"unpack to {most:,}; the file is damaged"
            )


def _inflates_to(dataset: Any, place: tuple[int, ...], most: int) -> bool:
    """Tell whether a chunk unpacks to so many bytes at most, without unpacking more."""
    try:
        content = dataset.id.read_direct_chunk(place)[1]
        return len(zlib.decompressobj().decompress(content, most + 1)) <= most
    except zlib.error:
        return False


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
