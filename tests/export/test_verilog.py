"""The exported Verilog in a simulator, with stalls on both ports, and in a synthesizer."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from skimage import data

import tersense
from cameras import camera_of, random_camera
from reference import sense_by_windows
from tersense.cli.program import main
from tersense.export.base import export
from tersense.export.microcode import compile_program, write_mem
from tersense.export.verilog import write_test
from tools import run_tool

SOURCES = ("encoder.v", *(f"tersense_{n}.v" for n in ("encoder", "scan", "lane", "counter", "rom")))


def build(folder, *more):
    sources = *SOURCES, *(f"tersense_{name}.v" for name in more)
    run_tool(folder, "iverilog", "-g2005", "-Wall", "-o", "sim", "testbench.v", *sources)


def simulate(folder, stall=50, seed=1):
    """Run the testbench; return the clocks it took and the measurements it got."""
    printed = run_tool(folder, "vvp", "sim", f"+stall={stall}", f"+seed={seed}", "+out=y.txt")
    verdict = re.search(r"PASS: \d+ measurements, (\d+) clocks", printed)
    assert verdict, printed
    return int(verdict[1]), np.loadtxt(folder / "y.txt", dtype=np.int64)


def sense_all(imager, images):
    """Return the measurements of images in the order in which the encoder gives them."""
    return np.concatenate(
        [imager.sense(image).values.transpose(1, 2, 0).ravel() for image in images]
    )


def read_test(folder):
    """Return the images (N, H, W) of the testbench, as its files have them."""
    text = (folder / "test_sizes.vh").read_text()
    sizes = {name: int(value) for name, value in re.findall(r"localparam (\w+) = (\d+);", text)}
    pixels = [int(word, 16) for word in (folder / "test_pixels.mem").read_text().split()]
    return np.array(pixels, np.uint16 if sizes["PIXEL_BITS"] > 8 else np.uint8).reshape(
        -1, sizes["HEIGHT"], sizes["WIDTH"]
    )


def check(imager, folder, lanes, stalls=(50,)):
    """Export, simulate with some stalls, and compare every measurement with `sense`."""
    manifest, _ = export("verilog", imager, folder, lanes=lanes)
    expected = sense_all(imager, read_test(folder))
    build(folder)
    for seed, stall in enumerate(stalls):
        clocks, y = simulate(folder, stall, seed)
        np.testing.assert_array_equal(y, expected)
    return manifest, clocks * len(imager.patterns) / len(y)


@pytest.mark.parametrize(("lanes", "stalls"), [(1, [0]), (16, [50, 0])])  # stalls: the slow half
def test_the_shipped_camera_at_full_size(tmp_path, lanes, stalls):
    imager = tersense.load("paper-r25")
    assert imager.phi.shape == (256, 32, 32)
    manifest, clocks = check(imager, tmp_path / "out", lanes, stalls)
    assert clocks == pytest.approx(manifest.details["clocks_per_window"], rel=0.002)


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_lapped_camera_of_ordinary_size(tmp_path, rng, lanes):
    phi = np.zeros((64, 32 * 32), np.int8)
    for row in phi:
        row[rng.choice(32 * 32, 51, replace=False)] = rng.choice([-1, 1], 51)
    check(camera_of(phi.reshape(64, 32, 32), 16), tmp_path / "out", lanes)


GEOMETRIES = [
    # m, W, S, density
    (16, 8, 8, 0.2),
    (16, 8, 4, 0.2),
    (13, 8, 8, 0.5),
    (20, 6, 2, 0.3),  # nine windows a pixel
    (7, 9, 4, 0.3),  # the stride does not divide the window
    (5, 7, 5, 0.4),  # an uneven border
    (33, 5, 5, 1.0),  # dense
    (1, 4, 4, 1.0),  # the same accumulator at every clock
    (1, 4, 2, 1.0),
    (3, 1, 1, 1.0),
    (40, 8, 8, 0.02),  # empty patterns, pixels that nobody looks at
]


@pytest.mark.parametrize("lanes", [1, 2, 4, 16])
@pytest.mark.parametrize(("m", "window", "stride", "density"), GEOMETRIES)
def test_small_cameras_of_many_geometries(tmp_path, m, window, stride, density, lanes):
    imager = random_camera(m, window, stride, density, seed=m)
    check(imager, tmp_path / "out", lanes, stalls=(0, 50, 85))


@pytest.mark.parametrize("lanes", [1, 4])
def test_patterns_of_nothing_give_zero(tmp_path, lanes):
    check(camera_of(np.zeros((3, 4, 4), np.int8), 4), tmp_path / "out", lanes)


# m, W, S, density; options
DEEP = {
    "12 bits": ((16, 8, 4, 0.2), {"depth": 12}),
    "12 bits, codes of 10": ((16, 8, 8, 0.3), {"depth": 12, "bits": 10, "lanes": 4}),
    "16 bits, clipped codes": ((7, 9, 4, 0.3), {"depth": 16, "bits": 9, "step": 777}),
    "9 bits, steps of a power of two": ((5, 7, 5, 0.4), {"depth": 9, "bits": 6, "step": 64}),
    "8 bits, codes of 4": ((1, 4, 2, 1.0), {"bits": 4}),
    "a step for each row": (
        (5, 8, 4, 0.3),
        {"bits": 5, "steps": (17, 300, 64, 1, 99), "lanes": 2},
    ),
    "one row": ((1, 4, 2, 1.0), {"depth": 12, "bits": 6, "steps": (77,)}),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_pixels_and_codes_are_those_of_plain_integers(tmp_path, name):
    """Also what the testbench expects is checked: sums in int64, rounded half up."""
    geometry, options = DEEP[name]
    imager, folder = random_camera(*geometry), tmp_path / "out"
    depth, bits = options.get("depth", 8), options.get("bits")
    manifest, _ = export("verilog", imager, folder, **options)
    images = read_test(folder)
    assert manifest.pixel_bits == depth
    assert images.max() == 2**depth - 1
    y = [sense_by_windows(imager.phi, imager.patterns.stride, image) for image in images]
    expected = np.concatenate([values.transpose(1, 2, 0).ravel() for values in y])
    if bits:
        quantizer, largest = manifest.details["quantizer"], 2 ** (bits - 1) - 1
        step = np.resize(quantizer.get("steps", quantizer.get("step")), expected.shape)
        expected = ((2 * expected + step) // (2 * step)).clip(-largest, largest)
    build(folder, *(["row_quantizer" if "steps" in options else "quantizer"] if bits else []))
    for seed, stall in enumerate((0, 50)):
        np.testing.assert_array_equal(simulate(folder, stall, seed)[1], expected)


def test_codes_are_those_of_a_recorded_measurement(tmp_path, capsys):
    """The steps are those that `sense` chose for an image; the encoder gives the file's codes."""
    imager, y = tersense.load("paper-r25"), tmp_path / "y.tsm"
    image = data.camera()[:64, 100:132]
    recorded = imager.sense(image, bits=6)
    assert len(set(recorded.header.readout.steps)) > 5
    assert len(set(recorded.header.readout.offsets)) > 100
    recorded.save(y)
    folder = tmp_path / "out"
    arguments = ["-m", "paper-r25", "-o", str(folder), "--steps", str(y), "--lanes", "16"]
    assert main(["export", "verilog", *arguments]) == 0
    assert "6 bits in steps of" in capsys.readouterr().out
    write_images(folder, imager, image[None], recorded)
    build(folder, "row_quantizer")
    expected = recorded.values.transpose(1, 2, 0).ravel()
    np.testing.assert_array_equal(simulate(folder, 0)[1], expected)


def write_images(folder, imager, images, recorded):
    """Let the testbench send other images, and expect recorded codes."""
    bits, clocks = recorded.header.readout.bits, 20_000
    write_test(folder, imager.patterns, images, clocks)
    sizes = folder / "test_sizes.vh"
    sizes.write_text(re.sub(r"Y_BITS = \d+", f"Y_BITS = {bits}", sizes.read_text()))
    write_mem(folder / "test_results.mem", recorded.values.transpose(1, 2, 0).ravel(), bits)


# Whether the testbench would notice.

BLOCKS, LAPPED = (3, 6, 6, 0.7), (3, 6, 2, 0.7)
FAULTS = {
    "forwarding": (BLOCKS, "lane", "repeated ? previous : loaded", "loaded"),
    "first touch": (BLOCKS, "lane", "starting <= first", "starting <= 1'b0"),
    "sign": (BLOCKS, "lane", "subtract ? negative : positive", "positive"),
    "border": (LAPPED, "scan", "in_image ? pixel : {PIXEL_BITS{1'b0}}", "pixel"),
    "window that is not there": (LAPPED, "scan", "&& window_across < ACROSS", ""),
    "window rows that take turns": (LAPPED, "scan", "turn >= b ? turn - b", "b >= 0 ? turn"),
    "held input": (LAPPED, "scan", "job_ready && pixel_last", "job_ready"),
    "steps of a pixel": (BLOCKS, "encoder", "fetched_steps - 1'b1", "fetched_steps"),
    "wait for the steps": (BLOCKS, "encoder", "!issuing && !decoding", "1'b1"),
    "wait for the read-out": (BLOCKS, "encoder", "!ending && !reading", "!ending"),
    "held output": (BLOCKS, "encoder", "= !y_valid || y_ready", "= 1'b1"),
    "last": (BLOCKS, "encoder", "<= located_last", "<= row_last"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_testbench_notices_a_fault(tmp_path, fault):
    geometry, name, right, wrong = FAULTS[fault]
    folder = tmp_path / "out"
    export("verilog", random_camera(*geometry), folder)
    path = folder / f"tersense_{name}.v"
    source = path.read_text()
    assert source.count(right) == 1
    path.write_text(source.replace(right, wrong))
    build(folder)
    assert "FAIL" in run_tool(folder, "vvp", "sim")


def test_all_forms_of_a_memory_hold_the_same(tmp_path):
    export("verilog", random_camera(16, 8, 8), tmp_path / "out", lanes=4)
    for name in ("program", "pointer", "order"):
        mem, coe, mif = (
            (tmp_path / f"out/{name}.{form}").read_text() for form in ("mem", "coe", "mif")
        )
        words = mem.split()
        head, vector = coe.split("memory_initialization_vector=")
        assert "radix=16;" in head
        assert vector.strip().rstrip(";").split(",\n") == words
        assert re.findall(r"^(\d+) : (\w+);$", mif, re.M) == [
            (str(place), word) for place, word in enumerate(words)
        ]
        assert f"DEPTH = {len(words)};" in mif
        bits = int(re.search(r"WIDTH = (\d+);", mif)[1])
        assert 0 < max(int(word, 16) for word in words) < 2**bits


def test_rows_are_dealt_to_lanes_such_that_windows_take_fewer_steps():
    patterns = tersense.load("paper-r25").patterns
    support = (patterns.phi != 0).reshape(256, -1)
    in_turn = np.stack([support[lane::16].sum(axis=0) for lane in range(16)])
    assert compile_program(patterns, 16).clocks < 0.75 * in_turn.max(axis=0).sum()
    assert compile_program(patterns, 1).clocks == patterns.nonzeros


@pytest.mark.parametrize(
    "options",
    [{"lanes": 0}, {"lanes": 3}, {"lanes": 128}, {"width": 0}, {"height": 10**6}],
    ids=str,
)
def test_impossible_options_are_refused(tmp_path, small_imager, refused, options):
    with refused(next(iter(options.values()))):
        export("verilog", small_imager, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


# Synthesis.


def synthesize(folder, command):
    """Return how many cells of each kind the encoder has; write it as Verilog too."""
    reading = f"read_verilog {' '.join(SOURCES)}"
    writing = "write_verilog -noattr netlist.v; write_json cells.json"
    run_tool(folder, "yosys", "-q", "-p", f"{reading}; {command} -top encoder; {writing}")
    cells = json.loads((folder / "cells.json").read_text())["modules"]["encoder"]["cells"]
    return Counter(cell["type"] for cell in cells.values())


def test_the_shipped_camera_is_small_and_multiplies_nothing(tmp_path):
    export("verilog", tersense.load("paper-r25"), tmp_path / "out", width=32, height=32)
    cells = synthesize(tmp_path / "out", "synth_ecp5")
    assert cells["LUT4"] < 400
    assert 0 < cells["DP16KD"] < 12
    assert not any("MULT" in kind or "ALU" in kind for kind in cells)


@pytest.mark.parametrize(("stride", "lanes"), [(16, 4), (8, 16)])
def test_no_geometry_needs_a_multiplier(tmp_path, stride, lanes):
    imager = random_camera(24, 16, stride, 0.1)
    export("verilog", imager, tmp_path / "out", lanes=lanes, width=100, height=70)
    cells = synthesize(tmp_path / "out", "synth_ecp5")
    assert cells["TRELLIS_FF"] > 0
    assert not any("MULT" in kind or "ALU" in kind for kind in cells)


@pytest.mark.parametrize("lanes", [1, 4])
def test_the_synthesized_netlist_gives_the_same_measurements(tmp_path, lanes):
    imager, folder = random_camera(12, 8, 4), tmp_path / "out"
    export("verilog", imager, folder, lanes=lanes)
    images = read_test(folder)
    size = f"-set WIDTH {images.shape[2]} -set HEIGHT {images.shape[1]}"
    cells = synthesize(folder, f"chparam {size} encoder; synth_ice40")
    assert cells["SB_RAM40_4K"] > 0
    bench = (folder / "testbench.v").read_text()
    (folder / "bench.v").write_text(re.sub(r"encoder #\(.*\) dut", "encoder dut", bench))
    models = Path(shutil.which("yosys")).parents[1] / "share/yosys/ice40/cells_sim.v"
    defaults = "-DNO_ICE40_DEFAULT_ASSIGNMENTS"
    run_tool(folder, "iverilog", defaults, "-o", "sim", "bench.v", "netlist.v", str(models))
    _, y = simulate(folder)
    np.testing.assert_array_equal(y, sense_all(imager, images))
