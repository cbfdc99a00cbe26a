"""Measure how long each method takes to give an image back: one thread, in turns, in one run."""

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.evaluation.protocols import CameraLike, reconstruct_overlapping
from tersense.io.images import ImageArray, read_gray
from tersense.models.camera import Camera
from tersense.models.imager import Imager
from tersense.models.zoo import load
from tersense.reconstruction.base import Normalization, build_reconstructor
from tersense.runtime.device import cpu_name
from tersense.runtime.progress import Track, quietly
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import random_patterns
from tersense.sensing.sensors import DenseSensor

OURS = "paper-r25"
WINDOW, RATE = 32, 0.25
SIDE, SMALL_SIDE = 256, 64
_SECONDS_A_TURN, _MAX_CALLS = 0.3, 25


@dataclass(frozen=True)
class Method:
    """A way to reconstruct.

    Args:
        name: In the table.
        about: What exactly is measured.
        camera: It, with the patterns that belong to it.
        windows: Whether it reconstructs window by window, so that windows may overlap.
        trained: Whether its images mean anything.
    """

    name: str
    about: str
    camera: CameraLike
    windows: bool = True
    trained: bool = True


def list_methods() -> tuple[list[Method], list[str]]:
    """Return the methods, ours first, and the names of those that are not installed."""
    dense, sparse = (random_patterns(int(RATE * WINDOW**2), WINDOW, d) for d in (None, 0.05))
    methods = [
        Method(OURS, "the paper's network, float32", load(OURS)),
        Method("O-NL-SDA", "its layer sizes, weights untrained: they do not change the time",
               _untrained_sda(), trained=False),
        Method("BP, gap 1e-3", "Basis Pursuit, dense ternary, our solver (Chambolle–Pock on all "
               "windows at once, float32), as in the tables", Imager.untrained(dense, "bp")),
        Method("BP, gap 1e-4", "the same, solved to the gap at which spgl1 stops",
               Imager.untrained(dense, "bp", tolerance=1e-4)),
        Method("TV, gap 1e-3", "total variation of the whole image, 5 % ternary, our solver, "
               "float32", Imager.untrained(sparse, "tv"), windows=False),
    ]  # fmt: skip
    try:
        camera = Imager.untrained(dense, "spgl1")
    except TersenseError:
        return methods, ["spgl1"]
    about = "the same problem, window by window, float64, its own tolerances (y 1e-6, gap 1e-4)"
    return [*methods, Method("BP by spgl1", about, camera)], []


def _untrained_sda() -> CameraLike:
    geometry, sensor = Geometry(WINDOW, WINDOW), DenseSensor(WINDOW, WINDOW, RATE)
    operator = SensingOperator(sensor.theta.detach().view(-1, WINDOW, WINDOW), WINDOW)
    network = build_reconstructor("sda", {}, geometry, len(operator.phi))
    return Camera("O-NL-SDA", operator, Normalization(128.0, 64.0), network)


def bench_methods(
    files: list[Path], stride: int = 8, quick: bool = False, track: Track = quietly
) -> dict[str, Any]:
    """Compare seconds per image, with the quality of the images beside them.

    Everything runs in one thread, and CPU time is what counts. Image by image, all methods take
    their turn, so that whatever slows the machine down slows all of them. As blocks, the middle
    256×256 pixels are reconstructed from measurements that are there already. The overlapping
    protocol takes a window every few pixels of the middle 64×64 pixels, and senses them, too.

    Args:
        files: Images of at least 256×256 pixels.
        stride: Of the overlapping protocol.
        quick: Small images: to see that it works.
        track: Wraps the images to show progress.
    """
    side, small = (64, 32) if quick else (SIDE, SMALL_SIDE)
    if not 1 <= stride <= WINDOW:
        raise TersenseError(f"stride {stride} must lie between 1 and the window, {WINDOW}")
    images = [_middle(path, side) for path in files]
    methods, missing = list_methods()
    blocks, overlapping = _Figures(methods), _Figures([m for m in methods if m.windows])
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for method in methods:  # whatever is done only once
            method.camera.capture(images[0][:WINDOW, :WINDOW])
        for image in track(images, "reconstructing", len(images)):
            for method in blocks.methods:
                blocks.add(method, *_time_blocks(method.camera, image), image)
            part = _cut_middle(image, small)
            for method in overlapping.methods:
                overlapping.add(method, *_time_overlapping(method.camera, part, stride), part)
    finally:
        torch.set_num_threads(before)
    count = len(range(stride, WINDOW + small, stride)) ** 2
    return {
        "machine": f"{platform.machine()}, {platform.system()}",
        "cpu": cpu_name(),
        "threads": 1,
        "pictures": [path.stem for path in files],
        "missing": missing,
        "cases": [
            {"protocol": "blocks", "side": side, "stride": WINDOW,
             "windows": (side // WINDOW) ** 2, "methods": list(blocks.summary())},
            {"protocol": "overlapping", "side": small, "stride": stride,
             "windows": count, "methods": list(overlapping.summary())},
        ],
    }  # fmt: skip


class _Figures:
    """The seconds and the PSNR of some methods, image after image."""

    def __init__(self, methods: list[Method]) -> None:
        self.methods = methods
        self.seconds: dict[str, list[float]] = {m.name: [] for m in methods}
        self.psnr: dict[str, list[float]] = {m.name: [] for m in methods}

    def add(
        self, method: Method, seconds: float, estimate: NDArray[Any], image: ImageArray
    ) -> None:
        self.seconds[method.name].append(seconds)
        self.psnr[method.name].append(psnr(estimate, image))

    def summary(self) -> Iterator[dict[str, Any]]:
        ours = np.array(self.seconds[OURS])
        for method in self.methods:
            seconds = np.array(self.seconds[method.name])
            ratios = seconds / ours
            yield {
                "name": method.name,
                "about": method.about,
                "median_seconds": float(np.median(seconds)),
                "ratio": {"median": float(np.median(ratios)), "least": float(ratios.min()),
                          "most": float(ratios.max())},
                "psnr": float(np.mean(self.psnr[method.name])) if method.trained else None,
                "seconds": seconds.tolist(),
            }  # fmt: skip


def _time_blocks(camera: CameraLike, image: ImageArray) -> tuple[float, NDArray[Any]]:
    """Measure the reconstruction alone."""
    size = image.shape[0], image.shape[1]
    with torch.inference_mode():
        y = camera.measure(torch.from_numpy(image)[None])
        seconds, estimate = _time(lambda: camera.reconstruct_batch(y, size))
    return seconds, np.clip(estimate[0].numpy(), 0, 255)


def _time_overlapping(
    camera: CameraLike, image: ImageArray, stride: int
) -> tuple[float, NDArray[Any]]:
    """Measure sensing and reconstruction; sensing is a small part of it."""
    seconds, (estimate, _) = _time(lambda: reconstruct_overlapping(camera, image, stride))
    return seconds, estimate


def _time(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the median seconds of the calls that fit into a turn, at least one, and the result."""
    times: list[float] = []
    while sum(times) < _SECONDS_A_TURN and len(times) < _MAX_CALLS:
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return float(np.median(times)), result


def _middle(path: Path, side: int) -> ImageArray:
    image = read_gray(path)
    if min(image.shape) < side:
        height, width = image.shape
        raise TersenseError(
            f"{path} has {width}×{height} pixels; at least {side}×{side} are needed"
        )
    return _cut_middle(image, side)


def _cut_middle(image: ImageArray, side: int) -> ImageArray:
    top, left = ((length - side) // 2 for length in image.shape)
    return np.ascontiguousarray(image[top : top + side, left : left + side])
