"""Send 10,000 random frames, three of ten broken, through the AXI4-Stream encoder in a simulator.

Both sides stall at random, each slow or fast for a while; every measurement is compared with
Python. Small windows of several geometries, depths and readouts share the frames.

Example: PYTHONPATH=tests python -m long.frames --frames 10000
Needs: iverilog
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from cameras import random_camera
from streams import build_axis, export_stream, simulate_axis

# m, window, stride, density; (height, width); share of the frames; options
RUNS = [
    ((5, 4, 4, 0.3), (6, 8), 0.5, {}),
    ((6, 4, 4, 0.4), (4, 9), 0.2, {"depth": 12, "bits": 8, "lanes": 2}),
    ((3, 3, 2, 0.4), (3, 4), 0.2, {"depth": 16, "bits": 12, "step": 77}),
    ((1, 1, 1, 1.0), (1, 1), 0.1, {"depth": 10}),
]


def run(frames: int, seed: int) -> None:
    """Simulate all; stop at the first difference."""
    total = 0
    for number, (geometry, size, share, options) in enumerate(RUNS):
        count, rng = round(frames * share), np.random.default_rng([seed, number])
        with tempfile.TemporaryDirectory() as temporary:
            folder, started = Path(temporary) / "out", time.perf_counter()
            stream = export_stream(folder, random_camera(*geometry), rng, count, size, **options)
            build_axis(folder)
            found = simulate_axis(folder, stall=40, seed=seed)
        if found[:2] != (count, sum(stream.broken)):
            raise SystemExit(f"{geometry}, {size}, {options}: {found}")
        seconds = time.perf_counter() - started
        print(
            f"{geometry} on {size}, {options}: {found[0]:,} frames, {found[1]:,} of them broken, "
            f"{found[2]:,} measurements right, {found[3]:,} clocks, {seconds:.0f} s",
            flush=True,
        )
        total += found[0]
    print(f"{total:,} frames, every measurement right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    run(arguments.frames, arguments.seed)
