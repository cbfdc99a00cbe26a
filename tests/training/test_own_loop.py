"""The training loop of examples/own_loop.py: alone, and in two processes under torchrun."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from skimage import data

import tersense
from tersense.io.images import write_image

PROGRAM = Path(__file__).parents[2] / "examples" / "own_loop.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.parametrize("launcher", [[], TORCHRUN], ids=["alone", "torchrun"])
def test_it_trains_a_camera_from_a_folder(tmp_path, launcher):
    (tmp_path / "photos").mkdir()
    for name in ("camera", "coins", "moon"):
        write_image(tmp_path / "photos" / f"{name}.png", getattr(data, name)())
    command = [sys.executable, *launcher, PROGRAM, "photos", "15"]
    paths = os.pathsep.join([str(PROGRAM.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, text=True,
        capture_output=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()  # the first process speaks for all
    before, after = (float(number) for number in re.findall(r"([\d.]+) dB", line))
    assert after > before + 5
    imager = tersense.load(tmp_path / "own.safetensors")
    assert (np.count_nonzero(imager.phi, axis=(1, 2)) == 12).all()


def test_it_is_as_short_as_the_documentation_says():
    lines = len(PROGRAM.read_text(encoding="utf-8").splitlines())
    page = (PROGRAM.parents[1] / "docs" / "training-loop.md").read_text(encoding="utf-8")
    assert lines <= 60
    assert f"## A program of {lines} lines" in page
