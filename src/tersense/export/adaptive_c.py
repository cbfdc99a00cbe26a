"""The decision of a sensor in freestanding C99: tables, and frames to try it with.

The code is the same for every camera and lies in `firmware/adaptive`.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tersense.export.adaptive import FRAME, Frame, Sizes, make_frames
from tersense.export.arithmetic import c_numbers
from tersense.export.guide import fill_guide
from tersense.models.imager import Imager
from tersense.reconstruction.allocation.decision import (
    HIDDEN,
    HIDDEN_SHIFT,
    PREDICTION_SHIFT,
    IntegerDecision,
)

SOURCES = Path(__file__).parent / "firmware/adaptive"
_SCORE_BYTES, _COUNT_BYTES = 2, 2


def write_decision(imager: Imager, decision: IntegerDecision, folder: Path) -> dict[str, Any]:
    """Write a folder with the decision; return what the manifest tells of it."""
    folder.mkdir()
    for source in sorted(SOURCES.iterdir()):
        shutil.copyfile(source, folder / source.name)
    sizes = Sizes.of(decision, imager)
    texts = {
        "decision.h": _header(sizes),
        "decision.c": _tables(decision),
        "frames.h": _FRAMES_HEADER.format(height=FRAME[0], width=FRAME[1]),
        "frames.c": _frames(decision, make_frames(imager, decision)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii", newline="\n")
    return {
        "levels": list(decision.levels),
        "table_bytes": table_bytes(decision),
        "score_bytes_per_window": _SCORE_BYTES * (len(decision.levels) - 1),
    }


def table_bytes(decision: IntegerDecision) -> int:
    """Return what the tables take in flash; a net is padded to whole words."""
    groups = len(decision.levels)
    net = HIDDEN * groups + (groups - 1) * HIDDEN + 4 * (HIDDEN + groups - 1) + 4
    nets = groups * (-(-net // 4) * 4) + decision.around.numel()
    return decision.prediction.numel() + 2 * groups + nets


def _log_bytes(sizes: Sizes) -> int:
    """Return the bytes of the type that holds a logarithm."""
    return -(-sizes.log_bits // 8)


def tell_decision(imager: Imager, decision: IntegerDecision, width: int, height: int) -> str:
    """Return what README.md tells about the decision, for images of this size."""
    down, across = imager.geometry.grid(height, width)
    windows = down * across
    log_bytes = _log_bytes(Sizes.of(decision, imager)) * len(decision.levels) * windows
    steps = len(decision.levels) - 1
    values = {
        "levels": ", ".join(map(str, decision.levels)),
        "first_level": decision.levels[0],
        "steps": steps,
        "windows": windows,
        "down": down,
        "across": across,
        "log_bytes": f"{log_bytes:,}",
        "width": width,
        "height": height,
        "table_bytes": f"{table_bytes(decision):,}",
        "score_bytes": f"{_SCORE_BYTES * steps * windows:,}",
        "count_bytes": f"{_COUNT_BYTES * windows:,}",
    }
    return fill_guide("adaptive_c", values)


def _header(sizes: Sizes) -> str:
    width = 32 if max(sizes.acc_bits, sizes.sum_bits + 1) <= 32 else 64
    return f"""\
/* The decision of this camera: its sizes and tables. */
#ifndef TERSENSE_DECISION_H
#define TERSENSE_DECISION_H

#include "tables.h"

#define TERSENSE_LEVELS {len(sizes.levels)}
#define TERSENSE_STEPS {len(sizes.levels) - 1}
#define TERSENSE_FIRST_ROWS {sizes.first_rows}
#define TERSENSE_HIDDEN {HIDDEN}
#define TERSENSE_PREDICTION_SHIFT {PREDICTION_SHIFT}
#define TERSENSE_HIDDEN_SHIFT {HIDDEN_SHIFT}
#define TERSENSE_COUNT_BITS {sizes.count_bits}

typedef int{width}_t tersense_sum; /* holds whatever this camera can bring about */
typedef uint{8 * _log_bytes(sizes)}_t tersense_log; /* holds the logarithm of what a group adds */

/* For each number of groups that may be known. */
typedef struct {{
    int8_t first[TERSENSE_HIDDEN][TERSENSE_LEVELS];
    int8_t second[TERSENSE_STEPS][TERSENSE_HIDDEN];
    int32_t first_bias[TERSENSE_HIDDEN];
    int32_t second_bias[TERSENSE_STEPS];
    uint8_t shift;
}} tersense_net;

extern const uint16_t tersense_levels[TERSENSE_LEVELS];
extern const int8_t tersense_prediction[TERSENSE_ROWS * TERSENSE_FIRST_ROWS];
extern const tersense_net tersense_nets[TERSENSE_LEVELS];

/* For the windows around one of which all groups are known. */
extern const int8_t tersense_around[TERSENSE_HIDDEN][TERSENSE_LEVELS];

#endif
"""


def _tables(decision: IntegerDecision) -> str:
    nets = ",\n".join(_net(decision, k) for k in range(len(decision.levels)))
    return f"""\
#include "decision.h"

const uint16_t tersense_levels[TERSENSE_LEVELS] = {{
{c_numbers(decision.levels)}
}};

const int8_t tersense_prediction[TERSENSE_ROWS * TERSENSE_FIRST_ROWS] = {{
{c_numbers(decision.prediction.flatten().tolist())}
}};

const tersense_net tersense_nets[TERSENSE_LEVELS] = {{
{nets}
}};

const int8_t tersense_around[TERSENSE_HIDDEN][TERSENSE_LEVELS] = {{
{_rows(decision.around)}
}};
"""


def _net(decision: IntegerDecision, k: int) -> str:
    first, second = _rows(decision.first[k]), _rows(decision.second[k])
    biases = [c_numbers(bias[k].tolist()) for bias in (decision.first_bias, decision.second_bias)]
    return (
        f"{{\n{{\n{first}\n}},\n{{\n{second}\n}},\n{{\n{biases[0]}\n}},\n{{\n{biases[1]}\n}},\n"
        f"{int(decision.shift[k])}\n}}"
    )


def _rows(weights: Tensor) -> str:
    return ",\n".join(f"{{{c_numbers(row).strip()}}}" for row in weights.tolist())


_FRAMES_HEADER = """\
/* Frames to try the decision with, and what Python decided. */
#ifndef TERSENSE_FRAMES_H
#define TERSENSE_FRAMES_H

#include "decide.h"

#define FRAME_HEIGHT {height}
#define FRAME_WIDTH {width}
#define FRAME_WINDOWS (FRAME_HEIGHT * FRAME_WIDTH)

typedef struct {{
    int taken, whole;
    int64_t budget;
    uint16_t known[FRAME_WINDOWS];
    tersense_value y[FRAME_WINDOWS * TERSENSE_ROWS];
    int16_t scores[FRAME_WINDOWS * TERSENSE_STEPS];
    uint16_t counts[FRAME_WINDOWS];
}} test_frame;

extern const unsigned frame_count;
extern const test_frame frames[];

#endif
"""


def _frames(decision: IntegerDecision, frames: Sequence[Frame]) -> str:
    entries = []
    for frame in frames:
        lists = [frame.rows, frame.y, *frame.decide(decision)]
        listed = ",\n".join(f"{{\n{c_numbers(np.ravel(values))}\n}}" for values in lists)
        order = ", ".join(map(str, frame.order))
        entries.append(f"{{{order},\n{listed}}}")
    joined = ",\n".join(entries)
    return f"""\
#include "frames.h"

const unsigned frame_count = {len(frames)}u;

const test_frame frames[] = {{
{joined}
}};
"""
