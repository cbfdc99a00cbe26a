"""The camera as synthesizable Verilog-2005, with its program and testbenches.

The sources in `rtl/` are the same for every camera; what depends on it are the contents of the
memories (`tersense.export.microcode`) and the parameters that the small modules `encoder` and
`encoder_axis` set.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from tersense import __version__
from tersense.errors import TersenseError
from tersense.export.adaptive import require_decision
from tersense.export.adaptive_verilog import write_decision
from tersense.export.arithmetic import (
    Pixels,
    Quantizer,
    RowQuantizer,
    make_quantizer,
)
from tersense.export.base import Outcome
from tersense.export.coder import make_coder, make_images
from tersense.export.coder_verilog import write_coder
from tersense.export.guide import fill_guide
from tersense.export.microcode import (
    Program,
    bits_for,
    compile_program,
    write_mem,
    write_rom,
    write_sizes,
)
from tersense.export.stream import make_stream, write_stream
from tersense.export.test_vectors import (
    Vectors,
    cut_windows,
    make_test_images,
    measure,
)
from tersense.io.deep import USUAL
from tersense.models.imager import Imager
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

RTL = Path(__file__).parent / "rtl"
READ_OUT_CLOCKS = 5  # of a window, besides one a measurement
QUANTIZER_CLOCKS = 3  # from a measurement to its code; one more where a step is looked up
STEPS_FILE = "steps.mem"
_LARGEST_SIDE = 2**15


def write(
    imager: Imager,
    vectors: Vectors,
    folder: Path,
    *,
    lanes: int = 1,
    width: int = 640,
    height: int = 480,
    depth: int = USUAL,
    bits: int | None = None,
    step: int | None = None,
    steps: Sequence[float] | None = None,
    offsets: Sequence[int] = (),
    adaptive: bool = False,
    coder: str | None = None,
) -> Outcome:
    """Write sources, memories and testbenches.

    Args:
        imager: The camera.
        vectors: Its test vectors.
        folder: Where the files go.
        lanes: Adders side by side; a power of two.
        width: Of the images that the encoder is set up for, in pixels.
        height: The same, downwards.
        depth: Bits per pixel, 8 to 16.
        bits: Of the codes that measurements are rounded to; None for exact ones.
        step: What one unit of a code stands for; None for the smallest that clips nothing.
        steps: Instead, one for each row of Φ.
        offsets: One for each row of Φ, with the steps.
        adaptive: Also write the decision that spends a budget where it pays, in `adaptive`.
        coder: Also write the coder of this name, in `coder`; with counts where `adaptive`.
    """
    decision = require_decision(imager, depth, bits) if adaptive else None
    if not (1 <= width <= _LARGEST_SIDE and 1 <= height <= _LARGEST_SIDE):
        raise TersenseError(
            f"image sides must be from 1 to {_LARGEST_SIDE} pixels, got {width}×{height}"
        )
    patterns = imager.patterns
    quantizer = make_quantizer(patterns, depth, bits, step, steps, offsets)
    code = make_coder(patterns, depth, quantizer, adaptive, coder) if coder else None
    program = compile_program(patterns, lanes)
    for name, memory in program.memories.items():
        write_rom(folder, name, memory.words, memory.bits)
    _copy_sources(RTL, folder)
    if not isinstance(quantizer, Quantizer):
        (folder / "tersense_quantizer.v").unlink()
    if not isinstance(quantizer, RowQuantizer):
        (folder / "tersense_row_quantizer.v").unlink()
    _copy_sources(RTL / "axis", folder / "axis")
    values = _values(imager, program, width, height, depth, quantizer)
    for source in (*RTL.glob("*.template"), *(RTL / "axis").glob("*.template")):
        text = Template(source.read_text(encoding="ascii")).substitute(values)
        path = folder / source.relative_to(RTL).with_suffix("")
        path.write_text(text, encoding="ascii")
    clocks = program.clocks + len(patterns) + READ_OUT_CLOCKS
    images = make_test_images(patterns, vectors, depth)
    write_test(folder, patterns, images, clocks, depth, quantizer)
    stream = make_stream(patterns, images[:1], depth)
    write_stream(folder / "axis", stream, patterns, clocks, depth, quantizer)
    details = _details(patterns, program, clocks, width, height, depth)
    if quantizer:
        details["quantizer"] = quantizer.details
    if isinstance(quantizer, RowQuantizer):
        words, word_bits = step_words(quantizer)
        write_rom(folder, Path(STEPS_FILE).stem, words, word_bits)
        details["rom"]["steps"] = {"words": len(words), "bits": word_bits}
    guide = fill_guide("verilog", values | _figures(details, program, values, quantizer))
    facts = _facts(details, quantizer)
    if decision:
        told, text = write_decision(imager, decision, folder / "adaptive", width, height)
        details["adaptive"], guide = told, guide + text
        ram = sum(memory["words"] * memory["bits"] for memory in told["ram"].values())
        facts["decision"] = (
            f"{told['clocks_per_window']:,} clocks per window, then "
            f"{told['clocks_per_frame']:,} per frame; {ram / 8192:.1f} KiB of RAM"
        )
    if code:
        tried = make_images(code, patterns, depth, quantizer)
        told, text = write_coder(imager, code, tried, folder / "coder", width, height)
        details["coder"], guide = told, guide + text
        facts["coder"] = f"{told['clocks_per_window']:,} clocks per window, no multiplier"
    return Outcome(details, facts, guide)


def _copy_sources(source: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for path in source.glob("*.v"):
        shutil.copyfile(path, folder / path.name)


def _values(
    imager: Imager,
    program: Program,
    width: int,
    height: int,
    depth: int,
    quantizer: Quantizer | RowQuantizer | None,
) -> dict[str, Any]:
    """Return what the modules of this camera are made of."""
    patterns = imager.patterns
    acc_bits = patterns.accumulator_bits_at(depth)
    y_bits = quantizer.bits if quantizer else acc_bits
    in_bits, out_bits = -(-depth // 8) * 8, -(-y_bits // 8) * 8
    return {
        "model": " ".join(imager.name.encode("ascii", "replace").decode().split()),
        "version": __version__,
        "phi": patterns.hash,
        "width": width,
        "height": height,
        "window": patterns.window,
        "stride": patterns.stride,
        "measurements": len(patterns),
        "depth": depth,
        "pixel_top": depth - 1,
        "pixel_bits": f"        .PIXEL_BITS({depth}),\n" if depth > USUAL else "",
        "acc_bits": acc_bits,
        "y_bits": y_bits,
        "y_top": y_bits - 1,
        "in_bits": in_bits,
        "in_top": in_bits - 1,
        "out_bits": out_bits,
        "out_top": out_bits - 1,
        "lanes": program.lanes,
        "steps": len(program.steps.words),
        "count_bits": program.count_bits,
        "exact": "sum" if quantizer else "y",
        "wires": _WIRES.format(acc_bits - 1) if quantizer else "",
        "quantizer": quantizer_instance(quantizer, acc_bits) if quantizer else "",
    }


_WIRES = "    wire sum_valid, sum_ready, sum_last;\n    wire [{}:0] sum;\n\n"


def step_words(quantizer: RowQuantizer) -> tuple[list[int], int]:
    """Return what the memory holds, {middle, factor, step} of each row, and its width."""
    factors, _ = quantizer.reciprocals
    step_bits, factor_bits = max(quantizer.steps).bit_length(), max(factors).bit_length()
    middle_bits = _middle_bits(quantizer)
    words = [
        ((m % (1 << middle_bits)) << factor_bits | f) << step_bits | s
        for m, f, s in zip(quantizer.middles, factors, quantizer.steps, strict=True)
    ]
    return words, middle_bits + factor_bits + step_bits


def _middle_bits(quantizer: RowQuantizer) -> int:
    return max(abs(middle) for middle in quantizer.middles).bit_length() + 1


def quantizer_instance(quantizer: Quantizer | RowQuantizer, acc_bits: int) -> str:
    """Return the quantizer as the encoder holds it."""
    if isinstance(quantizer, RowQuantizer):
        return _row_quantizer(quantizer, acc_bits) + _PORTS
    factor, shift = quantizer.reciprocal
    low, sign = abs(quantizer.low), "-" if quantizer.low < 0 else ""
    head = f"""
    // Codes: clip(floor(y/{quantizer.step} + 1/2), +-{quantizer.largest_code}).
    tersense_quantizer #(
        .ACC_BITS({acc_bits}),
        .CODE_BITS({quantizer.bits}),
        .LOW({sign}32'd{low}),
        .HIGH(32'd{quantizer.high}),
        .BIAS(33'd{quantizer.bias}),
        .SUM_BITS({quantizer.dividend_bits}),
        .FACTOR_BITS({factor.bit_length()}),
        .FACTOR({factor.bit_length()}'d{factor}),
        .SHIFT({shift}),
        .ZERO(32'd{quantizer.zero})
"""
    return head + _PORTS


def _row_quantizer(quantizer: RowQuantizer, acc_bits: int) -> str:
    factors, shift = quantizer.reciprocals
    return f"""
    // Codes: clip(floor((y - middle)/step + 1/2), +-{quantizer.largest_code}), row by row.
    tersense_row_quantizer #(
        .ROWS({len(quantizer.steps)}),
        .ACC_BITS({acc_bits}),
        .CODE_BITS({quantizer.bits}),
        .STEP_BITS({max(quantizer.steps).bit_length()}),
        .MIDDLE_BITS({_middle_bits(quantizer)}),
        .SUM_BITS({quantizer.dividend_bits}),
        .FACTOR_BITS({max(factors).bit_length()}),
        .SHIFT({shift}),
        .STEP_FILE("{STEPS_FILE}")
"""


_PORTS = """\
    ) quantizer (
        .clk(clk),
        .rst(rst),
        .y_valid(sum_valid),
        .y_ready(sum_ready),
        .y(sum),
        .y_last(sum_last),
        .code_valid(y_valid),
        .code_ready(y_ready),
        .code(y),
        .code_last(y_last)
    );
"""


def write_test(
    folder: Path,
    patterns: Patterns,
    images: Pixels,
    clocks: int,
    depth: int = USUAL,
    quantizer: Quantizer | RowQuantizer | None = None,
) -> None:
    """Write what the testbench reads: pixels, measurements and their numbers."""
    bits = quantizer.bits if quantizer else patterns.accumulator_bits_at(depth)
    geometry = Geometry(patterns.window, patterns.stride)
    results = [measure(patterns, cut_windows(geometry, image)) for image in images]
    stacked = np.stack(results)
    words = (quantizer.codes(stacked) if quantizer else stacked).ravel()
    write_mem(folder / "test_pixels.mem", images.ravel(), depth)
    write_mem(folder / "test_results.mem", words, bits)
    sizes = {
        "WIDTH": images.shape[2],
        "HEIGHT": images.shape[1],
        "PIXELS": images.size,  # of all images
        "RESULTS": words.size,  # of all images
        "MEASUREMENTS": len(patterns),  # of a window
        "PIXEL_BITS": depth,
        "Y_BITS": bits,
        "PATIENCE": 20 * results[0].size // len(patterns) * clocks,  # without a measurement
    }
    write_sizes(folder / "test_sizes.vh", sizes)


def _details(
    patterns: Patterns, program: Program, clocks: int, width: int, height: int, depth: int
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
        "ram": {
            "words": w * open_rows * bank * program.lanes,
            "bits": patterns.accumulator_bits_at(depth),
        },
    }


def _figures(
    details: dict[str, Any],
    program: Program,
    values: dict[str, Any],
    quantizer: Quantizer | RowQuantizer | None,
) -> dict[str, Any]:
    """Return what only README.md tells."""
    exact = f"measurements, {values['y_bits']} bits, two's complement"
    words = details["ram"]["words"]
    memories = [
        f"| {name} (ROM) | {rom['words']:,} words of {rom['bits']} bits: "
        f"{rom['words'] * rom['bits'] / 8192:.1f} KiB |"
        for name, rom in details["rom"].items()
    ]
    return {
        "y_meaning": f"codes, {quantizer}, two's complement" if quantizer else exact,
        "latency": READ_OUT_CLOCKS + _clocks_to_code(quantizer),
        "quantizer_text": _tell_quantizer(quantizer) if quantizer else "",
        "width_last": details["width"] - 1,
        "clocks": f"{details['clocks_per_window']:,}",
        "program_clocks": f"{program.clocks:,}",
        "overhead": READ_OUT_CLOCKS,
        "windows": f"{details['clocks_per_image'] // details['clocks_per_window']:,}",
        "frame_clocks": f"{details['clocks_per_image']:,}",
        "per_second": f"{1e8 / details['clocks_per_image']:.1f}",
        "memories": "\n".join(memories),
        "ram_words": f"{words:,}",
        "ram_kib": f"{words * details['ram']['bits'] / 8192:.1f}",
    }


def _clocks_to_code(quantizer: Quantizer | RowQuantizer | None) -> int:
    if quantizer is None:
        return 0
    return QUANTIZER_CLOCKS + isinstance(quantizer, RowQuantizer)


_QUANTIZER_TEXT = """
Measurements are rounded to codes of {q.bits} bits, {clocks} clocks later, by `{module}`:
clip(floor({y}/{step} + 1/2), ±{q.largest_code}). A code stands for {value}. {where}There is no
divider: {q.rule} of a sum that is never negative gives the quotient, exactly for every
measurement that can come.
"""


def _tell_quantizer(quantizer: Quantizer | RowQuantizer) -> str:
    """Return what README.md tells about codes."""
    if isinstance(quantizer, Quantizer):
        step = str(quantizer.step)
        return _QUANTIZER_TEXT.format(
            q=quantizer, module="tersense_quantizer", clocks="three", y="y", step=step,
            value=f"code · {step}", where="",
        )  # fmt: skip
    where = f"""Each row has
a middle, a step and a factor, in `{STEPS_FILE}`; `manifest.json` has steps, and offsets: middles in
steps. """
    return _QUANTIZER_TEXT.format(
        q=quantizer, module="tersense_row_quantizer", clocks="four", y="(y − middle)", step="step",
        value="middle + code · step", where=where,
    )  # fmt: skip


def _facts(details: dict[str, Any], quantizer: Quantizer | RowQuantizer | None) -> dict[str, str]:
    per_second = 1e8 / details["clocks_per_image"]
    stored = sum(rom["words"] * rom["bits"] for rom in details["rom"].values())
    summed = details["ram"]["words"] * details["ram"]["bits"]
    facts = {
        "adders": str(details["lanes"]),
        "clocks per window": f"{details['clocks_per_window']:,}",
        f"images of {details['width']}×{details['height']}": f"{per_second:.1f} per second "
        "with a clock of 100 MHz",
        "read-only memory": f"{stored / 8192:.1f} KiB",
        "accumulators": f"{summed / 8192:.1f} KiB of RAM",
    }
    if quantizer:
        facts["codes"] = str(quantizer)
    return facts | {"to simulate": "iverilog -g2005 -o sim *.v && vvp sim"}
