"""Firmware: the encoder in freestanding C99, for a microcontroller that has the image.

The code is the same for every camera and lies in `firmware/`; the tables and the test vectors are
written here. Φ is stored by columns: for every pixel the rows that add it and those that subtract
it. So a pixel is looked at once, when it arrives, and neither a window nor a line need be kept.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.export.adaptive import require_decision
from tersense.export.adaptive_c import tell_decision, write_decision
from tersense.export.arithmetic import (
    Quantizer,
    RowQuantizer,
    c_number,
    c_numbers,
    make_quantizer,
)
from tersense.export.base import Outcome
from tersense.export.coder import make_coder, make_images
from tersense.export.coder_c import write_coder
from tersense.export.guide import fill_guide
from tersense.export.test_vectors import Vectors, cut_windows, make_test_images, measure
from tersense.io.deep import USUAL
from tersense.models.imager import Imager
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

_SOURCES = Path(__file__).parent / "firmware"
_WIDTH, _HEIGHT = 640, 480  # of the image that the figures of RAM are told for


def write(
    imager: Imager,
    vectors: Vectors,
    folder: Path,
    *,
    depth: int = USUAL,
    bits: int | None = None,
    step: int | None = None,
    steps: Sequence[float] | None = None,
    offsets: Sequence[int] = (),
    adaptive: bool = False,
    coder: str | None = None,
) -> Outcome:
    """Write the encoder, its tables, and a program that tries it.

    Args:
        imager: The camera.
        vectors: Its test vectors.
        folder: Where the files go.
        depth: Bits per pixel, 8 to 16.
        bits: Of the codes that measurements are rounded to; None for exact ones only.
        step: What one unit of a code stands for; None for the smallest that clips nothing.
        steps: Instead, one for each row of Φ.
        offsets: One for each row of Φ, with the steps.
        adaptive: Also write the decision that spends a budget where it pays, in `adaptive`.
        coder: Also write the coder of this name, in `coder`; with counts where `adaptive`.
    """
    patterns = imager.patterns
    # What is sent may be rounded: the decision sees the sums.
    decision = require_decision(imager, depth, None if coder else bits) if adaptive else None
    quantizer = make_quantizer(patterns, depth, bits, step, steps, offsets)
    code = make_coder(patterns, depth, quantizer, adaptive, coder) if coder else None
    for source in sorted(path for path in _SOURCES.iterdir() if path.is_file()):
        shutil.copyfile(source, folder / source.name)
    few = vectors.short()
    picture = make_test_images(patterns, vectors, depth)[0]
    texts = {
        "tables.h": _tables_header(patterns, depth, quantizer),
        "tables.c": _tables(patterns) + (quantizer_table(quantizer) if quantizer else ""),
        "vectors.c": _vectors(patterns, few, picture, quantizer),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii", newline="\n")
    tables = sum(table.nbytes for table in (*columns(patterns), _line_starts(patterns)))
    if isinstance(quantizer, RowQuantizer):
        tables += sum(table.nbytes for table in _row_tables(quantizer).values())
    value = np.dtype(_value_type(patterns, depth))
    details: dict[str, Any] = {
        "language": "C99, freestanding",
        "table_bytes": tables,
        "measurement_bits": 8 * value.itemsize,
        "vectors": len(few),
    }
    if quantizer:
        details["quantizer"] = quantizer.details
    geometry = Geometry(patterns.window, patterns.stride)
    across = geometry.grid(1, _WIDTH)[1]
    stripe = across * geometry.cells * len(patterns) * value.itemsize
    facts = {
        "tables in flash": f"{tables / 1024:.2f} KiB",
        "RAM": f"{value.itemsize * len(patterns)} bytes of measurements; pixels need not be kept",
        "RAM, line by line": f"{stripe:,} bytes for images {_WIDTH} pixels wide",
        **({"codes": str(quantizer)} if quantizer else {}),
        "try it": "make test, make cortex-m4",
    }
    rounding = "`tersense_quantize(row, y)` | the code of a measurement"
    span = (patterns.window - geometry.offset) - 1
    numbers = {
        "depth": depth,
        "white": 2**depth - 1,
        "window": patterns.window,
        "rows": len(patterns),
        "across": across,
        "stripe": f"{stripe:,}",
        "sample": _sample_type(depth),
        "value": f"{value.name}_t",
        "quantizer_row": f"| {rounding}: {quantizer}, half rounded up |\n" if quantizer else "",
        "first_line": span,
        "second_line": span + patterns.stride,
        "table_bytes": f"{tables:,}",
        "window_bytes": value.itemsize * len(patterns),
        "additions": f"{patterns.nonzeros:,}",
    }
    guide = fill_guide("c", numbers)
    if decision:
        details["adaptive"] = write_decision(imager, decision, folder / "adaptive")
        guide += tell_decision(imager, decision, _WIDTH, _HEIGHT)
        facts["decision"] = (
            f"{details['adaptive']['table_bytes']:,} bytes of tables; "
            f"{details['adaptive']['score_bytes_per_window']} bytes of RAM per window for scores"
        )
    if code:
        tried = make_images(code, patterns, depth, quantizer)
        details["coder"], text = write_coder(code, tried, bool(quantizer), folder / "coder")
        guide, facts["coder"] = guide + text, f"{details['coder']['table_bytes']:,} bytes of tables"
    return Outcome(details, facts, guide)


def columns(patterns: Patterns) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return Φ by columns.

    Returns:
        How many rows have +1 and how many −1, (B², 2), and which rows these are, one pixel after
        the other, those with +1 first. Both in the narrowest unsigned type.
    """
    by_pixel = patterns.phi.reshape(len(patterns), -1).T
    counts = np.stack([(by_pixel > 0).sum(axis=1), (by_pixel < 0).sum(axis=1)], axis=1)
    rows = [np.flatnonzero(column == sign) for column in by_pixel for sign in (1, -1)]
    row_type = np.min_scalar_type(len(patterns) - 1)
    return counts.astype(np.min_scalar_type(counts.max())), np.concatenate(rows).astype(row_type)


def _line_starts(patterns: Patterns) -> NDArray[Any]:
    """Return where in the list of rows each line of a window begins, (B,)."""
    per_line = np.count_nonzero(patterns.phi, axis=(0, 2))
    starts = np.cumsum([0, *per_line[:-1]])
    return starts.astype(np.min_scalar_type(int(starts[-1])))


def _sample_type(depth: int) -> str:
    return "uint8_t" if depth == USUAL else "uint16_t"


def _value_type(patterns: Patterns, depth: int) -> str:
    return "int16" if patterns.accumulator_bits_at(depth) <= 16 else "int32"


def _tables_header(
    patterns: Patterns, depth: int, quantizer: Quantizer | RowQuantizer | None
) -> str:
    counts, rows = columns(patterns)
    starts = _line_starts(patterns)
    geometry = Geometry(patterns.window, patterns.stride)
    return f"""\
/* The camera {patterns.hash}: its sizes and tables. */
#ifndef TERSENSE_TABLES_H
#define TERSENSE_TABLES_H

#include <stdint.h>

#define TERSENSE_WINDOW {geometry.window}
#define TERSENSE_STRIDE {geometry.stride}
#define TERSENSE_OFFSET {geometry.offset}
#define TERSENSE_ROWS {len(patterns)}
#define TERSENSE_DEPTH {depth}

typedef {_sample_type(depth)} tersense_sample;
typedef {_c_type(counts.dtype)} tersense_count;
typedef {_c_type(rows.dtype)} tersense_row;
typedef {_value_type(patterns, depth)}_t tersense_value;

extern const tersense_count tersense_counts[{counts.size}];
extern const tersense_row tersense_rows[{max(1, rows.size)}];
extern const {_c_type(starts.dtype)} tersense_lines[{starts.size}];
{quantizer_header(quantizer) if quantizer else ""}
#endif
"""


def quantizer_header(quantizer: Quantizer | RowQuantizer) -> str:
    """Return the constants of the quantizer; the dividend is unsigned and holds every sum."""
    code = next(size for size in (8, 16, 32) if quantizer.bits <= size)
    if isinstance(quantizer, RowQuantizer):
        farthest = quantizer.largest_reach + max(map(abs, quantizer.middles))
        width = 64 if farthest >= 2**31 else 32  # twice the reach is a dividend
        tables = "".join(
            f"extern const {_c_type(table.dtype)} tersense_{name}[{len(table)}];\n"
            for name, table in _row_tables(quantizer).items()
        )
        return f"""
/* Codes: see tersense_quantize. */
#define TERSENSE_CODE_BITS {quantizer.bits}
#define TERSENSE_LARGEST_CODE {quantizer.largest_code}

typedef int{width}_t tersense_reach;
typedef uint{width}_t tersense_dividend;
typedef int{code}_t tersense_code;
{tables}"""
    width = 64 if quantizer.dividend_bits > 32 else 32
    return f"""
/* Codes: see tersense_quantize. */
#define TERSENSE_CODE_BITS {quantizer.bits}
#define TERSENSE_STEP UINT{width}_C({quantizer.step})
#define TERSENSE_LOW ({c_number(quantizer.low)})
#define TERSENSE_HIGH {quantizer.high}
#define TERSENSE_BIAS UINT{width}_C({quantizer.bias})
#define TERSENSE_ZERO {quantizer.zero}

typedef uint{width}_t tersense_dividend;
typedef int{code}_t tersense_code;
"""


def quantizer_table(quantizer: Quantizer | RowQuantizer) -> str:
    """Return steps and middles of the rows, where they have their own."""
    if isinstance(quantizer, Quantizer):
        return ""
    return "".join(
        f"""
const {_c_type(table.dtype)} tersense_{name}[{len(table)}] = {{
{c_numbers(table)}
}};
"""
        for name, table in _row_tables(quantizer).items()
    )


def _row_tables(quantizer: RowQuantizer) -> dict[str, NDArray[Any]]:
    """Return steps and middles in the narrowest types that hold them."""
    largest = max(map(abs, quantizer.middles))
    return {
        "steps": np.array(quantizer.steps, np.min_scalar_type(max(quantizer.steps))),
        "middles": np.array(quantizer.middles, np.min_scalar_type(-largest - 1)),
    }


def _tables(patterns: Patterns) -> str:
    counts, rows = columns(patterns)
    starts = _line_starts(patterns)
    return f"""\
#include "tables.h"

const tersense_count tersense_counts[{counts.size}] = {{
{c_numbers(counts.flat)}
}};

const tersense_row tersense_rows[{max(1, rows.size)}] = {{
{c_numbers(rows if rows.size else [0])}
}};

const {_c_type(starts.dtype)} tersense_lines[{starts.size}] = {{
{c_numbers(starts)}
}};
"""


def _vectors(
    patterns: Patterns,
    vectors: Vectors,
    picture: NDArray[Any],
    quantizer: Quantizer | RowQuantizer | None,
) -> str:
    geometry = Geometry(patterns.window, patterns.stride)
    entries = []
    for name, pixels, y in zip(vectors.names, vectors.pixels, vectors.measurements, strict=True):
        lists = [pixels.flat, y, *([quantizer.codes(y)] if quantizer else [])]
        listed = ",\n".join(f"{{\n{c_numbers(values)}\n}}" for values in lists)
        entries.append(f'{{"{name}",\n{listed}}}')
    joined = ",\n".join(entries)
    return f"""\
#include "vectors.h"

const unsigned vector_count = {len(vectors)}u;

const test_vector vectors[] = {{
{joined}
}};

const unsigned picture_width = {picture.shape[1]}u, picture_height = {picture.shape[0]}u;

const tersense_sample picture[] = {{
{c_numbers(picture.flat)}
}};

const tersense_value picture_y[] = {{
{c_numbers(measure(patterns, cut_windows(geometry, picture)).flat)}
}};
"""


def _c_type(dtype: np.dtype[Any]) -> str:
    return f"{dtype.name}_t"
