"""Firmware: the encoder in freestanding C99, for a microcontroller that has the image.

The code is the same for every camera and lies in `firmware/`; the tables and the test vectors are
written here. Φ is stored by columns: for every pixel the rows that add it and those that subtract
it. So a pixel is looked at once, when it arrives, and a window need not be kept.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tersense.export.base import Outcome
from tersense.export.test_vectors import Vectors
from tersense.models.imager import Imager
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

_SOURCES = Path(__file__).parent / "firmware"


def write(imager: Imager, vectors: Vectors, folder: Path) -> Outcome:
    """Write the encoder, its tables, and a program that tries it."""
    patterns = imager.patterns
    for source in sorted(_SOURCES.iterdir()):
        shutil.copyfile(source, folder / source.name)
    few = vectors.short()
    texts = {
        "tables.h": _tables_header(patterns),
        "tables.c": _tables(patterns),
        "vectors.c": _vectors(few),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii", newline="\n")
    counts, rows = columns(patterns)
    value = patterns.measurement_dtype
    details = {
        "language": "C99, freestanding",
        "table_bytes": counts.nbytes + rows.nbytes,
        "measurement_bits": 8 * value.itemsize,
        "vectors": len(few),
    }
    facts = {
        "tables in flash": f"{(counts.nbytes + rows.nbytes) / 1024:.2f} KiB",
        "RAM": f"{value.itemsize * len(patterns)} bytes of measurements; pixels need not be kept",
        "try it": "make test, make cortex-m4",
    }
    return Outcome(details, facts)


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


def _tables_header(patterns: Patterns) -> str:
    counts, rows = columns(patterns)
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

typedef {_c_type(counts.dtype)} tersense_count;
typedef {_c_type(rows.dtype)} tersense_row;
typedef {_c_type(patterns.measurement_dtype)} tersense_value;

extern const tersense_count tersense_counts[{counts.size}];
extern const tersense_row tersense_rows[{max(1, rows.size)}];

#endif
"""


def _tables(patterns: Patterns) -> str:
    counts, rows = columns(patterns)
    return f"""\
#include "tables.h"

const tersense_count tersense_counts[{counts.size}] = {{
{_numbers(counts.flat)}
}};

const tersense_row tersense_rows[{max(1, rows.size)}] = {{
{_numbers(rows if rows.size else [0])}
}};
"""


def _vectors(vectors: Vectors) -> str:
    entries = [
        f'{{"{name}",\n{{\n{_numbers(pixels.flat)}\n}},\n{{\n{_numbers(y)}\n}}}}'
        for name, pixels, y in zip(vectors.names, vectors.pixels, vectors.measurements, strict=True)
    ]
    listed = ",\n".join(entries)
    return f"""\
#include "vectors.h"

const unsigned vector_count = {len(vectors)}u;

const test_vector vectors[] = {{
{listed}
}};
"""


def _c_type(dtype: np.dtype[Any]) -> str:
    return f"{dtype.name}_t"


def _numbers(values: Iterable[Any]) -> str:
    return fill(", ".join(map(str, values)), 96, initial_indent="    ", subsequent_indent="    ")
