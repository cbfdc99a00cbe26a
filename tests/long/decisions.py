"""Let exported C and Verilog decide 100,000 random and 1,000 real windows, and compare with Python.

Every count is compared, and every score. C takes all windows with the given model; a simulator is
slow, so Verilog takes as many as asked for.

Example: PYTHONPATH=tests python -m long.decisions -m MODEL --random 100000 --real 1000
Needs: gcc, iverilog
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from skimage import color, data

import tersense
from deciders import build_decider, deciding_camera, run_c, simulate_decider
from tersense.export.adaptive import Frame, frame_words, random_frames
from tersense.export.adaptive_verilog import write_frames
from tersense.export.arithmetic import limits
from tersense.export.base import export
from tools import run_tool

SHAPE = (10, 10)  # windows of a frame
PICTURES = ("camera", "astronaut", "coffee", "chelsea", "brick", "grass", "gravel", "rocket")


def real_frames(imager, count, random):
    """Cut frames out of photographs, with any budget and any mode."""
    side, frames = [n * imager.geometry.stride for n in SHAPE], []
    decision, rows = imager.camera.decision, imager.rows
    for number in range(count):
        image = getattr(data, PICTURES[number % len(PICTURES)])()
        gray = (color.rgb2gray(image) * 255).astype(np.uint8) if image.ndim == 3 else image
        gray = np.tile(gray, [-(-n // have) for n, have in zip(side, gray.shape, strict=True)])
        top, left = (
            random.integers(have - n + 1) for n, have in zip(side, gray.shape, strict=True)
        )
        y = imager.sense(gray[top : top + side[0], left : left + side[1]]).values
        levels = decision.levels[: random.integers(1, len(decision.levels) + 1)]
        counts = random.choice(levels, SHAPE) if number % 2 else None
        least = decision.levels[0] * SHAPE[0] * SHAPE[1] if counts is None else counts.sum()
        budget = int(random.integers(least, rows * SHAPE[0] * SHAPE[1] + 1))
        whole = number % 4 == 1
        frames.append(Frame(np.moveaxis(y, 0, -1).astype(np.int64), counts, budget, whole))
    return frames


def check_c(imager, frames, folder):
    """Compare the scores and counts of C."""
    export("c", imager, folder, adaptive=True)
    run_tool(folder / "adaptive", "make", "test", "sanitize")
    for begin in range(0, len(frames), 100):
        some = frames[begin : begin + 100]
        found = run_c(folder / "adaptive/decider", imager, some)
        for got, expected in zip(found, frame_words(imager.camera.decision, some), strict=True):
            np.testing.assert_array_equal(got, expected)


def check_verilog(imager, frames, folder, seed):
    """Compare the scores and counts of Verilog; return the clocks."""
    export("verilog", imager, folder, adaptive=True)
    clocks = 0
    for begin in range(0, len(frames), 100):
        some = frames[begin : begin + 100]
        write_frames(folder / "adaptive", imager, imager.camera.decision, some)
        build_decider(folder / "adaptive")
        found = simulate_decider(
            folder / "adaptive", stall=10 * (begin // 100 % 6), seed=seed + begin
        )
        if found[0] != len(some):
            raise SystemExit(f"only {found[0]} frames of {len(some)}")
        clocks += found[2]
    return clocks


def run(name, imager, counts, seed):
    """Check some random and some real windows of one camera, in C and in Verilog."""
    random, ends = np.random.default_rng(seed), limits(imager.patterns)
    size = SHAPE[0] * SHAPE[1]
    for language in ("c", "verilog"):
        for kind in ("random", "real"):
            many = -(-counts[language, kind] // size)
            if not many:
                continue
            if kind == "random":
                frames = random_frames(imager.camera.decision, ends, SHAPE, many, random)
            else:
                frames = real_frames(imager, many, random)
            with tempfile.TemporaryDirectory() as temporary:
                folder, started, text = Path(temporary) / "out", time.perf_counter(), ""
                if language == "c":
                    check_c(imager, frames, folder)
                else:
                    text = f", {check_verilog(imager, frames, folder, seed):,} clocks"
            seconds = time.perf_counter() - started
            found = f"{many * size:,} {kind} windows right{text}, {seconds:.0f} s"
            print(f"{name}, {language}: {found}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "-m", "--model", help="with a decision; default: random patterns and weights"
    )
    parser.add_argument("--random", type=int, default=100_000)
    parser.add_argument("--real", type=int, default=1000)
    parser.add_argument("--verilog-random", type=int, default=100_000)
    parser.add_argument("--verilog-real", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    camera = tersense.load(asked.model) if asked.model else deciding_camera(second=9, shift=9)
    wanted = {("c", "random"): asked.random, ("c", "real"): asked.real,
              ("verilog", "random"): asked.verilog_random,
              ("verilog", "real"): asked.verilog_real}  # fmt: skip
    run(camera.name, camera, wanted, asked.seed)
