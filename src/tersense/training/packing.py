"""Pack pictures, once, into one run of bytes, in memory or in a file that is mapped.

folder or HDF5 ──decode──▶ one uint8 store + index (see `data`)
"""

import hashlib
import importlib.util
import io
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tersense.errors import TersenseError
from tersense.io.files import locked, make_folder, remove_partials, require_file, written_whole
from tersense.io.images import Picture, find_images, read_gray
from tersense.runtime.progress import Track, ahead, quietly
from tersense.training.data import PackedPictures

_MOST_COMPRESSED = 1100  # times; what deflate reaches with nothing but zeros
_LARGEST_CHUNK = 2**28  # bytes of an HDF5 file that are unpacked at once


def open_pictures(
    source: str | Path, crop: int, cache: str | Path = "", track: Track = quietly
) -> PackedPictures:
    """Pack a folder of images or an HDF5 file of patches.

    Args:
        source: A folder, `package:NAME/PATH` for a folder inside an installed Python package, or
            an HDF5 file with a uint8 dataset `patches` of shape (P, n) or (P, H, V).
        crop: Pictures smaller than this are left out.
        cache: A folder to keep the packed pictures in, used from there as a memory-mapped file;
            empty to keep them in memory.
        track: Wraps the files to show progress.
    """
    path = resolve_source(source)
    pack = _pack_hdf5 if is_patch_file(path) else _pack_folder
    if not cache:
        memory = io.BytesIO()
        index = pack(path, crop, memory, track)
        return index.pictures(torch.frombuffer(memory.getbuffer(), dtype=torch.uint8))
    return _open_cached(path, crop, Path(cache), pack, track)


def is_patch_file(path: Path) -> bool:
    """Tell, by the ending of its name, whether a path means an HDF5 file and not a folder."""
    return path.suffix.lower() in (".h5", ".hdf5") and not path.is_dir()


def resolve_source(source: str | Path) -> Path:
    """Return the path that a `data` setting means; refuse what does not exist."""
    text = str(source)
    path = Path(text)
    if text.startswith("package:"):
        package, _, inside = text.removeprefix("package:").partition("/")
        try:  # looking for a part of a package would run the package
            spec = importlib.util.find_spec(package) if package.isidentifier() else None
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None:
            name = {"skimage": "'tersense[quick]'"}.get(package, package)
            raise TersenseError(f"{text} needs the package {package}: pip install {name}")
        path = Path(spec.origin).parent / inside
    if not text or not path.exists():
        raise TersenseError(
            f"no training data at {text!r}; set data.train to a folder of images or an HDF5 file"
        )
    return path


@dataclass
class _Index:
    """The sizes of the pictures packed so far, and why others were left out."""

    sizes: list[tuple[int, int]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def pictures(self, pixels: Tensor) -> PackedPictures:
        sizes = torch.tensor(self.sizes, dtype=torch.int64)
        areas = sizes[:, 0] * sizes[:, 1]
        heights, widths = sizes.T.contiguous()
        return PackedPictures(pixels, areas.cumsum(0) - areas, heights, widths, dict(self.skipped))

    def require_some(self, path: Path, crop: int) -> None:
        if not self.sizes:
            reasons = ", ".join(f"{count} {why}" for why, count in self.skipped.items())
            raise TersenseError(f"no picture of at least {crop}×{crop} pixels in {path}: {reasons}")


def _pack_folder(folder: Path, crop: int, sink: IO[bytes], track: Track) -> _Index:
    """Decode a folder into the sink; what cannot be used is counted, never fatal."""
    files = find_images(folder)
    index = _Index()
    others = sum(path.is_file() for path in folder.rglob("*")) - len(files)
    if others:
        index.skipped["not images"] = others

    def decode(path: Path) -> Picture | None:
        try:
            return read_gray(path)
        except TersenseError:
            return None

    for picture in track(ahead(decode, files), "reading pictures", len(files)):
        if picture is None:
            index.skipped["unreadable"] += 1
        elif min(picture.shape) < crop:
            index.skipped[f"smaller than {crop} pixels"] += 1
        else:
            sink.write(picture.tobytes())
            index.sizes.append(picture.shape)
    index.require_some(folder, crop)
    return index


def _pack_hdf5(path: Path, crop: int, sink: IO[bytes], track: Track) -> _Index:
    """Copy the dataset `patches` into the sink, some thousand patches at a time."""
    try:
        import h5py
    except ImportError as error:
        raise TersenseError("reading HDF5 needs h5py: pip install 'tersense[hdf5]'") from error
    require_file(path)
    try:
        with h5py.File(path) as file:
            patches = file["patches"]
            count, height, width = _patch_shape(path, patches)
            if min(height, width) < crop:
                raise TersenseError(f"patches of {height}×{width} are below data.crop {crop}")
            _require_stored_here(path, file, patches, count * height * width)
            block = max(1, 2**26 // (height * width))
            for begin in track(range(0, count, block), "reading patches", -(-count // block)):
                chunk: NDArray[np.uint8] = patches[begin : begin + block]
                sink.write(chunk.tobytes())
    except (OSError, KeyError, RuntimeError) as error:
        raise TersenseError(f"{path} is not an HDF5 file with a dataset `patches`") from error
    return _Index([(height, width)] * count)


def _require_stored_here(path: Path, file: Any, patches: Any, size: int) -> None:
    """Refuse patches that lie in other files, or that claim far more than this one holds."""
    stored, chunk = patches.id.get_storage_size(), math.prod(patches.chunks or (1,))
    linked = "HardLink" not in type(file.get("patches", getlink=True)).__name__
    if linked or patches.external or patches.is_virtual or not stored:
        raise TersenseError(f"{path}: `patches` is not stored in this file")
    if size > _MOST_COMPRESSED * stored or chunk > _LARGEST_CHUNK:
        raise TersenseError(
            f"{path}: `patches` claims {size:,} bytes in chunks of {chunk:,}, but {stored:,} are "
            "stored; no compression makes this of pictures"
        )


def _patch_shape(path: Path, patches: Any) -> tuple[int, int, int]:
    """Return count, height and width; flat patches are square."""
    shape: tuple[int, ...] = getattr(patches, "shape", ())
    if len(shape) == 2 and math.isqrt(shape[1]) ** 2 == shape[1]:
        shape = (shape[0], math.isqrt(shape[1]), math.isqrt(shape[1]))
    if len(shape) != 3 or 0 in shape or patches.dtype != np.uint8:
        raise TersenseError(
            f"{path}: `patches` must be uint8 of shape (P, n) with n a square, or (P, H, V)"
        )
    return shape[0], shape[1], shape[2]


def _open_cached(
    path: Path, crop: int, cache: Path, pack: Callable[..., _Index], track: Track
) -> PackedPictures:
    """Use the packed file in the cache folder, after making it if it is missing or outdated.

    Several processes may share the folder: one packs, the others wait and map the same file.
    """
    make_folder(cache)
    pixels_file, index_file = cache / "pixels.u8", cache / "index.safetensors"
    fingerprint = _fingerprint(path, crop)
    with locked(cache):
        index = _read_index(index_file, pixels_file, fingerprint)
        if index is None:
            # The index goes first and comes last: while it is there, the pixels belong to it.
            index_file.unlink(missing_ok=True)
            remove_partials(cache)
            with written_whole(pixels_file) as partial, partial.open("wb") as sink:
                index = pack(path, crop, sink, track)
            sizes = torch.tensor(index.sizes, dtype=torch.int64)
            metadata = {"fingerprint": fingerprint, "skipped": json.dumps(index.skipped)}
            with written_whole(index_file) as partial:
                save_file({"sizes": sizes}, partial, metadata)
        total = pixels_file.stat().st_size
        mapped = torch.from_file(str(pixels_file), shared=False, size=total, dtype=torch.uint8)
    return index.pictures(mapped)


def _read_index(index_file: Path, pixels_file: Path, fingerprint: str) -> _Index | None:
    """Return the index of a cache, or None if it is missing, damaged or of other pictures."""
    try:
        with safe_open(index_file, framework="pt") as file:
            metadata, sizes = file.metadata() or {}, file.get_tensor("sizes")
        if metadata.get("fingerprint") != fingerprint or sizes.dtype != torch.int64:
            return None
        index = [(height, width) for height, width in sizes.tolist()]
        total = sum(height * width for height, width in index)
        whole = bool(index) and min(map(min, index)) >= 1 and total == pixels_file.stat().st_size
        skipped = Counter(
            {why: int(count) for why, count in json.loads(metadata["skipped"]).items()}
        )
        return _Index(index, skipped) if whole else None
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError,
            RecursionError):  # fmt: skip
        return None


def _fingerprint(path: Path, crop: int) -> str:
    """Return a hash of the names, sizes and dates of the files, and of the crop."""
    digest = hashlib.sha256(f"{crop}".encode())
    for file in find_images(path) if path.is_dir() else [path]:
        stat = file.stat()
        digest.update(f"{file.name}|{stat.st_size}|{stat.st_mtime_ns}".encode())
    return digest.hexdigest()
