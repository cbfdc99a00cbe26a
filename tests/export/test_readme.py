"""README.md of every export: its numbers are those of the export, and its commands work."""

import shlex

import pytest

import tersense
from cameras import random_camera
from readmes import check_readme, indented
from tersense.export.base import KINDS, export
from tools import run_tool

OPTIONS = {
    "verilog": {"depth": 12, "bits": 10, "width": 31, "height": 17},
    "c": {"depth": 12, "bits": 10},
    "patterns": {"mirrors": (60, 80), "formats": ["png", "bits", "bitmaps", "npy"]},
    "matrix": {},
}


@pytest.fixture
def camera():
    return random_camera(5, 8, 4)


@pytest.mark.parametrize("kind", OPTIONS)  # onnx and web take long: see test_onnx.py, test_web.py
def test_every_folder_tells_how_to_go_on(tmp_path, camera, kind):
    assert set(KINDS) == {*OPTIONS, "onnx", "web"}
    manifest, _ = export(kind, camera, tmp_path / "out", **OPTIONS[kind])
    check_readme(tmp_path / "out", manifest)


def test_the_figures_of_verilog_are_those_of_the_manifest(tmp_path, camera):
    manifest, _ = export("verilog", camera, tmp_path / "out", **OPTIONS["verilog"])
    text, details = (tmp_path / "out/README.md").read_text(), manifest.details
    step = details["quantizer"]["step"]
    for fact in (
        f"| clocks per window | {details['clocks_per_window']:,} (",
        f"{details['clocks_per_image']:,} clocks",
        f"{details['ram']['words']:,} words of {details['ram']['bits']} bits",
        f"{details['rom']['program']['words']:,} words",
        "`pixel[11:0]`",
        "`y[9:0]`",
        f"clip(floor(y/{step} + 1/2), ±511)",
        "`WIDTH` (31)",
    ):
        assert fact in text


def test_the_commands_of_verilog_work(tmp_path, camera):
    """Those of Yosys: see test_axis.py."""
    folder = tmp_path / "out"
    export("verilog", camera, folder, **OPTIONS["verilog"])
    lines = indented((folder / "README.md").read_text())
    simulations = [line for line in lines if line.startswith("iverilog")]
    assert len(simulations) == 2
    for line in simulations:
        assert "PASS" in run_tool(folder, "sh", "-c", line)


def test_the_commands_of_c_work(tmp_path, camera):
    folder = tmp_path / "out"
    export("c", camera, folder, **OPTIONS["c"])
    text = (folder / "README.md").read_text()
    lines = [line.split("#")[0] for line in indented(text) if line.startswith("make")]
    assert len(lines) == 4
    for line in lines:
        run_tool(folder, *shlex.split(line))
    fragment = text.split("static tersense_value sums")[1].split("\n\nA pixel")[0]
    fragment = "static tersense_value sums" + fragment.replace("for (each line of 640 pixels)",
                                                               "while (next(line))")  # fmt: skip
    (folder / "fragment.c").write_text(
        '#include "lines.h"\nint next(tersense_sample *line);\nvoid use(const tersense_value *y);\n'
        f"void f(tersense_sample *line);\nvoid f(tersense_sample *line) {{\n{fragment}\n}}\n"
    )
    run_tool(folder, "gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", "fragment.c")


def test_a_name_that_a_stranger_chose_is_one_word_of_the_command(tmp_path, camera):
    hostile = "x`y`\n# z; rm -rf \x1b[2J $phi"
    imager = tersense.Imager(
        hostile, camera.patterns, camera.operator.alpha, 0.0, 1.0, camera.reconstructor
    )
    export("c", imager, tmp_path / "out")
    text = (tmp_path / "out/README.md").read_text()
    assert "\x1b" not in text
    (command,) = [line for line in indented(text) if line.startswith("tersense reconstruct")]
    assert shlex.split(command)[-3] == "x`y` # z; rm -rf [2J $phi"
