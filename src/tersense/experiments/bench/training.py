"""How fast models train: time of a step, and its share of what the machine can do."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tersense.experiments.bench.reconstruction import wait_for
from tersense.runtime.device import device_name
from tersense.runtime.progress import Quiet
from tersense.training.config import Config
from tersense.training.run import Run


def bench_training(config: Config, quick: bool = False) -> dict[str, Any]:
    """Time whole training steps, and count their arithmetic.

    Crops come from the bundled photograph: what they show does not matter for speed.

    Args:
        config: Settings of the training; its data is not used.
        quick: Few steps: to see that it works.
    """
    config = replace(config, data=replace(config.data, train="package:tersense/io/assets"))
    run = Run(config, Quiet())
    step, batch, device = run.loop.make_step(), config.train.batch, run.state.device
    locations = run.data.sampler.epoch(0)[:batch]
    for _ in range(2 if quick else 10):  # compile, capture, find the fastest convolutions
        step(locations)
    count = 2 if quick else 20
    seconds = _timed(lambda: [step(locations) for _ in range(count)], device) / count
    pixels = batch * config.data.crop**2
    flops = _count_flops(run, locations)
    peak = _matrix_product_flops(device, 256 if quick else 8192)
    return {
        "device": device_name(device),
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
        run.state.network(run.data.crops(locations)).backward()
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
    wait_for(device)
    start = time.perf_counter()
    run()
    wait_for(device)
    return time.perf_counter() - start
