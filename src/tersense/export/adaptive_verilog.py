"""The decision of a sensor as synthesizable Verilog-2005: its memories, and frames to try it with.

The sources in `rtl/adaptive` are the same for every camera. The weights lie in one memory in the
order in which the only multiplier needs them, the biases in another.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch

from tersense import __version__
from tersense.export.adaptive import Frame, Sizes, frame_words, make_frames
from tersense.export.guide import fill_guide
from tersense.export.microcode import Memory, write_mem, write_rom, write_sizes
from tersense.models.imager import Imager
from tersense.reconstruction.allocation.decision import HIDDEN, SCORE_BITS, IntegerDecision

RTL = Path(__file__).parent / "rtl/adaptive"
_ENDS_GROUP = 1 << 8  # beside the last weight of a row
_ROW_CLOCKS = 6  # of a row, besides one a weight
_PLACES = 5  # whose logarithms are gathered: a window and those around it
_GATHER_CLOCKS = 4  # of that, besides one a logarithm
_NET_CLOCKS = 8  # to find a net
_UNIT_CLOCKS = 5  # of a number of a net, besides one a weight and its shift
_WALK_CLOCKS = 4  # of a walk over the scores, besides one a score
_SHARE_CLOCKS = 12  # to find how far scores are drawn to their mean


def write_decision(
    imager: Imager, decision: IntegerDecision, folder: Path, width: int, height: int
) -> tuple[dict[str, Any], str]:
    """Write a folder with the decision; return what the manifest and README.md tell of it."""
    folder.mkdir()
    for source in sorted(RTL.glob("*.v")):
        shutil.copyfile(source, folder / source.name)
    sizes = Sizes.of(decision, imager)
    weights, biases = pack(decision)
    write_rom(folder, "weights", weights.words, weights.bits)
    write_rom(folder, "biases", biases.words, biases.bits)
    y_bits = imager.patterns.accumulator_bits
    values = {
        "model": " ".join(imager.name.encode("ascii", "replace").decode().split()),
        "version": __version__,
        "phi": imager.patterns.hash,
        "width": width,
        "height": height,
        "stride": imager.patterns.stride,
        "last_level": decision.levels[-1],
        "count_bits": sizes.count_bits,
        "count_top": sizes.count_bits - 1,
        "y_bits": y_bits,
        "y_top": y_bits - 1,
        "first_rows": sizes.first_rows,
        "levels": len(decision.levels),
        "hidden": HIDDEN,
        "sum_bits": sizes.sum_bits,
        "operand_bits": max(y_bits, sizes.operand_bits),
        "acc_bits": max(sizes.acc_bits, biases.bits),
        "bias_bits": biases.bits,
        "weights": len(weights.words),
        "biases": len(biases.words),
        "level_list": ", ".join(f"{sizes.count_bits}'d{n}" for n in reversed(decision.levels)),
    }
    template = Template((RTL / "decider.v.template").read_text(encoding="ascii"))
    (folder / "decider.v").write_text(template.substitute(values), encoding="ascii")
    write_frames(folder, imager, decision, make_frames(imager, decision))
    details = _details(decision, imager, (weights, biases), width, height, sizes.log_bits)
    details["clocks_per_window"] = clocks_per_window(decision, sizes.sum_bits)
    across = imager.geometry.grid(height, width)[1]
    tail = row_clocks(decision) + sizes.sum_bits + (across + 1) * score_clocks(decision)
    tails = {"across_more": across + 1, "tail_clocks": f"{tail:,}"}
    return details, fill_guide("adaptive_verilog", values | tails | _figures(decision, details))


def pack(decision: IntegerDecision) -> tuple[Memory, Memory]:
    """Return what the memories of weights and biases hold; see rtl/adaptive/tersense_scores.v."""
    prediction = decision.prediction.numpy().astype(np.int64) & 0xFF
    prediction[np.array(decision.levels) - 1, -1] |= _ENDS_GROUP
    weights, lists = prediction.ravel().tolist(), []
    last = len(decision.levels) - 1
    for k in range(last + 1):
        first = decision.first[k, :, : k + 1]
        if k == last:
            first = torch.cat([first, decision.around], dim=1)
        net = first.flatten().tolist() + decision.second[k].flatten().tolist()
        biases = decision.first_bias[k].tolist() + decision.second_bias[k].tolist()
        lists.append([len(weights), int(decision.shift[k]), *biases])
        weights += [weight & 0xFF for weight in net]
    pointers = [len(lists) + k * len(lists[0]) for k in range(len(lists))]
    words = [*pointers, *(word for words in lists for word in words)]
    largest = max(max(words), -min(words), (1 << 6) - 1)
    return Memory(weights, 9), Memory(words, largest.bit_length() + 1)


def write_frames(
    folder: Path,
    imager: Imager,
    decision: IntegerDecision,
    frames: Sequence[Frame],
) -> None:
    """Write what the testbench reads: measurements, orders, scores and counts; all of one size."""
    scores, counts = frame_words(decision, frames)
    values = np.concatenate([y for frame in frames for y in frame.values])
    h, w = frames[0].y.shape[:2]
    y_bits = imager.patterns.accumulator_bits
    count_bits = decision.levels[-1].bit_length()
    write_mem(folder / "test_values.mem", values, y_bits)
    write_mem(folder / "test_known.mem", np.ravel([frame.rows for frame in frames]), count_bits)
    write_mem(folder / "test_orders.mem", np.ravel([frame.order for frame in frames]), 32)
    write_mem(folder / "test_scores.mem", scores.ravel(), SCORE_BITS)
    write_mem(folder / "test_counts.mem", counts, count_bits)
    sizes = {
        "WIDTH": w * imager.patterns.stride,
        "HEIGHT": h * imager.patterns.stride,
        "WINDOWS": h * w,
        "FRAMES": len(frames),
        "VALUES": len(values),  # of all frames
        "SCORES": scores.size,  # of all frames
        "STEPS": scores.shape[1],
        "Y_BITS": y_bits,
        "COUNT_BITS": count_bits,
        "BUDGET_BITS": (h * w * decision.levels[-1]).bit_length(),
        "PATIENCE": 20
        * (h * w * clocks_per_window(decision, 32) + clocks_per_frame(decision, h * w)),
    }
    write_sizes(folder / "test_sizes.vh", sizes)


def clocks_per_window(decision: IntegerDecision, sum_bits: int) -> int:
    """Return how long the scores of a window take at most, all rows and groups known."""
    groups, rows = len(decision.levels), len(decision.prediction)
    logs = sum_bits * groups
    return rows * row_clocks(decision) + logs + score_clocks(decision)


def score_clocks(decision: IntegerDecision) -> int:
    """Return how long the scores of a window take at most, once all logarithms are there."""
    groups, steps = len(decision.levels), len(decision.levels) - 1
    gathered = _PLACES * groups + _GATHER_CLOCKS
    hidden = HIDDEN * (2 * groups + _UNIT_CLOCKS)
    shift = int(decision.shift[-1])
    return gathered + _NET_CLOCKS + hidden + steps * (HIDDEN + shift + _UNIT_CLOCKS + 1)


def row_clocks(decision: IntegerDecision) -> int:
    """Return how long a measurement takes; the last one of a group a little longer."""
    return int(decision.prediction.shape[1]) + _ROW_CLOCKS


def clocks_per_frame(decision: IntegerDecision, windows: int) -> int:
    """Return how long counts take after the last score, if nobody makes them wait."""
    steps, bits = len(decision.levels) - 1, decision.levels[-1].bit_length()
    walks = 1 + SCORE_BITS + bits
    means = steps * (2 * (windows + _WALK_CLOCKS) + SCORE_BITS) + _SHARE_CLOCKS
    return means + walks * (steps * windows + _WALK_CLOCKS) + windows * (steps + _WALK_CLOCKS)


def _details(
    decision: IntegerDecision,
    imager: Imager,
    memories: tuple[Memory, Memory],
    width: int,
    height: int,
    log_bits: int,
) -> dict[str, Any]:
    h, w = imager.geometry.grid(height, width)
    return {
        "levels": list(decision.levels),
        "windows": h * w,
        "clocks_per_frame": clocks_per_frame(decision, h * w),
        "rom": {
            name: {"words": len(memory.words), "bits": memory.bits}
            for name, memory in zip(("weights", "biases"), memories, strict=True)
        },
        "ram": {
            "scores": {"words": h * w * (len(decision.levels) - 1), "bits": SCORE_BITS},
            "logarithms": {"words": h * w * len(decision.levels), "bits": log_bits},
        },
    }


def _figures(decision: IntegerDecision, details: dict[str, Any]) -> dict[str, Any]:
    """Return what only README.md tells."""
    ram, rom = details["ram"], details["rom"]
    words = ram["scores"]["words"]
    return {
        "rows": len(decision.prediction),
        "levels": ", ".join(map(str, decision.levels)),
        "first_level": decision.levels[0],
        "steps": len(decision.levels) - 1,
        "windows": details["windows"],
        "budget_bits": (details["windows"] * decision.levels[-1]).bit_length(),
        "row_clocks": row_clocks(decision),
        "window_clocks": f"{details['clocks_per_window']:,}",
        "frame_clocks": f"{details['clocks_per_frame']:,}",
        "weight_words": f"{rom['weights']['words']:,}",
        "bias_words": f"{rom['biases']['words']:,}",
        "log_words": f"{ram['logarithms']['words']:,}",
        "log_bits": ram["logarithms"]["bits"],
        "ram_words": f"{words:,}",
        "ram_kib": f"{words * SCORE_BITS / 8192:.1f}",
    }
