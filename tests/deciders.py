"""Cameras with random decisions, and ways to run the decisions that were exported."""

import re
import subprocess

import numpy as np
import torch

from cameras import random_camera
from tersense.reconstruction.allocation.decision import IntegerDecision
from tools import run_tool

LEVELS = (3, 5, 8, 13, 20)


def random_decision(levels=LEVELS, seed=0, second=127, shift=5, fall=None):
    """Build a decision of random weights; how scores vary, `second` and `shift` say.

    With `fall`, all steps score alike but for a few, and each so much less than the one before: the
    steps of windows compete, as they do in a decision that was trained.
    """
    decision, random = IntegerDecision(levels[-1], levels), np.random.default_rng(seed)
    tops = {"prediction": 127, "first": 127, "second": second, "around": 31}
    for name, buffer in decision.named_buffers():
        top = tops.get(name, 9000)
        values = random.integers(-top, top + 1, buffer.shape)
        buffer.copy_(torch.from_numpy(np.full(buffer.shape, shift) if name == "shift" else values))
    if fall is not None:
        few = random.integers(-1, 2, decision.second.shape)
        decision.second.copy_(decision.second[:, :1].abs() + torch.from_numpy(few))
        falling = -(fall << shift) * torch.arange(decision.second.shape[1])
        decision.second_bias.copy_(falling.expand_as(decision.second_bias))
    first = decision.prediction.shape[1]
    decision.prediction[:first] = decision.prediction[:first].tril(-1)  # from rows before only
    decision.check()
    return decision


def deciding_camera(levels=LEVELS, window=8, stride=8, density=0.3, **options):
    """Build a camera with random patterns, network and decision."""
    imager = random_camera(levels[-1], window, stride, density)
    imager.camera.decision = random_decision(levels, **options)
    return imager


def run_c(program, imager, frames):
    """Give frames to `decider -`; return the scores (windows, K − 1) and counts of all windows."""
    kind = np.int16 if imager.patterns.accumulator_bits <= 16 else np.int32
    sent = b"".join(
        np.array([*frame.y.shape[:2], *frame.order], np.int32).tobytes()
        + b"".join(np.int32(len(y)).tobytes() + y.astype(kind).tobytes() for y in frame.values)
        for frame in frames
    )
    done = subprocess.run([program, "-"], input=sent, capture_output=True, timeout=3600)
    assert done.returncode == 0, done.stderr.decode()
    words, place, scores, counts = np.frombuffer(done.stdout, np.int16), 0, [], []
    steps = len(imager.camera.decision.levels) - 1
    for frame in frames:
        windows = frame.y[..., 0].size
        end = place + windows * steps
        scores.append(words[place:end].reshape(windows, steps))
        counts.append(words[end : end + windows].view(np.uint16))
        place = end + windows
    assert place == len(words)
    return np.concatenate(scores), np.concatenate(counts)


def build_decider(folder):
    """Compile the exported testbench of a folder `adaptive`."""
    command = "iverilog -g2005 -Wall -o sim *.v ../tersense_rom.v 2>&1"
    warned = run_tool(folder, "sh", "-c", command)
    assert warned == ""


def simulate_decider(folder, stall=50, seed=1):
    """Run the testbench; return frames, windows and clocks."""
    printed = run_tool(folder, "vvp", "sim", f"+stall={stall}", f"+seed={seed}")
    verdict = re.search(r"PASS: (\d+) frames, (\d+) windows, (\d+) clocks", printed)
    assert verdict, printed
    return tuple(map(int, verdict.groups()))
