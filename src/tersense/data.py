"""Training pictures: packed once into one run of bytes, cropped on the device that trains.

    folder or HDF5 ──decode──▶ one uint8 store + index ──locations──▶ crops (N, c, c)

A crop is described by three numbers: where its first pixel lies in the store, and how far the next
pixel lies down and across. Turned and mirrored crops differ in these numbers only.
"""

import hashlib
import importlib.util
import io
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tersense.errors import TersenseError
from tersense.files import locked, make_folder, remove_partials, require_file, written_whole
from tersense.images import Picture, find_images, read_gray

_MOST_COMPRESSED = 1100  # times; what deflate reaches with nothing but zeros
_LARGEST_CHUNK = 2**28  # bytes of an HDF5 file that are unpacked at once

Item = TypeVar("Item")
Result = TypeVar("Result")
Track = Callable[[Iterable[Any], str, int], Iterable[Any]]


def quietly(items: Iterable[Any], label: str, total: int) -> Iterable[Any]:
    """Go through items without showing progress."""
    return items


def ahead(
    work: Callable[[Item], Result], items: Iterable[Item], depth: int = 16
) -> Iterator[Result]:
    """Yield `work(item)` in order while threads work on the next `depth` items."""
    with ThreadPoolExecutor() as pool:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@dataclass
class PackedPictures:
    """Gray pictures of any sizes in one run of bytes.

    Args:
        pixels: (total,) uint8, picture after picture, row by row.
        starts: (P,) int64, where each picture begins.
        heights: (P,) int64.
        widths: (P,) int64.
        skipped: How many files were left out, by reason.
    """

    pixels: Tensor
    starts: Tensor
    heights: Tensor
    widths: Tensor
    skipped: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    def to(self, device: torch.device) -> "PackedPictures":
        """Move the store to a GPU if it takes at most half of the free memory; else leave it."""
        if device.type != "cuda" or self.pixels.numel() > torch.cuda.mem_get_info(device)[0] / 2:
            return self
        return PackedPictures(
            self.pixels.to(device),
            self.starts.to(device),
            self.heights.to(device),
            self.widths.to(device),
            self.skipped,
        )

    def picture(self, number: int) -> Picture:
        """Return one whole picture, (H, V) uint8."""
        height, width = int(self.heights[number]), int(self.widths[number])
        start = int(self.starts[number])
        whole = self.pixels[start : start + height * width].view(height, width)
        pixels: Picture = whole.cpu().numpy()
        return pixels

    def mean_and_std(self) -> tuple[float, float]:
        """Return μ and σ of the pixels; of an even selection where there are very many."""
        histogram = torch.zeros(256, dtype=torch.int64, device=self.pixels.device)
        for block in self._some_blocks():
            histogram += torch.bincount(block.long(), minlength=256)
        share = histogram.double().cpu() / histogram.sum().item()
        level = torch.arange(256, dtype=torch.float64)
        mean = (share * level).sum().item()
        variance = (share * (level - mean) ** 2).sum().item()
        return mean, math.sqrt(variance) or 1.0

    def describe(self) -> dict[str, Any]:
        """Return what tells these pictures from others: numbers, and a hash.

        The hash is of all sizes and of the pixels; of an even selection of them where there are
        very many.
        """
        digest = hashlib.sha256()
        for part in (self.heights, self.widths, *self._some_blocks()):
            digest.update(part.cpu().numpy().tobytes())
        return {
            "pictures": len(self),
            "pixels": self.pixels.numel(),
            "sha256": digest.hexdigest(),
            "left_out": self.skipped,
        }

    def _some_blocks(self) -> Iterator[Tensor]:
        """Yield the pixels, or where there are very many an even selection, a megabyte a time."""
        begins = range(0, self.pixels.numel(), 2**20)
        for begin in begins[:: max(1, len(begins) // 512)]:
            yield self.pixels[begin : begin + 2**20]

    def crops(self, locations: Tensor, size: int) -> Tensor:
        """Gather crops (N, size, size) uint8 at locations (N, 3)."""
        start, down, across = (part[:, None, None] for part in locations.unbind(1))
        steps = torch.arange(size, device=locations.device)
        return self.pixels[start + down * steps[:, None] + across * steps]


class CropSampler:
    """Choose crops, all equally likely; the same ones for the same seed and epoch.

    Args:
        pictures: Where to crop.
        crop: Side of a crop in pixels.
        samples: Crops in an epoch; 0 takes one from every picture.
        fresh: Draw anew every epoch; otherwise the crops of epoch 0 come in a new order.
        augment: Turn and mirror at random.
        seed: Of the choice.
    """

    def __init__(
        self,
        pictures: PackedPictures,
        crop: int,
        samples: int,
        fresh: bool = False,
        augment: bool = False,
        seed: int = 0,
    ) -> None:
        self.pictures, self.crop, self.samples = pictures, crop, samples
        self.fresh, self.augment, self.seed = fresh, augment, seed

    def __len__(self) -> int:
        return self.samples or len(self.pictures)

    def epoch(self, number: int) -> Tensor:
        """Return the locations (len(self), 3) of an epoch, in the order to train on."""
        if self.fresh:
            return self._draw(self._generator(number))
        same = self._draw(self._generator(0))
        generator = self._generator(number + 1)
        return same[torch.randperm(len(same), generator=generator, device=same.device)]

    def _generator(self, number: int) -> torch.Generator:
        generator = torch.Generator(self.pictures.starts.device)
        return generator.manual_seed(self.seed * 1_000_003 + number)

    def _draw(self, generator: torch.Generator) -> Tensor:
        pictures, crop, device = self.pictures, self.crop, self.pictures.starts.device
        columns = pictures.widths - crop + 1
        choices = (pictures.heights - crop + 1) * columns  # crops in each picture

        def below(limit: Any, count: int) -> Tensor:
            real = torch.rand(count, generator=generator, device=device, dtype=torch.float64)
            return torch.mul(real, limit).long()

        if self.samples:
            ends = choices.cumsum(0)
            drawn = below(ends[-1], self.samples)
            which = torch.searchsorted(ends, drawn, right=True)
            place = drawn - (ends - choices)[which]
        else:
            which = torch.arange(len(pictures), device=device)
            place = below(choices, len(pictures))
        width, across = pictures.widths[which], columns[which]
        start = pictures.starts[which] + place // across * width + place % across
        locations = torch.stack([start, width, torch.ones_like(width)], dim=1)
        return _turn(locations, crop, below(8, len(locations))) if self.augment else locations


def _turn(locations: Tensor, crop: int, symmetry: Tensor) -> Tensor:
    """Apply one of the 8 symmetries of the square to each crop."""
    start, down, across = locations.unbind(1)
    for bit in (1, 2):  # mirror up-down, then left-right: begin at the other end, step back
        flip = (symmetry & bit) > 0
        start = torch.where(flip, start + (crop - 1) * down, start)
        down = torch.where(flip, -down, down)
        start, down, across = start, across, down
    swap = (symmetry & 4) > 0
    down, across = torch.where(swap, across, down), torch.where(swap, down, across)
    return torch.stack([start, down, across], dim=1)


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
