"""The camera as synthesizable Verilog-2005, with its program and a testbench.

The sources in `rtl/` are the same for every camera; what depends on it are the contents of the
memories (`tersense.export.microcode`) and the parameters that the small module `encoder` sets.
"""

import shutil
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from tersense import __version__
from tersense.errors import TersenseError
from tersense.export.base import Outcome
from tersense.export.microcode import Program, bits_for, compile_program, write_mem, write_rom
from tersense.export.test_vectors import Vectors, cut_windows, measure, photograph
from tersense.io.images import ImageArray
from tersense.models.imager import Imager
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

RTL = Path(__file__).parent / "rtl"
READ_OUT_CLOCKS = 5  # of a window, besides one a measurement
_LARGEST_SIDE = 2**15


def write(
    imager: Imager,
    vectors: Vectors,
    folder: Path,
    *,
    lanes: int = 1,
    width: int = 640,
    height: int = 480,
) -> Outcome:
    """Write sources, memories and testbench.

    Args:
        imager: The camera.
        vectors: Its test vectors.
        folder: Where the files go.
        lanes: Adders side by side; a power of two.
        width: Of the images that the encoder is set up for, in pixels.
        height: The same, downwards.
    """
    if not (1 <= width <= _LARGEST_SIDE and 1 <= height <= _LARGEST_SIDE):
        raise TersenseError(
            f"image sides must be from 1 to {_LARGEST_SIDE} pixels, got {width}×{height}"
        )
    patterns = imager.patterns
    program = compile_program(patterns, lanes)
    for name, memory in program.memories.items():
        write_rom(folder, name, memory.words, memory.bits)
    for source in RTL.glob("*.v"):
        shutil.copyfile(source, folder / source.name)
    _write_encoder(folder / "encoder.v", imager, program, width, height)
    clocks = program.clocks + len(patterns) + READ_OUT_CLOCKS
    write_test(folder, patterns, make_test_images(patterns, vectors), clocks)
    details = _details(patterns, program, clocks, width, height)
    return Outcome(details, _facts(details))


def _write_encoder(path: Path, imager: Imager, program: Program, width: int, height: int) -> None:
    """Write the module that sets the parameters of this camera."""
    patterns = imager.patterns
    template = Template((RTL / "encoder.v.template").read_text(encoding="ascii"))
    values = {
        "model": " ".join(imager.name.encode("ascii", "replace").decode().split()),
        "version": __version__,
        "phi": patterns.hash,
        "width": width,
        "height": height,
        "window": patterns.window,
        "stride": patterns.stride,
        "measurements": len(patterns),
        "acc_bits": patterns.accumulator_bits,
        "top_bit": patterns.accumulator_bits - 1,
        "lanes": program.lanes,
        "steps": len(program.steps.words),
        "count_bits": program.count_bits,
    }
    path.write_text(template.substitute(values), encoding="ascii")


def make_test_images(patterns: Patterns, vectors: Vectors) -> ImageArray:
    """Return images (N, H, W): a photograph, the worst cases in it, all 0 and all 255.

    They are a little larger than one window, and no multiple of the stride.
    """
    geometry = Geometry(patterns.window, patterns.stride)
    B, S = geometry.window, geometry.stride
    begin = -geometry.offset % S  # of the first window that is whole
    background = photograph(begin + B + S - 1, begin + B + S // 2)
    short = vectors.short()
    images = [background]
    for name, window in zip(short.names, short.pixels, strict=True):
        if name.startswith("row"):
            image = background.copy()
            image[begin : begin + B, begin : begin + B] = window
            images.append(image)
    return np.stack([*images, np.full_like(background, 255), np.zeros_like(background)])


def write_test(folder: Path, patterns: Patterns, images: ImageArray, clocks: int) -> None:
    """Write what the testbench reads: pixels, measurements and their numbers."""
    bits = patterns.accumulator_bits
    geometry = Geometry(patterns.window, patterns.stride)
    results = [measure(patterns, cut_windows(geometry, image)) for image in images]
    words = np.stack(results).ravel()
    write_mem(folder / "test_pixels.mem", images.ravel(), 8)
    write_mem(folder / "test_results.mem", words, bits)
    sizes = {
        "WIDTH": images.shape[2],
        "HEIGHT": images.shape[1],
        "PIXELS": images.size,  # of all images
        "RESULTS": words.size,  # of all images
        "MEASUREMENTS": len(patterns),  # of a window
        "ACC_BITS": bits,
        "PATIENCE": 20 * results[0].size // len(patterns) * clocks,  # without a measurement
    }
    lines = [f"localparam {name} = {value};\n" for name, value in sizes.items()]
    (folder / "test_sizes.vh").write_text("".join(lines), encoding="ascii")


def _details(
    patterns: Patterns, program: Program, clocks: int, width: int, height: int
) -> dict[str, Any]:
    geometry = Geometry(patterns.window, patterns.stride)
    h, w = geometry.grid(height, width)
    open_rows = 1 << bits_for(geometry.cells) if geometry.cells > 1 else 1
    bank = 1 << bits_for(-(-len(patterns) // program.lanes))
    return {
        "lanes": program.lanes,
        "width": width,
        "height": height,
        "clocks_per_window": clocks,
        "clocks_per_image": clocks * h * w,
        "rom": {
            name: {"words": len(memory.words), "bits": memory.bits}
            for name, memory in program.memories.items()
        },
        "ram": {"words": w * open_rows * bank * program.lanes, "bits": patterns.accumulator_bits},
    }


def _facts(details: dict[str, Any]) -> dict[str, str]:
    per_second = 1e8 / details["clocks_per_image"]
    stored = sum(rom["words"] * rom["bits"] for rom in details["rom"].values())
    summed = details["ram"]["words"] * details["ram"]["bits"]
    return {
        "adders": str(details["lanes"]),
        "clocks per window": f"{details['clocks_per_window']:,}",
        f"images of {details['width']}×{details['height']}": f"{per_second:.1f} per second "
        "with a clock of 100 MHz",
        "read-only memory": f"{stored / 8192:.1f} KiB",
        "accumulators": f"{summed / 8192:.1f} KiB of RAM",
        "to simulate": "iverilog -g2005 -o sim *.v && vvp sim",
    }
