"""Measure how fast networks reconstruct, and how fast they train."""

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tersense.experiments.bench.sensing import cpu_name, race, random_picture
from tersense.models.files import load
from tersense.runtime.malloc import keep_freed_memory
from tersense.runtime.progress import Track, quietly
from tersense.runtime.watcher import Quiet
from tersense.training.config import Config
from tersense.training.loop import Run

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
    """Time the reconstruction of gray pictures, beside a convolution as a yardstick.

    Both in float32; in bfloat16 too where the processor has instructions for it.

    The yardstick is one 3×3 convolution of 64 to 64 channels over 256×256 positions, timed in turns
    with the rest. Peak memory is that of a fresh process that loads the model and reconstructs one
    picture; on a GPU, what torch allocates there for the model and one picture.

    Args:
        models: Names or files.
        device: Where to compute.
        threads: Of the CPU.
        most: Side of the largest picture.
        quick: Small pictures, short: to see that it works.
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
    y = imager.sense(random_picture(side))
    on_gpu = device.type == "cuda"
    peak = _gpu_peak(lambda: imager.estimate(y)) if on_gpu else _cpu_peak(model, side, threads)
    convolution, maps = _yardstick(device)

    def reconstruct(precision: str) -> None:
        imager.precision = precision
        imager.estimate(y)

    @torch.inference_mode()
    def convolve() -> None:
        convolution(maps)
        _wait(device)

    runs = {"float32": lambda: reconstruct("float32"), "yardstick": convolve}
    if _is_fast_at_bfloat16(device):
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


def _is_fast_at_bfloat16(device: torch.device) -> bool:
    """Tell whether the processor has instructions for it; without, it is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


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


def _cpu_peak(model: str, side: int, threads: int) -> int:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_reconstruct_once, (model, side, threads))


def _reconstruct_once(model: str, side: int, threads: int) -> int:
    """Reconstruct one picture on the CPU and return the peak memory of this process."""
    keep_freed_memory()  # as every command does
    torch.set_num_threads(threads)
    imager = load(model)
    imager.estimate(imager.sense(random_picture(side)))
    status = Path("/proc/self/status")
    if status.exists():  # getrusage on Linux would tell the peak of the process that started us
        lines = (line.split() for line in status.read_text().splitlines())
        return next(int(words[1]) * 1024 for words in lines if words[0] == "VmHWM:")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bench_training(config: Config, quick: bool = False) -> dict[str, Any]:
    """Time whole training steps, and count their arithmetic.

    Crops come from the bundled photograph: what they show does not matter for speed.

    Args:
        config: Settings of the training; its data is not used.
        quick: Few steps: to see that it works.
    """
    config = replace(config, data=replace(config.data, train="package:tersense/io/assets"))
    run = Run(config, Quiet())
    step, batch = run.make_step(), config.train.batch
    locations = run.sampler.epoch(0)[:batch]
    for _ in range(2 if quick else 10):  # compile, capture, find the fastest convolutions
        step(locations)
    count = 2 if quick else 20
    seconds = _timed(lambda: [step(locations) for _ in range(count)], run.device) / count
    pixels = batch * config.data.crop**2
    flops = _count_flops(run, locations)
    peak = _matrix_product_flops(run.device, 256 if quick else 8192)
    return {
        "device": device_name(run.device),
        "reconstructor": config.reconstructor,
        "batch": batch,
        "crop": config.data.crop,
        "seconds_a_step": seconds,
        "pixels_per_second": pixels / seconds,
        "flops_a_pixel": flops / pixels,
        "flops_per_second": flops / seconds,
        "matrix_product_flops_per_second": peak,
        "share_of_peak": flops / seconds / peak,
    }


def _count_flops(run: Run, locations: torch.Tensor) -> int:
    """Count the floating-point operations of one step, forwards and backwards."""
    with FlopCounterMode(display=False) as counter:
        run.network(run.crops(locations)).backward()
    return int(counter.get_total_flops())


def _matrix_product_flops(device: torch.device, side: int) -> float:
    """Measure a large matrix product: bfloat16 on a GPU, float32 on a CPU."""
    on_gpu = device.type == "cuda"
    side, dtype = (side, torch.bfloat16) if on_gpu else (min(side, 2048), torch.float32)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    torch.mm(a, b)
    seconds = min(_timed(lambda: torch.mm(a, b), device) for _ in range(5))
    return 2 * side**3 / seconds


def _timed(run: Callable[[], Any], device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    run()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def device_name(device: torch.device) -> str:
    """Name the processor that a device is."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
