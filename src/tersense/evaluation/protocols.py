"""Measure how well a camera gives images back, by two protocols.

*Own geometry*: the image is sensed once, as the camera does, and reconstructed; the result is
clipped to the pixels' range and not rounded.

*Overlapping* (the paper's): the image is mirrored at its border, every window at a small stride
is sensed and reconstructed on its own, and the results are averaged, unclipped. It takes many
times more measurements than the rate says, so the true number per pixel is always reported.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr, ssim
from tersense.io.deep import USUAL, largest_pixel, pixel_type, require_depth
from tersense.io.images import ImageArray, find_images, mirror_border, read_gray, read_image
from tersense.io.patches import is_patch_file, open_patches
from tersense.measurements.readout import Readout
from tersense.runtime.distributed import share_out
from tersense.runtime.progress import Track, ahead, quietly
from tersense.sensing.geometry import Geometry

_WINDOWS_AT_ONCE = 8192
_SHARES = {"lowest": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95,
           "highest": 1.0}  # fmt: skip


class Captured(NamedTuple):
    """What a camera gave back of one image, and from how much."""

    estimate: NDArray[Any]  # (H, W) or (H, W, 3), neither rounded nor clipped
    measurements: int
    bits: int  # of all measurements together, as a file keeps them
    predicted: float | None = None  # PSNR that an adaptive camera expects, in dB


class CameraLike(Protocol):
    """What is evaluated: an `Imager`, or a `Camera` of any sensing weights (see `models`)."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def geometry(self) -> Geometry:
        """Window and stride."""

    @property
    def rows(self) -> int:
        """m, the measurements per window."""

    @property
    def rate(self) -> float:
        """Measurements per pixel of a large image."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    def capture(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Captured:
        """Sense, read out and reconstruct one image."""

    def measure(self, x: Tensor) -> Tensor:
        """Sense raw pixels (N, H, W): return y (N, m, h, w)."""

    def reconstruct_batch(self, y: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """Reconstruct raw pixels (N, H, W) from y (N, m, h, w)."""


@dataclass(frozen=True)
class Score:
    """The figures of one image."""

    name: str
    psnr: float
    ssim: float
    seconds: float
    measurements: int
    bits: int | None  # None where nobody would store them
    pixels: int
    predicted: float | None = None  # PSNR that the camera itself expected


def score_image(
    camera: CameraLike,
    name: str,
    image: ImageArray,
    stride: int | None = None,
    readout: Readout | None = None,
    depth: int = USUAL,
) -> Score:
    """Sense and reconstruct one gray image (H, W) and compare; see `evaluate_folder`."""
    return _capture(camera, name, image, stride, readout, depth)()


def score_images(
    camera: CameraLike, images: Iterable[tuple[str, ImageArray]], readout: Readout | None = None
) -> list[Score]:
    """Score gray images; threads compare while the next ones are reconstructed.

    PSNR and SSIM are computed on the CPU, and no GPU shall wait for them.
    """
    captured = (_capture(camera, *image, readout=readout) for image in images)
    return list(ahead(lambda compare: compare(), captured))


def _capture(
    camera: CameraLike,
    name: str,
    image: ImageArray,
    stride: int | None = None,
    readout: Readout | None = None,
    depth: int = USUAL,
) -> Callable[[], Score]:
    """Sense and reconstruct one image; return what compares the two."""
    began, peak = time.perf_counter(), largest_pixel(depth)
    bits = predicted = None
    if stride is None:
        estimate, taken, bits, predicted = Captured(*camera.capture(image, readout, depth))
        estimate = np.clip(estimate, 0, peak)
    else:
        estimate, taken = reconstruct_overlapping(camera, image, stride, depth)
    seconds = time.perf_counter() - began

    def compare() -> Score:
        figures = psnr(estimate, image, peak), ssim(estimate, image, peak)
        return Score(name, *figures, seconds, taken, bits, image.size, predicted)

    return compare


@torch.inference_mode()
def reconstruct_overlapping(
    camera: CameraLike, image: ImageArray, stride: int, depth: int = USUAL
) -> tuple[NDArray[Any], int]:
    """Reconstruct by the paper's test protocol.

    Args:
        camera: A camera whose windows do not overlap.
        image: (H, W), uint8 or uint16.
        stride: Pixels between the windows that are sensed and averaged.
        depth: Bits per pixel.

    Returns:
        The average of all windows, (H, W), and the number of measurements that it took.
    """
    window = camera.geometry.window
    if camera.geometry.stride != window:
        raise TersenseError(
            f"{camera.name} is lapped and uses its neighbors already; "
            "the overlapping protocol is for block models: leave the stride out"
        )
    if not 1 <= stride <= window:
        raise TersenseError(f"stride {stride} must lie between 1 and the window, {window}")
    scale = 255 / largest_pixel(depth)
    pixels = image if scale == 1 else image * np.float32(scale)
    extended = torch.from_numpy(mirror_border(pixels, window)).to(camera.device)
    # Windows that lie in the mirrored border altogether would be cropped away: leave them out.
    first = stride
    rows, columns = (len(range(first, window + side, stride)) for side in image.shape)
    total = torch.zeros(extended.shape, device=camera.device)
    counts = torch.zeros_like(total)
    rows_at_once = max(1, _WINDOWS_AT_ONCE // columns)
    for row in range(0, rows, rows_at_once):
        some = min(rows_at_once, rows - row)
        part = (slice(first + row * stride, first + (row + some - 1) * stride + window),
                slice(first, first + (columns - 1) * stride + window))  # fmt: skip
        windows = extended[part].unfold(0, window, stride).unfold(1, window, stride)
        y = camera.measure(windows.reshape(-1, window, window))
        estimates = camera.reconstruct_batch(y, (window, window)).flatten(1)

        def place(columns_of: Tensor, like: Tensor) -> Tensor:
            return F.fold(columns_of.T[None], like.shape, window, stride=stride)[0, 0]

        total[part] += place(estimates, total[part])
        counts[part] += place(torch.ones_like(estimates), counts[part])
    inside = tuple(slice(window, window + side) for side in image.shape)
    average = (total[inside] / counts[inside] / scale).cpu().numpy()
    return average, rows * columns * camera.rows


def evaluate_folder(
    camera: CameraLike,
    folder: str | Path,
    stride: int | None = None,
    track: Track = quietly,
    color: bool = False,
    readout: Readout | None = None,
    depth: int | None = None,
) -> dict[str, Any]:
    """Evaluate a camera on an image or all images of a folder, or on a file of patches.

    Several processes (`distributed`) share the images; each returns all figures.

    Args:
        camera: The camera.
        folder: Images; broken ones are an error, because a mean over fewer misleads. Or an HDF5
            file with a dataset `patches`, as in `open_images`; patches are named by number.
        stride: None for the camera's own geometry; a number of pixels for the paper's overlapping
            protocol (the paper uses 2).
        track: Wraps the images to show progress.
        color: Sense every channel of color images, PSNR over all of them; otherwise their luma.
        readout: Noise and bits of the measurements, the same seed for every image; None for exact
            ones.
        depth: Bits per pixel, 9 to 16, of 16-bit files; their upper 8 bits where not given. The
            peak of PSNR and SSIM is 2^depth − 1.

    Returns:
        The figures of each image, their means and their spread, ready for JSON.
    """
    source = Path(folder)
    bits = USUAL if depth is None else require_depth(depth)

    def score(named: tuple[str, Callable[[], ImageArray]]) -> Score:
        name, read = named
        image = read()
        try:
            return score_image(camera, name, image, stride, readout, bits)
        except TersenseError as error:
            raise TersenseError(f"{name}: {error}") from error

    if color and stride is not None:
        raise TersenseError("the overlapping protocol is for gray images; leave --color out")
    if stride is not None and readout is not None and not readout.exact:
        raise TersenseError(
            f"the overlapping protocol is for exact measurements, got {readout}; leave --stride out"
        )
    images = _named_images(source, color, depth)
    black = np.zeros((camera.geometry.window,) * 2, pixel_type(bits))
    with contextlib.suppress(TersenseError):  # a file of one window may not be as small as asked
        camera.capture(black, depth=bits)  # compiles what it needs
    scores = share_out(images, score, track, "evaluating")
    return summarize(camera, source.resolve().name, scores, stride, color, readout, bits)


def _named_images(
    source: Path, color: bool, depth: int | None
) -> list[tuple[str, Callable[[], ImageArray]]]:
    """Return the names of the images in a folder or a file of patches, and how to read each."""
    if is_patch_file(source) and source.exists():
        if depth is not None and depth > USUAL:
            raise TersenseError(f"patches have 8 bits per pixel, not {depth}; leave the depth out")
        with open_patches(source) as patches:
            every = np.concatenate(list(patches.blocks()))
        return [(str(n), partial(every.__getitem__, n)) for n in range(len(every))]
    read = partial(read_image if color else read_gray, depth=depth)
    allowed = "an image, a folder of images or an HDF5 file of patches"
    paths = [source] if source.is_file() else find_images(source, allowed)
    return [(path.stem, partial(read, path)) for path in paths]


def summarize(
    camera: CameraLike,
    data: str,
    scores: list[Score],
    stride: int | None,
    color: bool = False,
    readout: Readout | None = None,
    depth: int = USUAL,
) -> dict[str, Any]:
    """Put scores into the form of `evaluate --json`."""
    taken, pixels = sum(s.measurements for s in scores), sum(s.pixels for s in scores)
    bits = [s.bits for s in scores if s.bits is not None]
    images = [_plain_score(score) for score in scores]
    return {
        "model": camera.name,
        "data": data,
        "protocol": "own geometry" if stride is None else "overlapping",
        "window": camera.geometry.window,
        "stride": stride or camera.geometry.stride,
        "rate": camera.rate,
        "color": color,
        "depth": depth,
        "measurements_per_pixel": taken / pixels,
        "bits_per_pixel": sum(bits) / pixels if len(bits) == len(scores) else None,
        "readout": None if readout is None or readout.exact else readout.to_dict(),
        "mean": {
            "psnr": _plain(np.mean([s.psnr for s in scores])),
            "ssim": _plain(np.mean([s.ssim for s in scores])),
        },
        "spread": _spread([s.psnr for s in scores]),
        **_prediction(scores),
        "images": images,
    }


def _plain_score(score: Score) -> dict[str, Any]:
    """Return what is told of one image."""
    every = asdict(score)
    plain = {key: _plain(every[key]) for key in ("name", "psnr", "ssim", "seconds")}
    if score.predicted is not None:
        plain["predicted_psnr"] = _plain(score.predicted)
        plain["measurements_per_pixel"] = score.measurements / score.pixels
    return plain


def _prediction(scores: list[Score]) -> dict[str, Any]:
    """Tell how far predicted PSNR was from the truth, in dB, where all images have one."""
    apart = [s.predicted - s.psnr for s in scores
             if s.predicted is not None and math.isfinite(s.psnr)]  # fmt: skip
    if not apart or len(apart) < len(scores):
        return {}
    return {
        "prediction": {
            "mean_error": float(np.mean(apart)),
            "mean_absolute_error": float(np.mean(np.abs(apart))),
            "largest_error": float(max(apart, key=abs)),
        }
    }


def _spread(values: list[float]) -> dict[str, Any]:
    """Tell how PSNR varies. An image that came back exactly has an infinite one (null)."""
    finite = [value for value in values if math.isfinite(value)]
    # Always the figure of some image: what lies between a number and infinity is no number.
    shares = np.quantile(values, list(_SHARES.values()), method="inverted_cdf")
    return {
        "exact": len(values) - len(finite),
        "mean_of_others": _plain(np.mean(finite)) if finite else None,
        "psnr": {name: _plain(value) for name, value in zip(_SHARES, shares, strict=True)},
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON knows: what is infinite or undefined becomes null."""
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else None
