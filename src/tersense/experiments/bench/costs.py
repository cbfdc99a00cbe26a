"""What a reconstruction costs: multiply-adds, counted, and seconds beside a known network."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tersense.experiments.bench.sensing import race, random_image
from tersense.experiments.bench.yardstick import BLOCK, ROWS, Yardstick
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.imager import Imager
from tersense.runtime.device import device_name

YARDSTICK = "yardstick"
UNIFORM, CLOSED, ROUNDS = "uniform", "closed-3", 3  # ways to take an image
THREADS = 2
REPETITIONS = 9
SIDES = {"cpu": 256, "cuda": 1024}  # usual test images; for a GPU they are too little to do
_COUNTED_SIDE, _QUICK_SIDE = 256, 64
_TURN = 0.1  # seconds, at least, of each repetition

Run = Callable[[], Any]


def count_multiply_adds(run: Run) -> int:
    """Count the multiply-adds of matrix products and convolutions, with zeros or without.

    What is computed once and kept is not counted, as in all further images.
    """
    run()
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops()) // 2


def count_costs(imager: Imager, rate: float) -> dict[str, dict[str, float]]:
    """Count what each way to take an image at a rate needs to give it back, per pixel."""
    predictor = imager.camera.predictor
    weights = {UNIFORM: imager.parameters, CLOSED: imager.parameters + _weights(predictor)}
    return {
        way: {
            "weights": weights[way],
            "multiply_adds": count_multiply_adds(run) / _COUNTED_SIDE**2,
        }
        for way, run in _reconstructions(imager, rate, _COUNTED_SIDE).items()
    }


def _weights(network: nn.Module | None) -> int:
    return 0 if network is None else sum(weights.numel() for weights in network.parameters())


def describe_yardstick() -> dict[str, float]:
    """Return the number of weights and the multiply-adds per pixel of the yardstick."""
    run, side = _measure_by(torch.device("cpu"), BLOCK)  # every block takes as many
    return {"weights": _weights(Yardstick()), "multiply_adds": count_multiply_adds(run) / side**2}


def time_reconstruction(imager: Imager, rate: float, quick: bool = False) -> dict[str, Any]:
    """Time each way to take an image at a rate, and the yardstick, in turns.

    From measurements in the computer's memory to an image there; of the closed loop all rounds, and
    sensing, too. On a CPU also by the CPU time of one thread, which other work on the machine
    hardly changes.

    Returns:
        Seconds per megapixel, the least of several repetitions; and how they were measured: `share`
        is how much of its threads the process really had.
    """
    device = imager.device
    on_cpu, side = device.type == "cpu", _QUICK_SIDE if quick else SIDES[device.type]
    runs = _reconstructions(imager, rate, side)
    measure, measured_side = _measure_by(device, side)
    pixels = dict.fromkeys(runs, side**2) | {YARDSTICK: measured_side**2}
    repetitions = 2 if quick else REPETITIONS

    def least(threads: int, clock: Callable[[], float]) -> dict[str, float]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            times = race(
                runs | {YARDSTICK: measure}, seconds=0, clock=clock, turn=0 if quick else _TURN,
                fewest=repetitions, of=min,
            )  # fmt: skip
        finally:
            torch.set_num_threads(before)
        return {name: seconds / pixels[name] * 1e6 for name, seconds in times.items()}

    began = time.perf_counter(), time.process_time()
    seconds = least(THREADS, time.perf_counter)
    passed, used = time.perf_counter() - began[0], time.process_time() - began[1]
    return {
        "device": device_name(device),
        "threads": THREADS if on_cpu else None,
        "share": used / passed / THREADS if on_cpu else None,
        "side": side,
        "repetitions": repetitions,
        "seconds": seconds,
        "cpu_seconds": least(1, time.process_time) if on_cpu else None,
    }


def _reconstructions(imager: Imager, rate: float, side: int) -> dict[str, Run]:
    """Return what gives an image back: from uniform counts, and in rounds where it can decide."""
    image, uniform = random_image(side), imager.at_rate(rate)
    y = uniform.sense(image)
    runs: dict[str, Run] = {UNIFORM: lambda: uniform.estimate(y)}
    if imager.camera.predictor is not None:
        closed = AdaptiveCamera(imager, rate, "closed", ROUNDS)
        runs[CLOSED] = lambda: closed.captures(image)[0].estimate()
    return runs


def _measure_by(device: torch.device, side: int) -> tuple[Run, int]:
    """Return what reconstructs by the yardstick, and the side of its image, of whole blocks."""
    windows = side // BLOCK
    # Side by side the channels of a pixel are faster here, too.
    yardstick = Yardstick().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    y = torch.randn(1, ROWS, windows, windows)

    @torch.inference_mode()
    def run() -> torch.Tensor:
        image: torch.Tensor = yardstick(y.to(device))
        return image.cpu()

    return run, windows * BLOCK
