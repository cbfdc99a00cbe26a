"""The coder of a sensor as synthesizable Verilog-2005: its terms, and images to try it with.

The sources in `rtl/coder` are the same for every camera.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from tersense import __version__
from tersense.export.coder import MEMORY_BITS, CodedImage, term_memory
from tersense.export.guide import fill_guide
from tersense.export.microcode import write_mem, write_rom, write_sizes
from tersense.measurements.rice import KEPT, MOST_ONES, RiceCoder
from tersense.models.imager import Imager

RTL = Path(__file__).parent / "rtl/coder"
_VALUE_CLOCKS = 3  # of a value, besides one a term


def write_coder(
    imager: Imager,
    coder: RiceCoder,
    images: Sequence[CodedImage],
    folder: Path,
    width: int,
    height: int,
) -> tuple[dict[str, Any], str]:
    """Write a folder with the coder; return what the manifest and README.md tell of it.

    Args:
        imager: The camera.
        coder: Its coder.
        images: To try it with, of `GRID` windows each.
        folder: A new one.
        width: Of the images that the coder is set up for, in pixels.
        height: The same, downwards.
    """
    folder.mkdir()
    for source in sorted(RTL.glob("*.v")):
        shutil.copyfile(source, folder / source.name)
    memory = term_memory(coder)
    write_rom(folder, "terms", memory, MEMORY_BITS)
    counted = {
        "count_ports": _COUNT_PORTS.format(coder.count_bits - 1) if coder.counted else "",
        "count_valid": "count_valid" if coder.counted else "1'b0",
        "count_ready": "count_ready" if coder.counted else "",
        "count": "count" if coder.counted else "1'b0",
        "counts": _COUNTED.format(coder.count_bits - 1) if coder.counted else "",
        "defined": "-DCOUNTED " if coder.counted else "",
    }
    values = counted | {
        "model": " ".join(imager.name.encode("ascii", "replace").decode().split()),
        "version": __version__,
        "phi": imager.patterns.hash,
        "width": width,
        "height": height,
        "stride": imager.patterns.stride,
        "rows": coder.rows,
        "bits": coder.bits,
        "top": coder.bits - 1,
        "count_bits": coder.count_bits,
        "terms": len(memory),
    }
    template = Template((RTL / "coder.v.template").read_text(encoding="ascii"))
    (folder / "coder.v").write_text(template.substitute(values), encoding="ascii")
    write_images(folder, coder, images, imager.patterns.stride)
    clocks = len(memory) + _VALUE_CLOCKS * coder.rows
    figures = {
        "window_clocks": f"{clocks:,}",
        "term_words": f"{len(memory):,}",
        "mean_bits": coder.bits + 3,
        "kept": KEPT,
        "longest": MOST_ONES + coder.bits,
    }
    details = coder.details | {
        "clocks_per_window": clocks,
        "rom": {"words": len(memory), "bits": MEMORY_BITS},
        "ram": {"words": coder.rows, "bits": coder.bits + 3},
    }
    return details, fill_guide("coder_verilog", values | figures)


_COUNT_PORTS = """
    input  wire count_valid,
    output wire count_ready,
    input  wire [{}:0] count,
"""

_COUNTED = (
    "| `count_valid`, `count_ready`, `count[{}:0]` | in | how many values the next window has; "
    "taken before them |\n"
)


def write_images(folder: Path, coder: RiceCoder, images: Sequence[CodedImage], stride: int) -> None:
    """Write what the testbench reads: values, counts and bytes; all images of one size."""
    grid = images[0].values.shape[1:]
    whole = np.full(grid, coder.rows)
    counts = [whole if image.counts is None else image.counts for image in images]
    values = np.concatenate([image.given for image in images])
    streams = [
        byte | 1 << 8 if k == len(image.stream) - 1 else byte
        for image in images
        for k, byte in enumerate(image.stream)
    ]
    write_mem(folder / "test_values.mem", values, coder.bits)
    write_mem(folder / "test_counts.mem", np.concatenate(counts, axis=None), 16)
    write_mem(folder / "test_bytes.mem", streams, 9)
    sizes = {
        "WIDTH": grid[1] * stride,
        "HEIGHT": grid[0] * stride,
        "WINDOWS": grid[0] * grid[1] * len(images),  # of all images
        "VALUES": len(values),  # of all images
        "BYTES": len(streams),  # of all images
        "BITS": coder.bits,
        "COUNT_BITS": coder.count_bits,
    }
    write_sizes(folder / "test_sizes.vh", sizes)
