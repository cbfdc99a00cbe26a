"""Pack images, once, into one run of bytes, in memory or in a file that is mapped.

folder or HDF5 ──decode──▶ one uint8 store + index (see `crops`)
"""

import hashlib
import importlib.util
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tersense.errors import TersenseError, install_hint
from tersense.io.files import locked, make_folder, remove_partials, written_whole
from tersense.io.images import ImageArray, find_images, read_gray, shrink
from tersense.io.patches import is_patch_file, open_patches
from tersense.io.schema import require
from tersense.runtime.progress import Track, ahead, quietly
from tersense.training.crops import PackedImages


def open_images(
    source: str | Path,
    crop: int,
    cache: str | Path = "",
    track: Track = quietly,
    scales: Sequence[float] = (1.0,),
) -> PackedImages:
    """Pack a folder of images or an HDF5 file of patches.

    Args:
        source: A folder, `package:NAME/PATH` for a folder inside an installed Python package, or
            an HDF5 file with a uint8 dataset `patches` of shape (P, n) or (P, H, W).
        crop: Images smaller than this are left out.
        cache: A folder to keep the packed images in, used from there as a memory-mapped file;
            empty to keep them in memory.
        track: Wraps the files to show progress.
        scales: The sizes that every image of a folder is packed in, as shares of its own.
    """
    path = resolve_source(source)
    if is_patch_file(path):
        require(tuple(scales) == (1.0,), "data.scales", list(scales), "[1.0] for patches")
        pack = _pack_hdf5
    else:
        pack = partial(_pack_folder, scales)
    if not cache:
        memory = io.BytesIO()
        index = pack(path, crop, memory, track)
        return index.images(torch.frombuffer(memory.getbuffer(), dtype=torch.uint8))
    return _open_cached(path, crop, Path(cache), pack, track, scales)


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
            install = install_hint("quick") if package == "skimage" else f"pip install {package}"
            raise TersenseError(f"{text} needs the package {package}: {install}")
        path = Path(spec.origin).parent / inside
    if not text or not path.exists():
        raise TersenseError(
            f"no training data at {text!r}; set data.train to a folder of images or an HDF5 file"
        )
    return path


@dataclass
class _Index:
    """The sizes of the images packed so far, and why others were left out."""

    sizes: list[tuple[int, int]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def images(self, pixels: Tensor) -> PackedImages:
        sizes = torch.tensor(self.sizes, dtype=torch.int64)
        areas = sizes[:, 0] * sizes[:, 1]
        heights, widths = sizes.T.contiguous()
        return PackedImages(pixels, areas.cumsum(0) - areas, heights, widths, dict(self.skipped))

    def require_some(self, path: Path, crop: int) -> None:
        if not self.sizes:
            reasons = ", ".join(f"{count} {why}" for why, count in self.skipped.items())
            raise TersenseError(f"no image of at least {crop}×{crop} pixels in {path}: {reasons}")


def _pack_folder(
    scales: Sequence[float], folder: Path, crop: int, sink: IO[bytes], track: Track
) -> _Index:
    """Decode a folder into the sink; what cannot be used is counted, never fatal."""
    files = find_images(folder)
    index = _Index()
    others = sum(path.is_file() for path in folder.rglob("*")) - len(files)
    if others:
        index.skipped["not images"] = others

    def decode(path: Path) -> list[ImageArray]:
        try:
            image = read_gray(path)
        except TersenseError:
            return []
        return [_scaled(image, scale) for scale in scales]

    for images in track(ahead(decode, files), "reading images", len(files)):
        if not images:
            index.skipped["unreadable"] += 1
        for image in images:
            if min(image.shape) < crop:
                index.skipped[f"smaller than {crop} pixels"] += 1
            else:
                sink.write(image.tobytes())
                index.sizes.append(image.shape)
    index.require_some(folder, crop)
    return index


def _scaled(image: ImageArray, scale: float) -> ImageArray:
    height, width = (max(1, round(side * scale)) for side in image.shape)
    return shrink(image, width, height)


def _pack_hdf5(path: Path, crop: int, sink: IO[bytes], track: Track) -> _Index:
    """Copy the dataset `patches` into the sink, some thousand patches at a time."""
    with open_patches(path) as patches:
        size = patches.height, patches.width
        if min(size) < crop:
            raise TersenseError(
                f"patches of {size[1]}×{size[0]} are smaller than data.crop = {crop}"
            )
        for block in track(patches.blocks(), "reading patches", patches.block_count):
            sink.write(block.tobytes())
        return _Index([size] * patches.count)


def _open_cached(
    path: Path,
    crop: int,
    cache: Path,
    pack: Callable[..., _Index],
    track: Track,
    scales: Sequence[float],
) -> PackedImages:
    """Use the packed file in the cache folder, after making it if it is missing or outdated.

    Several processes may share the folder: one packs, the others wait and map the same file.
    """
    make_folder(cache)
    pixels_file, index_file = cache / "pixels.u8", cache / "index.safetensors"
    fingerprint = _fingerprint(path, crop, scales)
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
    return index.images(mapped)


def _read_index(index_file: Path, pixels_file: Path, fingerprint: str) -> _Index | None:
    """Return the index of a cache, or None if it is missing, damaged or of other images."""
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


def _fingerprint(path: Path, crop: int, scales: Sequence[float]) -> str:
    """Return a hash of the names, sizes and dates of the files, of the crop and of the scales."""
    whole = tuple(scales) == (1.0,)  # as in caches made before there were others
    digest = hashlib.sha256(f"{crop}{'' if whole else tuple(scales)}".encode())
    for file in find_images(path) if path.is_dir() else [path]:
        stat = file.stat()
        digest.update(f"{file.name}|{stat.st_size}|{stat.st_mtime_ns}".encode())
    return digest.hexdigest()
