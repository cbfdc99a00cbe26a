"""Measure the exported Verilog encoder: clocks per window, cells on ECP5 and iCE40, clock rate.

Clocks are counted in a simulation (Icarus Verilog) that checks every measurement; cells are those
of Yosys. A dense 8-bit encoder of the same size (bench_dense.v, random weights) runs beside it.
Where nextpnr is there, designs are also placed and routed, and the clock rate is its estimate, for
ECP5 in the slowest speed grade.

Example: python tools/bench_logic.py -m paper-r25
Needs: iverilog, yosys; optionally nextpnr-ecp5 and nextpnr-ice40 (or those of YoWASP)
"""

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import tersense
from tersense.export.base import export
from tersense.export.microcode import write_mem
from tersense.export.test_vectors import photograph
from tersense.export.verilog import RTL, write_test
from tersense.models.imager import Imager
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns

LANES = (1, 4, 16)
VGA = (480, 640)
NEXTPNR = {
    family: shutil.which(f"nextpnr-{family}") or shutil.which(f"yowasp-nextpnr-{family}")
    for family in ("ecp5", "ice40")
}
DENSE_BITS = 26  # 255 · 127 · 1024 and a sign

ENCODER = """module encoder #(parameter WIDTH = 0, HEIGHT = 0) (
    input wire clk, input wire rst,
    input wire pixel_valid, output wire pixel_ready, input wire [7:0] pixel,
    output wire y_valid, input wire y_ready, output wire signed [{top}:0] y, output wire y_last
);
    dense #(
        .WINDOW({window}), .MEASUREMENTS({rows}), .MACS({macs}), .ACC_BITS({bits}),
        .WEIGHT_FILE("weights.mem")
    ) core (
        .clk(clk), .rst(rst),
        .pixel_valid(pixel_valid), .pixel_ready(pixel_ready), .pixel(pixel),
        .y_valid(y_valid), .y_ready(y_ready), .y(y), .y_last(y_last)
    );
endmodule
"""


class Chip(NamedTuple):
    """A chip to place a design on."""

    name: str
    option: str
    package: str
    block_rams: int


CHIPS = {
    "ecp5": [
        Chip("25F", "25k", "CABGA381", 56),
        Chip("45F", "45k", "CABGA381", 108),
        Chip("85F", "85k", "CABGA756", 208),
    ],
    "ice40": [Chip("HX8K", "hx8k", "ct256", 32)],
}


@dataclass(frozen=True)
class Design:
    """An encoder in a folder that a simulator and a synthesizer can read.

    Args:
        name: What to call it in the table.
        folder: Where its files are.
        size: (H, W) of the image that it is synthesized for.
        windows: In such an image.
    """

    name: str
    folder: Path
    size: tuple[int, int]
    windows: int

    @property
    def sources(self) -> list[str]:
        """The files of the design itself."""
        return sorted(p.name for p in self.folder.glob("*.v") if p.stem != "testbench")


def run(folder: Path, *command: str) -> str:
    """Run a command; stop with what it said if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def sparse_design(
    name: str, imager: Imager, lanes: int, size: tuple[int, int], out: Path
) -> Design:
    """Export an encoder for images of a size; the large ones are tested with one of that size."""
    folder = out / re.sub(r"\W+", "-", f"{name}-{size[1]}")
    manifest, _ = export("verilog", imager, folder, lanes=lanes, height=size[0], width=size[1])
    if size == VGA:
        image = photograph(*VGA)[None]
        write_test(folder, imager.patterns, image, manifest.details["clocks_per_window"])
    h, w = imager.geometry.grid(*VGA)
    return Design(name, folder, size, h * w)


def dense_design(patterns: Patterns, macs: int, out: Path) -> Design:
    """Write a dense encoder of the same size, with images of one window to test it."""
    window, m = patterns.window, len(patterns)
    folder = out / f"dense-{macs}"
    folder.mkdir()
    for source in ("tersense_counter.v", "tersense_rom.v", "testbench.v"):
        shutil.copy(RTL / source, folder)
    shutil.copy(Path(__file__).parent / "bench_dense.v", folder)
    values = {"window": window, "rows": m, "macs": macs, "bits": DENSE_BITS, "top": DENSE_BITS - 1}
    (folder / "encoder.v").write_text(ENCODER.format(**values))
    weights = np.random.default_rng(0).integers(-127, 128, (m, window**2))
    turns = (weights.T & 0xFF).reshape(-1, macs)  # one word for each pixel and turn
    words = [sum(int(w) << 8 * k for k, w in enumerate(turn)) for turn in turns]
    write_mem(folder / "weights.mem", words, 8 * macs)
    images = np.stack([photograph(window, window), np.full((window, window), 255, np.uint8)])
    results = images.reshape(2, -1).astype(np.int64) @ weights.T
    write_mem(folder / "test_pixels.mem", images.ravel(), 8)
    write_mem(folder / "test_results.mem", results.ravel(), DENSE_BITS)
    sizes = {"WIDTH": window, "HEIGHT": window, "PIXELS": images.size, "RESULTS": results.size,
             "MEASUREMENTS": m, "PIXEL_BITS": 8, "Y_BITS": DENSE_BITS,
             "PATIENCE": 4 * weights.size}  # fmt: skip
    text = "".join(f"localparam {name} = {value};\n" for name, value in sizes.items())
    (folder / "test_sizes.vh").write_text(text)
    h, w = Geometry(window, patterns.stride).grid(*VGA)
    return Design(f"dense 8-bit, {in_lanes(macs)}", folder, (window, window), h * w)


def clocks_per_window(design: Design) -> float:
    """Simulate without stalls; every measurement is checked."""
    run(design.folder, "iverilog", "-g2005", "-o", "sim", "testbench.v", *design.sources)
    printed = run(design.folder, "vvp", "sim", "+stall=0")
    found = re.search(r"PASS: (\d+) measurements, (\d+) clocks", printed)
    if not found:
        raise SystemExit(f"{design.name}: {printed}")
    sizes = (design.folder / "test_sizes.vh").read_text()
    m = int(re.search(r"MEASUREMENTS = (\d+)", sizes)[1])
    return int(found[2]) * m / int(found[1])


def synthesize(design: Design, family: str) -> Counter[str]:
    """Return the number of cells of each kind."""
    script = (
        f"read_verilog {' '.join(design.sources)}; "
        f"chparam -set HEIGHT {design.size[0]} -set WIDTH {design.size[1]} encoder; "
        f"synth_{family} -top encoder -json {family}.json"
    )
    run(design.folder, "yosys", "-q", "-p", script)
    modules = json.loads((design.folder / f"{family}.json").read_text())["modules"]
    return Counter(cell["type"] for cell in modules["encoder"]["cells"].values())


def place_and_route(design: Design, family: str, block_rams: int) -> tuple[str, float] | None:
    """Return the smallest chip that has enough block RAM, and the clock rate on it."""
    chip = next((c for c in CHIPS[family] if block_rams <= c.block_rams), None)
    if not NEXTPNR[family] or not chip:
        return None
    printed = run(
        design.folder, NEXTPNR[family], f"--{chip.option}", "--package", chip.package,
        "--json", f"{family}.json", "--freq", "100", "--seed", "1", "--timing-allow-fail",
        *(["--lpf-allow-unconstrained"] if family == "ecp5" else []),
    )  # fmt: skip
    return chip.name, float(re.findall(r"Max frequency for clock .*?: ([\d.]+) MHz", printed)[-1])


def lapped_camera() -> Imager:
    """Build a lapped camera of rate 0.25 and 51 non-zeros per pattern, at random."""
    random = np.random.default_rng(0)
    phi = np.zeros((64, 32 * 32), np.int8)
    for row in phi:
        row[random.choice(32 * 32, 51, replace=False)] = random.choice([-1, 1], 51)
    network = MlpReconstructor(Geometry(32, 16), 64, MlpOptions(hidden=(1,)))
    patterns = Patterns(phi.reshape(64, 32, 32), 16)
    return Imager("lapped", patterns, torch.ones(64), 0.0, 1.0, network)


def ecp5_row(design: Design) -> str:
    """Return a line of the table for ECP5."""
    cells, clocks = synthesize(design, "ecp5"), clocks_per_window(design)
    multipliers = sum(count for kind, count in cells.items() if kind.startswith("MULT"))
    routed = place_and_route(design, "ecp5", cells["DP16KD"])
    rate = f"{routed[1] * 1e6 / clocks / design.windows:.1f}" if routed else "–"
    return (
        f"| {design.name} | {design.size[1]} | {clocks:,.0f} | {cells['LUT4']:,} "
        f"| {cells['CCU2C']} | {cells['TRELLIS_FF']:,} | {cells['TRELLIS_DPR16X4']} "
        f"| {cells['DP16KD']} | {multipliers} | {clock_rate(routed)} | {rate} |"
    )


def ice40_row(design: Design) -> str:
    """Return a line of the table for iCE40, which has no multipliers to count."""
    cells = synthesize(design, "ice40")
    registers = sum(count for kind, count in cells.items() if kind.startswith("SB_DFF"))
    routed = place_and_route(design, "ice40", cells["SB_RAM40_4K"])
    return (
        f"| {design.name} | {design.size[1]} | {cells['SB_LUT4']:,} | {cells['SB_CARRY']} "
        f"| {registers:,} | {cells['SB_RAM40_4K']} | {clock_rate(routed)} |"
    )


def clock_rate(routed: tuple[str, float] | None) -> str:
    """Return megahertz and chip, as far as there are any."""
    return f"{routed[1]:.0f} ({routed[0]})" if routed else "–"


def measure(model: str, out: Path) -> None:
    """Print both tables."""
    imager = tersense.load(model)
    window = imager.patterns.window
    small = (window, window)
    sparse = [
        *(sparse_design(f"{model}, {in_lanes(n)}", imager, n, small, out) for n in LANES),
        *(sparse_design(f"{model}, {in_lanes(n)}", imager, n, VGA, out) for n in LANES),
        *(sparse_design(f"lapped, {in_lanes(n)}", lapped_camera(), n, VGA, out) for n in LANES),
    ]
    dense = [dense_design(imager.patterns, n, out) for n in LANES]
    print(
        "| ECP5 | image width | clocks per window | LUT4 | CCU2C | flip-flops | DPR16X4 "
        "| block RAMs | multipliers | MHz | VGA images per second |\n" + "|---" * 11 + "|"
    )
    for design in sparse + dense:
        print(ecp5_row(design), flush=True)
    print(
        "\n| iCE40 | image width | LUT4 | carry | flip-flops | RAM4K | MHz |\n" + "|---" * 7 + "|"
    )
    for design in sparse:  # the weights of a dense one take 512 RAM4K; the largest chip has 32
        print(ice40_row(design), flush=True)
    tools = [run(out, tool, "-V") for tool in ("iverilog", "yosys")]
    tools += [run(out, tool, "--version") for tool in NEXTPNR.values() if tool]
    print("\n" + "; ".join(text.splitlines()[0] for text in tools))


def in_lanes(count: int) -> str:
    """Return "1 lane", "4 lanes"."""
    return f"{count} lane" + "s" * (count > 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", default="paper-r25")
    with tempfile.TemporaryDirectory() as temporary:
        measure(parser.parse_args().model, Path(temporary))
