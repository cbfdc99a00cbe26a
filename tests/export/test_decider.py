"""The exported decisions: C and Verilog take those of Python, score for score, count for count."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cameras import random_camera
from deciders import build_decider, deciding_camera, run_c, simulate_decider
from readmes import check_readme, indented
from tersense.cli.program import main
from tersense.export.adaptive import Frame, Sizes, frame_words, random_frames
from tersense.export.adaptive_verilog import write_frames
from tersense.export.arithmetic import limits
from tersense.export.base import export
from tools import run_tool

CAMERAS = {
    "scores that saturate": lambda: deciding_camera(),
    "scores that vary": lambda: deciding_camera(second=9, shift=9),
    "scores that hardly vary": lambda: deciding_camera(
        (4, 6, 7, 9, 12, 16, 22, 40), second=12, shift=9, fall=3
    ),
    "many levels": lambda: deciding_camera((4, 6, 7, 9, 12, 16, 22, 40), second=20, shift=8),
    "steps that compete": lambda: deciding_camera(
        (4, 6, 7, 9, 12, 16, 22, 40), second=20, shift=8, fall=5
    ),
    "two levels, one row": lambda: deciding_camera((1, 2), second=60, shift=7),
    "measurements of 32 bits": lambda: deciding_camera(
        window=24, stride=24, density=1.0, second=9, shift=9
    ),
    "lapped windows, shift of 0": lambda: deciding_camera(stride=4, second=1, shift=0),
}


@pytest.fixture(params=CAMERAS.values(), ids=CAMERAS.keys())
def imager(request):
    return request.param()


def make_frames(imager, shape, count, seed=0):
    return random_frames(
        imager.camera.decision, limits(imager.patterns), shape, count, np.random.default_rng(seed)
    )


# C.


def test_c_decides_as_python_does(tmp_path, imager):
    export("c", imager, tmp_path / "c", adaptive=True)
    folder = tmp_path / "c/adaptive"
    assert "10 frames of 12 windows: 0 wrong" in run_tool(folder, "make", "test")
    frames = [*make_frames(imager, (7, 9), 20), *make_frames(imager, (1, 1), 40),
              *make_frames(imager, (29, 31), 1)]  # fmt: skip
    scores, counts = run_c(folder / "decider", imager, frames)
    expected_scores, expected_counts = frame_words(imager.camera.decision, frames)
    assert len(counts) > 2000
    assert len(np.unique(counts)) > 2 or len(imager.patterns) == 2
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(counts, expected_counts)


@pytest.mark.parametrize("target", ["sanitize", "cortex-m4"])
def test_c_decides_the_same_where_overflow_is_checked_and_on_a_cortex_m4(tmp_path, imager, target):
    export("c", imager, tmp_path / "c", adaptive=True)
    printed = run_tool(tmp_path / "c/adaptive", "make", target)
    assert "10 frames of 12 windows: 0 wrong" in printed


def test_c_needs_neither_library_nor_floating_point_nor_variables(tmp_path):
    export("c", deciding_camera(), tmp_path / "c", adaptive=True)
    folder = tmp_path / "c/adaptive"
    flags = ["-mcpu=cortex-m0", "-mthumb", "-std=c99", "-ffreestanding", "-O2", "-I.."]
    for name in ("decide", "decision"):
        run_tool(folder, "arm-none-eabi-gcc", *flags, "-c", f"{name}.c", "-o", f"{name}.o")
    undefined = set(run_tool(folder, "arm-none-eabi-nm", "-u", "decide.o").split()) - {"U"}
    own = {f"tersense_{name}" for name in ("levels", "prediction", "nets", "around")}
    assert own <= undefined <= own | {"memset", "memcpy", "__aeabi_lmul"}  # a compiler's own
    sizes = run_tool(folder, "arm-none-eabi-size", "decide.o", "decision.o").splitlines()[1:]
    assert [line.split()[1:3] for line in sizes] == [["0", "0"]] * 2


def test_c_refuses_what_python_refuses(tmp_path):
    imager = deciding_camera()
    export("c", imager, tmp_path / "c", adaptive=True)
    folder = tmp_path / "c/adaptive"
    run_tool(folder, "make", "decider")
    y = np.ones((2, 2, 20), np.int64)
    have = np.array([[5, 3], [8, 5]])
    run_c(folder / "decider", imager, [Frame(y, have, 21)])
    for frame in (Frame(y, have, 20), Frame(y, have - 1, 40), Frame(y, have + 1, 40)):
        with pytest.raises(ValueError, match=r"budget must be|needs the first|must be levels"):
            frame.decide(imager.camera.decision)
        with pytest.raises(AssertionError, match="impossible"):
            run_c(folder / "decider", imager, [frame])


# Verilog.


def test_verilog_decides_as_python_does(tmp_path, imager):
    export("verilog", imager, tmp_path / "v", adaptive=True)
    folder = tmp_path / "v/adaptive"
    build_decider(folder)
    assert simulate_decider(folder)[:2] == (10, 120)
    write_frames(folder, imager, imager.camera.decision, make_frames(imager, (5, 5), 8))
    build_decider(folder)
    assert simulate_decider(folder, stall=0)[:2] == (8, 200)
    write_frames(folder, imager, imager.camera.decision, make_frames(imager, (1, 1), 20))
    build_decider(folder)
    assert simulate_decider(folder, stall=20, seed=3)[:2] == (20, 20)


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (2, 7), (7, 2)])
def test_verilog_finds_the_neighbors_in_frames_of_any_shape(tmp_path, shape):
    """Frames of both modes one after the other, in one line or column of windows, too."""
    imager = CAMERAS["scores that vary"]()
    export("verilog", imager, tmp_path / "v", adaptive=True)
    folder, frames = tmp_path / "v/adaptive", make_frames(imager, shape, 12)
    assert 0 < sum(frame.counts is None for frame in frames) < 12
    write_frames(folder, imager, imager.camera.decision, frames)
    build_decider(folder)
    assert simulate_decider(folder, stall=20)[:2] == (12, 12 * shape[0] * shape[1])


def test_a_decision_takes_the_clocks_that_the_manifest_says(tmp_path):
    imager, h, w = deciding_camera((4, 6, 7, 9, 12, 16, 22, 40), second=20, shift=8), 9, 11
    manifest, _ = export("verilog", imager, tmp_path / "v", adaptive=True, width=88, height=72)
    details, folder = manifest.details["adaptive"], tmp_path / "v/adaptive"
    frames = make_frames(imager, (h, w), 1)
    frames = [Frame(frames[0].y, None, 1500)]
    write_frames(folder, imager, imager.camera.decision, frames)
    build_decider(folder)
    clocks = simulate_decider(folder, stall=0)[2]
    told = h * w * details["clocks_per_window"] + details["clocks_per_frame"]
    assert 0.9 * told < clocks <= told


def test_a_budget_that_is_too_small_gives_no_more_than_there_is(tmp_path):
    imager = deciding_camera()
    export("verilog", imager, tmp_path / "v", adaptive=True)
    folder = tmp_path / "v/adaptive"
    have = np.random.default_rng(0).choice([3, 5, 8], (3, 4))
    frames = [Frame(frame.y, have, have.sum()) for frame in make_frames(imager, (3, 4), 2)]
    write_frames(folder, imager, imager.camera.decision, frames)
    orders = folder / "test_orders.mem"
    orders.write_text(orders.read_text().replace(f"{have.sum():08x}", f"{have.sum() - 9:08x}"))
    build_decider(folder)
    simulate_decider(folder)


FAULTS = {
    "rows that predict": ("scores", "if (rows != FIRST) rows", "rows"),
    "rounding": ("scores", "acc        <= 64;", "acc        <= 0;"),
    "sums start anew": ("scores", "leading ? {SUM_BITS{1'b0}} : sum << 1", "sum << 1"),
    "rectifier": ("scores", "acc[ACC_BITS-1] ? {ACC_BITS{1'b0}} : acc >>> 6", "acc >>> 6"),
    "falling": ("scores", "number == 0 || limited < $signed(score)", "1'b1"),
    "known steps": ("scores", "number + 1'b1 < groups", "number < groups"),
    "limits": ("scores", "acc > highest", "1'b0 && acc > highest"),
    "last weight": ("scores", "last_index <= FIRST - 1", "last_index <= FIRST - 2"),
    "windows above": ("neighbors", "UP:    if (!top)", "UP:    if (0)"),
    "the right border": ("neighbors", "RIGHT: if (!right)", "RIGHT: if (1)"),
    "windows below": ("neighbors", "kept > scored + COLUMNS", "kept > scored"),
    "windows alone": ("neighbors", "if (!alone)", "if (1)"),
    "steps that are taken": ("spend", "score_taken ? level : held", "held"),
    "taken steps in the mean": ("spend", "valid2 && !taken2) begin", "valid2) begin"),
    "taken steps in the spread": ("spend", "&& !taken2) deviation", ") deviation"),
    "whole steps": ("spend", "whole ? {(TOTAL_BITS+1){1'b0}} : fits", "fits"),
    "rounding of the mean": ("spend", "divisor <= counted << 11", "divisor <= counted << 10"),
    "chance": ("spend", "if (doubt == 0)", "if (doubt == 1)"),
    "share": ("spend", "share != most", "share != 3'd7"),
    "budget": ("spend", "state == SEARCH ? spare : left", "spare"),
    "one more": ("spend", "extra <= extra - 1", "extra <= extra"),
    "part": ("spend", "growth3 < tried_part ? growth3 : tried_part", "tried_part"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_testbench_notices_a_fault(tmp_path, fault):
    name, right, wrong = FAULTS[fault]
    verdicts = []
    for number, camera in enumerate(("steps that compete", "scores that saturate",
                                     "scores that hardly vary")):  # fmt: skip
        imager, folder = CAMERAS[camera](), tmp_path / str(number)
        export("verilog", imager, folder, adaptive=True)
        path = folder / f"adaptive/tersense_{name}.v"
        source = path.read_text()
        assert source.count(right) == 1
        path.write_text(source.replace(right, wrong))
        build_decider(folder / "adaptive")
        verdicts.append(run_tool(folder / "adaptive", "vvp", "sim", "+stall=0"))
        if "FAIL" in verdicts[-1]:
            break
    assert "FAIL" in verdicts[-1]


def synthesize(folder, command):
    """Return how many cells of each kind the decider has; write it as Verilog too."""
    reading = "read_verilog decider.v tersense_*.v ../tersense_rom.v"
    writing = "write_verilog -noattr netlist.v; write_json cells.json"
    run_tool(folder, "yosys", "-q", "-p", f"{reading}; {command} -top decider; {writing}")
    cells = json.loads((folder / "cells.json").read_text())["modules"]["decider"]["cells"]
    return Counter(cell["type"] for cell in cells.values())


def test_a_decider_is_small_and_has_one_multiplier(tmp_path):
    levels = (10, 14, 19, 27, 37, 52, 72, 99, 128)
    imager = deciding_camera(levels, 16, 16, second=20, shift=8)
    export("verilog", imager, tmp_path / "v", adaptive=True, width=320, height=240)
    cells = synthesize(tmp_path / "v/adaptive", "synth_ecp5")
    assert cells["MULT18X18D"] == 1
    assert cells["LUT4"] < 1800
    assert 0 < cells["DP16KD"] < 10


def test_the_synthesized_netlist_decides_the_same(tmp_path):
    imager = deciding_camera((3, 5, 8), second=20, shift=8)
    export("verilog", imager, tmp_path / "v", adaptive=True, width=32, height=24)
    folder = tmp_path / "v/adaptive"
    frames = [Frame(frame.y[..., :8], None, 60) for frame in make_frames(imager, (3, 4), 2)]
    write_frames(folder, imager, imager.camera.decision, frames)
    assert synthesize(folder, "synth_ice40")["SB_RAM40_4K"] > 0
    bench = (folder / "testbench_decider.v").read_text()
    (folder / "bench.v").write_text(re.sub(r"decider #\(.*\) dut", "decider dut", bench))
    models = Path(shutil.which("yosys")).parents[1] / "share/yosys/ice40/cells_sim.v"
    run_tool(folder, "iverilog", "-g2012", "-DNETLIST", "-DNO_ICE40_DEFAULT_ASSIGNMENTS", "-o",
             "sim", "bench.v", "netlist.v", str(models))  # fmt: skip
    assert simulate_decider(folder, stall=0)[:2] == (2, 24)


# What is told, and what is refused.


@pytest.mark.parametrize("kind", ["c", "verilog"])
def test_the_readme_tells_how_to_decide(tmp_path, kind):
    imager = deciding_camera()
    manifest, facts = export(kind, imager, tmp_path / "out", adaptive=True)
    check_readme(tmp_path / "out", manifest)
    text = (tmp_path / "out/README.md").read_text()
    assert "3, 5, 8, 13, 20" in text
    commands = [line for line in indented(text) if line.startswith("cd adaptive")]
    assert commands
    for line in commands:
        run_tool(tmp_path / "out", "sh", "-c", line.split("#")[0])
    assert manifest.details["adaptive"]["levels"] == [3, 5, 8, 13, 20]
    assert any("window" in value for value in facts.values())


def test_the_lines_of_c_in_the_readme_compile(tmp_path):
    export("c", deciding_camera(), tmp_path / "c", adaptive=True)
    text = (tmp_path / "c/README.md").read_text()
    begin = text.index("    static tersense_log logs")
    fragment = text[begin : text.index("counts);", begin)] + "counts);"
    arguments = "tersense_value y[][TERSENSE_ROWS], size_t *known, int encoder"
    head = f"void f({arguments}, int64_t budget, int whole)"
    (tmp_path / "c/adaptive/fragment.c").write_text(
        f'#include "decide.h"\n{head};\n{head} {{\n{fragment}\n}}\n'
    )
    flags = "-std=c99", "-Wall", "-Wextra", "-Werror", "-I.."
    run_tool(tmp_path / "c/adaptive", "gcc", *flags, "-c", "fragment.c")


@pytest.mark.parametrize("kind", ["c", "verilog"])
def test_what_cannot_decide_is_refused(tmp_path, refused, kind):
    with refused("no decision for sensors", "train.allocation=true", "--rate"):
        export(kind, random_camera(5, 8, 8), tmp_path / "out", adaptive=True)
    for options in ({"depth": 12}, {"bits": 8}):
        with refused("exact measurements"):
            export(kind, deciding_camera(), tmp_path / "out", adaptive=True, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["c", "verilog"])
def test_the_command_says_in_one_line_that_a_model_cannot_decide(tmp_path, capsys, kind):
    arguments = ["-m", "paper-r25", "-o", str(tmp_path / "out"), "--adaptive"]
    assert main(["export", kind, *arguments]) != 0
    assert "paper-r25 has no decision for sensors" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_sizes_hold_whatever_can_come():
    imager = deciding_camera(density=1.0)
    decision, ends = imager.camera.decision, limits(imager.patterns)
    sizes = Sizes.of(decision, imager)
    y = np.random.default_rng(0).choice(ends, (20, 50, 50))
    assert decision.logs(y).max() <= sizes.log
    assert sizes.sum_bits <= 31
