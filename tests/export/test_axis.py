"""The AXI4-Stream wrapper in a simulator: stalls on both sides, frames whole and broken."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from cameras import random_camera
from reference import sense_by_windows
from streams import build_axis, export_stream, random_stream, simulate_axis
from tersense.export.base import export
from tools import run_tool

# m, window, stride, density; (height, width); frames; options
STREAMS = {
    "blocks": ((5, 4, 4, 0.3), (7, 10), 150, {}),
    "lapped, 12 bits": ((4, 5, 3, 0.3), (4, 5), 40, {"depth": 12}),
    "codes, two lanes": ((6, 4, 4, 0.4), (4, 9), 100, {"depth": 10, "bits": 6, "lanes": 2}),
    "frames of one pixel": ((1, 1, 1, 1.0), (1, 1), 100, {}),
    "lines of one pixel, codes": ((1, 2, 2, 1.0), (5, 1), 60, {"depth": 16, "bits": 12}),
    "a step for each row": ((3, 4, 4, 0.4), (4, 9), 60, {"bits": 5, "steps": (40, 7, 111)}),
    "one line": ((2, 3, 3, 0.5), (1, 8), 60, {"bits": 4, "step": 32}),
}


@pytest.mark.parametrize("name", STREAMS)
def test_random_frames_survive_stalls_and_broken_neighbors(tmp_path, rng, name):
    geometry, size, frames, options = STREAMS[name]
    stream = export_stream(tmp_path / "out", random_camera(*geometry), rng, frames, size, **options)
    build_axis(tmp_path / "out")
    broken = sum(stream.broken)
    assert size[1] == 1 or 0.1 * frames < broken < 0.6 * frames
    for seed, stall in enumerate((0, 60)):
        found = simulate_axis(tmp_path / "out", stall, seed)
        assert found[:2] == (frames, broken), found


def test_expected_measurements_are_plain_sums_of_what_came_in(rng, tmp_path):
    """Read beats as a receiver of video would, with code of its own, and sum the pixels."""
    imager, (height, width) = random_camera(5, 4, 4, 0.3), (6, 9)
    export_stream(tmp_path / "out", imager, rng, 60, (height, width), depth=12)
    words = [int(w, 16) for w in (tmp_path / "out/axis/axis_beats.mem").read_text().split()]
    images, line, x = [], None, 0
    for word in words:
        user, last, value = word >> 17, word >> 16 & 1, word & 0xFFFF
        if user:
            images.append(np.zeros((height, width), np.int64))
            line, x = 0, 0
        if line is not None and line < height and x < width:
            images[-1][line, x] = value
        x += 1
        if last and line is not None:
            line, x = line + 1, 0
    results = [int(w, 16) for w in (tmp_path / "out/axis/axis_results.mem").read_text().split()]
    signed = np.array([(w & 0xFFFF) - (w >> 15 & 1) * 0x10000 for w in results])
    expected = [sense_by_windows(imager.phi, 4, image).transpose(1, 2, 0).ravel()
                for image in images]  # fmt: skip
    np.testing.assert_array_equal(signed, np.concatenate(expected))


def test_what_a_frame_lacks_is_black(rng):
    stream = random_stream(rng, 200, (5, 6), 8)
    assert len(stream.frames) == len(stream.broken) == 200
    assert sum(user for user, _, _ in stream.beats) == 200
    assert not stream.broken[-1]


FAULTS = {
    "start of frame in the middle": ("axis", "&& sof && !begins", "&& sof && 1'b0"),
    "rest of a short line": ("axis", "eol && !x_last", "1'b0"),
    "end of a long line": ("axis", "if (long_line && !ends)", "if (1'b0)"),
    "stray pixels": ("axis", "(skipping || begins)", "skipping"),
    "black": ("axis", "filling ? {PIXEL_BITS{1'b0}} : data", "data"),
    "flag of a broken frame": ("axis", "<= broken || breaks;", "<= broken;"),
    "flag of the next frame": ("axis", "!(ends && leaving)", "1'b1"),
    "first": ("axis", "first <= frame_last", "first <= 1'b0"),
    "held beat": ("slice", "= !out_valid || out_ready", "= 1'b1"),
    "spare beat": ("slice", "in_ready    <= !(take || spare_valid)", "in_ready    <= !spare_valid"),
    "sign": ("axis", "= $signed(y_out)", "= y_out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_testbench_notices_a_fault(tmp_path, rng, fault):
    """One pixel a frame for the flags, because only there two frames can be under way."""
    name, right, wrong = FAULTS[fault]
    tiny = fault == "flag of the next frame"
    geometry, size = ((1, 1, 1, 1.0), (1, 1)) if tiny else ((3, 4, 4, 0.5), (4, 6))
    export_stream(tmp_path / "out", random_camera(*geometry), rng, 40, size)
    path = tmp_path / f"out/axis/tersense_{name}.v"
    source = path.read_text()
    assert source.count(right) == 1
    path.write_text(source.replace(right, wrong))
    build_axis(tmp_path / "out")
    assert "FAIL" in str(simulate_axis(tmp_path / "out"))


def test_without_stalls_the_wrapper_costs_no_clocks(tmp_path, rng):
    imager = random_camera(5, 4, 4, 0.3)
    export_stream(tmp_path / "out", imager, rng, 1, (8, 8))
    manifest, _ = export("verilog", imager, tmp_path / "plain")
    build_axis(tmp_path / "out")
    _, _, _, clocks = simulate_axis(tmp_path / "out", stall=0)
    assert clocks <= 4 * manifest.details["clocks_per_window"] + 12


@pytest.mark.parametrize(
    "options",
    [{}, {"depth": 12, "bits": 10, "lanes": 2}, {"bits": 6, "steps": (9, 70, 31, 4, 5, 200)}],
    ids=str,
)
def test_yosys_has_nothing_to_complain_about(tmp_path, options):
    """No warning but that of ABC about its own network, no latch, no multiplier without codes.

    The command is that of README.md.
    """
    folder = tmp_path / "out"
    export("verilog", random_camera(6, 8, 4), folder, width=20, height=12, **options)
    commands = re.findall(r'yosys -p "(.*); stat"', (folder / "README.md").read_text())
    assert [command.split()[-1] for command in commands] == ["encoder", "encoder_axis"]
    printed = run_tool(folder, "yosys", "-p", f"{commands[1]}; write_json cells.json")
    warnings = [line for line in printed.splitlines() if "warning" in line.lower()]
    assert [line for line in warnings if "ABC: Warning: The network is comb" not in line] == []
    cells = json.loads((folder / "cells.json").read_text())["modules"]["encoder_axis"]["cells"]
    kinds = Counter(cell["type"] for cell in cells.values())
    assert kinds["TRELLIS_FF"] > 0
    assert not any("LATCH" in kind.upper() for kind in kinds)
    assert any(kind.startswith("MULT") for kind in kinds) <= ("bits" in options)
