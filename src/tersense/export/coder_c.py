"""The coder of a sensor in freestanding C99: its terms, and images to try it with.

The code is the same for every camera and lies in `firmware/coder`.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tersense.export.arithmetic import c_numbers
from tersense.export.coder import GRID, CodedImage, term_memory
from tersense.export.guide import fill_guide
from tersense.measurements.rice import FRACTION_BITS, KEPT, RiceCoder

SOURCES = Path(__file__).parent / "firmware/coder"


def write_coder(
    coder: RiceCoder, images: Sequence[CodedImage], quantized: bool, folder: Path
) -> tuple[dict[str, Any], str]:
    """Write a folder with the coder; return what the manifest and README.md tell of it.

    Args:
        coder: Of the camera.
        images: To try it with, of `GRID` windows each.
        quantized: Whether it codes the codes of a quantizer.
        folder: A new one.
    """
    folder.mkdir()
    for source in sorted(SOURCES.iterdir()):
        shutil.copyfile(source, folder / source.name)
    memory = term_memory(coder)
    texts = {
        "code.h": _header(coder, len(memory), quantized),
        "code.c": _table(memory),
        "streams.h": _STREAMS_HEADER.format(windows=GRID[0] * GRID[1]),
        "streams.c": _streams(images),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii", newline="\n")
    word = _word_bits(coder) // 8
    ram = word * (coder.rows + KEPT + 2) + (28 if word == 4 else 32)  # aligned to words
    told = {
        "name": coder.details["name"],
        "bits": coder.bits,
        "table_bytes": f"{2 * len(memory):,}",
        "terms": f"{sum(map(len, coder.terms)) / coder.rows:.1f}",
        "ram": f"{ram:,}",
        "counts": _COUNTED if coder.counted else "",
        "mean": " 100" if coder.counted else "",
    }
    return coder.details | {"table_bytes": 2 * len(memory)}, fill_guide("coder_c", told)


_COUNTED = """
A window begins with its count, which `tersense_spend` of `adaptive/` decides; the number that
`coder` is given is the measurements per window, on average.
"""


def _word_bits(coder: RiceCoder) -> int:
    """Return the bits of a word that holds every sum of terms."""
    return 32 if coder.bits + FRACTION_BITS <= 32 else 64


def _header(coder: RiceCoder, terms: int, quantized: bool) -> str:
    counted = f"#define TERSENSE_CODED_COUNT_BITS {coder.count_bits}\n" if coder.counted else ""
    return f"""\
/* The code of this camera: its sizes and terms. */
#ifndef TERSENSE_CODE_H
#define TERSENSE_CODE_H

#include "tables.h"

#define TERSENSE_CODED_BITS {coder.bits}
#define TERSENSE_KEPT {KEPT}
{counted}
typedef {"tersense_code" if quantized else "tersense_value"} tersense_coded;
typedef uint{_word_bits(coder)}_t tersense_word;

/* {{last of its row, minus, weight (3 bits), place (5 bits)}}, row after row. */
extern const uint16_t tersense_terms[{terms}];

#endif
"""


def _table(memory: list[int]) -> str:
    return f"""\
#include "code.h"

const uint16_t tersense_terms[{len(memory)}] = {{
{c_numbers(memory)}
}};
"""


_STREAMS_HEADER = """\
/* Images to try the coder with, and the bytes that Python made of them. */
#ifndef TERSENSE_STREAMS_H
#define TERSENSE_STREAMS_H

#include <stddef.h>

#include "code.h"

#define STREAM_WINDOWS {windows}

typedef struct {{
    const tersense_coded *values; /* those that are coded, window after window */
    uint16_t counts[STREAM_WINDOWS];
    const uint8_t *bytes;
    size_t size;
}} test_stream;

extern const unsigned stream_count;
extern const test_stream streams[];

#endif
"""


def _streams(images: Sequence[CodedImage]) -> str:
    arrays, entries = [], []
    for k, image in enumerate(images):
        whole = np.full(GRID, len(image.values))
        counts = c_numbers((whole if image.counts is None else image.counts).flat)
        arrays.append(
            f"static const tersense_coded values_{k}[] = {{\n{c_numbers(image.given)}\n}};\n\n"
            f"static const uint8_t bytes_{k}[] = {{\n{c_numbers(image.stream)}\n}};\n"
        )
        entries.append(f"{{values_{k}, {{\n{counts}\n}}, bytes_{k}, sizeof bytes_{k}}}")
    joined, listed = "\n".join(arrays), ",\n".join(entries)
    return f"""\
#include "streams.h"

{joined}
const unsigned stream_count = {len(images)}u;

const test_stream streams[] = {{
{listed}
}};
"""
