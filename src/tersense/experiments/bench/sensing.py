"""Measure speed: ratios of ways to do the same thing, side by side in one run."""

import math
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tersense.errors import TersenseError, install_hint
from tersense.runtime.device import cpu_name
from tersense.runtime.progress import Track, quietly
from tersense.sensing import patterns
from tersense.sensing.additions import AddOnlySensor
from tersense.sensing.patterns import Patterns

WINDOW = 32
NONZEROS = (1, 5, 10, 51, 102, 307, 1024)
SIDES = (256, 2048, 4096)
ADD_ONLY = "add-only"
_SECONDS_A_CASE = 2.0
_FEWEST, _MOST = 5, 51
_STREAM = 16  # images, to compare threads

Sense = Callable[[NDArray[np.uint8]], Any]


def random_patterns(m: int, k: int) -> NDArray[np.int8]:
    """Return (m, 32, 32) random patterns with exactly k non-zeros each."""
    return patterns.random_patterns(m, WINDOW, k / WINDOW**2).phi


def sensing_contestants(phi: NDArray[np.int8]) -> dict[str, Sense]:
    """Return ways to sense blocks: uint8 image (H, W) in, integers (windows, m) or (m, …) out."""
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise TersenseError(f"the comparison needs scipy: {install_hint('baselines')}") from error
    matrix = phi.reshape(len(phi), -1)
    weights = torch.from_numpy(matrix.T.astype(np.float32))
    dense = matrix.T.astype(np.float32)
    bytes_ = torch.from_numpy(matrix.T.copy())
    row_sums = 128 * bytes_.int().sum(0)
    sparse = csr_array(matrix.astype(Patterns(phi, WINDOW).measurement_dtype))

    def with_torch(image: NDArray[np.uint8]) -> Any:
        return (_blocks(torch.from_numpy(image)).float() @ weights).to(torch.int32)

    def with_numpy(image: NDArray[np.uint8]) -> Any:
        return (_blocks(torch.from_numpy(image)).numpy().astype(np.float32) @ dense).astype(
            np.int32
        )

    def with_int_mm(image: NDArray[np.uint8]) -> Any:
        # The int8 product takes signed bytes: shift the pixels by 128 and add the shift back.
        signed = (_blocks(torch.from_numpy(image)) ^ 128).view(torch.int8)
        return torch._int_mm(signed, bytes_) + row_sums

    def with_scipy(image: NDArray[np.uint8]) -> Any:
        h, w = (side // WINDOW for side in image.shape)
        x = image.reshape(h, WINDOW, w, WINDOW).transpose(1, 3, 0, 2)
        columns = x.astype(sparse.dtype, order="C").reshape(WINDOW * WINDOW, h * w)
        return (sparse @ columns).T

    return {
        ADD_ONLY: AddOnlySensor(phi, WINDOW),
        "torch f32": with_torch,
        "numpy f32": with_numpy,
        "torch i8": with_int_mm,
        "scipy CSR": with_scipy,
    }


def _blocks(image: torch.Tensor) -> torch.Tensor:
    """Return (windows, 1024), the blocks of an image one below the other."""
    h, w = (side // WINDOW for side in image.shape)
    blocks = image.reshape(h, WINDOW, w, WINDOW).permute(0, 2, 1, 3)
    return blocks.reshape(h * w, WINDOW * WINDOW)


def race(
    contestants: dict[str, Callable[[], Any]],
    seconds: float = _SECONDS_A_CASE,
    clock: Callable[[], float] = time.perf_counter,
    turn: float = 0.0,
    fewest: int = _FEWEST,
    of: Callable[[list[float]], Any] = np.median,
) -> dict[str, float]:
    """Run contestants in turns and return the median seconds of a call of each.

    Args:
        contestants: What to time, by name.
        seconds: To spend on all together.
        clock: Tells the time.
        turn: Seconds that each runs at a time, at the least: as long for a fast one as for a slow
            one, so that all find the caches as they left them. 0 for one call.
        fewest: Turns of each, at the least.
        of: What to return of the turns, if not their median.
    """
    calls = dict.fromkeys(contestants, 1)
    for name, run in contestants.items():
        run()  # to compile
        if turn:
            start = clock()
            run()
            calls[name] = math.ceil(turn / max(clock() - start, 1e-6))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    began = time.perf_counter()
    for rounds in range(_MOST):
        if rounds >= fewest and time.perf_counter() - began > seconds:
            break
        for name, run in contestants.items():
            start = clock()
            for _ in range(calls[name]):
                run()
            times[name].append((clock() - start) / calls[name])
    return {name: float(of(values)) for name, values in times.items()}


def bench_sensing(quick: bool = False, track: Track = quietly) -> dict[str, Any]:
    """Compare sensing by additions with dense and sparse products, end to end from uint8.

    One thread each, CPU time, medians of interleaved runs. Patterns are random: m = 256, B = S = 32
    (and m = 64, S = 16 for the lapped camera). Every result is checked to be the same integers.

    Args:
        quick: Two densities, small images, short: to see that it works.
        track: Wraps the cases to show progress.
    """
    sides = (256, 512) if quick else SIDES
    counts = (10, 51) if quick else NONZEROS
    seconds = 0.05 if quick else _SECONDS_A_CASE
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        load = seconds_per_load()
        cases = [(side, k) for side in sides for k in counts]
        rows = [_sensing_case(side, k, seconds, load)
                for side, k in track(cases, "sensing", len(cases))]  # fmt: skip
        side = 512 if quick else 2048
        return {
            "machine": f"{platform.machine()}, {platform.system()}",
            "cpu": cpu_name(),
            "window": WINDOW,
            "patterns": 256,
            "cases": rows,
            "lapped": _lapped_case(side, seconds),
            "threads": _threads_case(side, seconds),
        }
    finally:
        torch.set_num_threads(before)


def _sensing_case(side: int, k: int, seconds: float, load: float) -> dict[str, Any]:
    image = random_image(side)
    phi = random_patterns(256, k)
    contestants = sensing_contestants(phi)
    exact = _blocks(torch.from_numpy(image)).numpy().astype(np.float64)
    exact = (exact @ phi.reshape(256, -1).T.astype(np.float64)).astype(np.int64)
    for name, sense in contestants.items():
        y = np.asarray(sense(image))
        y = y.reshape(256, -1).T if name == ADD_ONLY else y
        if not np.array_equal(y, exact):
            raise TersenseError(f"{name} gave other integers than the exact product")
    times = race(
        {name: lambda s=sense: s(image) for name, sense in contestants.items()},  # type: ignore[misc]
        seconds,
        time.process_time,
        turn=seconds / 50,
    )
    own = times[ADD_ONLY]
    copied, written = (
        np.empty_like(image),
        np.empty((256, len(exact)), Patterns(phi, WINDOW).measurement_dtype),
    )

    def read_and_write() -> None:
        np.copyto(copied, image)
        written.fill(0)

    memory = min(_timed(read_and_write) for _ in range(9))
    return {
        "side": side,
        "nonzeros": k,
        "exact": True,
        "seconds": times,
        "ratios": {name: value / own for name, value in times.items() if name != ADD_ONLY},
        "megapixels_per_second": side * side / own / 1e6,
        "load_bound_seconds": load * 256 * k * len(exact) / 64,
        "memory_bound_seconds": memory,
    }


def _lapped_case(side: int, seconds: float) -> dict[str, Any]:
    """Compare throughput per measurement: S = 16 with 64 patterns against S = 32 with 256."""
    image = random_image(side)
    block = AddOnlySensor(random_patterns(256, 51), WINDOW)
    lapped = AddOnlySensor(random_patterns(64, 51), WINDOW // 2)
    runs = {"block": lambda: block(image), "lapped": lambda: lapped(image)}
    times = race(runs, seconds, time.process_time, turn=seconds / 50)
    return {
        "side": side,
        "seconds": times,
        "throughput_ratio": times["block"] / times["lapped"],
    }


def _threads_case(side: int, seconds: float) -> dict[str, Any]:
    """Compare one thread with two, by the clock on the wall: sharing an image, or one each.

    Results are dropped at once. To keep them all would measure how fast the system finds memory.
    """
    images = [random_image(side) for _ in range(_STREAM)]
    sensor = AddOnlySensor(random_patterns(256, 51), WINDOW)

    def sense(part: list[NDArray[np.uint8]], threads: int = 1) -> None:
        for image in part:
            sensor(image, threads)

    with ThreadPoolExecutor(2) as pool:
        runs = {
            "one": lambda: sense(images),
            "shared": lambda: sense(images, threads=2),
            "one each": lambda: list(pool.map(lambda image: sense([image]), images)),
        }
        times = race(runs, 2 * seconds)
    return {
        "side": side,
        "seconds": {name: value / _STREAM for name, value in times.items()},
        "speedup_shared": times["one"] / times["shared"],
        "speedup_stream": times["one"] / times["one each"],
    }


def seconds_per_load() -> float:
    """Measure how long it takes to add 64 neighboring pixels that lie in the nearest cache."""
    phi = np.zeros((1, WINDOW, WINDOW), np.int8)
    phi[0, :8, ::2] = 1  # 128 pixels, the same ones for all patterns
    few, many = AddOnlySensor(phi, WINDOW), AddOnlySensor(np.repeat(phi, 65, axis=0), WINDOW)
    image = random_image(WINDOW * 8)  # 64 windows
    runs = {"few": lambda: few(image), "many": lambda: many(image)}
    least = {name: min(_timed(run) for _ in range(200)) for name, run in runs.items()}
    return max(0.0, least["many"] - least["few"]) / (64 * 128)


def _timed(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def random_image(side: int) -> NDArray[np.uint8]:
    """Return side×side random pixels, the same ones every time."""
    return np.random.default_rng(side).integers(0, 256, (side, side), dtype=np.uint8)
