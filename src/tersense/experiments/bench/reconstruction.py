"""How fast models reconstruct, by image size, and the memory that it takes."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tersense.experiments.bench.sensing import race, random_image
from tersense.models.zoo import load
from tersense.runtime.device import device_name, is_fast_at_bfloat16, keep_freed_memory
from tersense.runtime.progress import Track, quietly

SIDES = (256, 512, 1024, 2048, 4096)
YARDSTICK_SIDE, YARDSTICK_CHANNELS = 256, 64
_SECONDS_A_CASE = 3.0


def bench_reconstruction(
    models: list[str],
    device: torch.device,
    threads: int = 2,
    most: int = SIDES[-1],
    quick: bool = False,
    track: Track = quietly,
) -> dict[str, Any]:
    """Time the reconstruction of gray images, beside a convolution as a yardstick.

    Both in float32; in bfloat16 too where the processor has instructions for it.

    The yardstick is one 3×3 convolution of 64 to 64 channels over 256×256 positions, timed in turns
    with the rest. Peak memory is that of a fresh process that loads the model and reconstructs one
    image; on a GPU, what torch allocates there for the model and one image.

    Args:
        models: Names or files.
        device: Where to compute.
        threads: Of the CPU.
        most: Side of the largest image.
        quick: Small images, short: to see that it works.
        track: Wraps the cases to show progress.
    """
    sides = (64, 128) if quick else tuple(side for side in SIDES if side <= most)
    seconds = 0.05 if quick else _SECONDS_A_CASE
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        cases = [(model, side) for model in models for side in sides]
        rows = [
            _reconstruction_case(model, side, device, threads, seconds)
            for model, side in track(cases, "reconstructing", len(cases))
        ]
    finally:
        torch.set_num_threads(before)
    return {"device": device_name(device), "threads": threads, "cases": rows}


def _reconstruction_case(
    model: str, side: int, device: torch.device, threads: int, seconds: float
) -> dict[str, Any]:
    imager = load(model, device)
    y = imager.sense(random_image(side))
    on_gpu = device.type == "cuda"
    peak = _gpu_peak(lambda: imager.estimate(y)) if on_gpu else _cpu_peak(model, side, threads)
    convolution, maps = _yardstick(device)

    def reconstruct(precision: str) -> None:
        imager.precision = precision
        imager.estimate(y)

    @torch.inference_mode()
    def convolve() -> None:
        convolution(maps)
        wait_for(device)

    runs = {"float32": lambda: reconstruct("float32"), "yardstick": convolve}
    if is_fast_at_bfloat16(device):
        runs["bfloat16"] = lambda: reconstruct("bfloat16")
    times = race(runs, seconds, fewest=2 if side > 1024 else 5)
    return {
        "model": imager.name,
        "side": side,
        "seconds": times,
        "yardsticks": times["float32"] / times["yardstick"],
        "bfloat16_share": times["bfloat16"] / times["float32"] if "bfloat16" in times else None,
        "nanoseconds_a_pixel": times["float32"] / side**2 * 1e9,
        "peak_bytes": peak,
    }


def _yardstick(device: torch.device) -> tuple[nn.Conv2d, torch.Tensor]:
    channels, side = YARDSTICK_CHANNELS, YARDSTICK_SIDE
    convolution = nn.Conv2d(channels, channels, 3, padding=1).to(device)
    maps = torch.randn(1, channels, side, side, device=device)
    last = torch.channels_last
    return convolution.to(memory_format=last), maps.contiguous(memory_format=last)  # type: ignore[call-overload]


def _gpu_peak(run: Callable[[], Any]) -> int:
    torch.cuda.reset_peak_memory_stats()
    run()
    return int(torch.cuda.max_memory_allocated())


def _cpu_peak(model: str, side: int, threads: int) -> int | None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_reconstruct_once, (model, side, threads))


def _reconstruct_once(model: str, side: int, threads: int) -> int | None:
    """Reconstruct one image on the CPU and return the peak memory of this process."""
    keep_freed_memory()  # as every command does
    torch.set_num_threads(threads)
    imager = load(model)
    imager.estimate(imager.sense(random_image(side)))
    return _peak_memory()


def _peak_memory() -> int | None:
    """Return the most bytes that this process has had; None where the system does not tell."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage on Linux would tell the peak of the process that started us
        lines = (line.split() for line in status.read_text(encoding="utf-8").splitlines())
        return next(int(words[1]) * 1024 for words in lines if words[0] == "VmHWM:")
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()
