"""The package without its extras: what works all the same, and what names the one it needs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from skimage import data

from core_only import PROJECT, core_distributions
from tersense.io.images import write_image

ROOT = Path(__file__).parents[2]

WORKS = {
    "demo": ["demo", "-o", "{}/demo", "-m", "paper-r25"],
    "models": ["models"],
    "info": ["info", "paper-r25"],
    "sense": ["sense", "{}/photos", "-m", "paper-r25", "-o", "{}/y"],
    "reconstruct": ["reconstruct", "{}/y", "-o", "{}/again"],
    "evaluate": ["evaluate", "{}/photos", "-m", "paper-r25", "--json", "{}/figures.json"],
    "train": ["train", "{}/small.toml"],
    "export verilog": ["export", "verilog", "-m", "paper-r25", "-o", "{}/verilog"],
    "export c": ["export", "c", "-m", "paper-r25", "-o", "{}/c"],
    "export patterns": [
        "export", "patterns", "-m", "{}/run/model.safetensors", "-o", "{}/frames",
        "--mirrors", "64x48", "--picture", "16x16",
    ],
    "plot patterns": ["plot", "patterns", "-m", "paper-r25", "-o", "{}/patterns.png"],
}  # fmt: skip
NEEDS = {
    "app": (["app"], "app"),
    "evaluate HDF5": (["evaluate", "{}/patches.h5"], "hdf5"),
    "export matrix": (["export", "matrix", "-o", "{}/matrix"], "export"),
    "export onnx": (["export", "onnx", "-o", "{}/onnx"], "export"),
    "export web": (["export", "web", "-o", "{}/page"], "export"),
    "plot training": (["plot", "training", "{}/run", "-o", "{}/training.png"], "plot"),
    "plot coverage": (["plot", "coverage", "-o", "{}/coverage.png"], "plot"),
    "bench --plot": (["bench", "sense", "--plot", "{}/bench.png"], "plot"),
    "train on scikit-image": (["train", str(ROOT / "configs/quick.toml")], "quick"),
}  # fmt: skip
CONFIG = """
[sensing]
window = 8
stride = 8
rate = 0.25
[reconstructor]
name = "mlp"
hidden = [16]
[data]
train = "{0}/photos"
crop = 8
samples = 400
[train]
out = "{0}/run"
epochs = 1
batch = 100
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Run all commands in one process that has the core only; return what each did."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "photos").mkdir()
    write_image(folder / "photos/moon.png", data.moon()[:64, :70])
    write_image(folder / "photos/cat.png", data.chelsea()[:64, :48])
    (folder / "patches.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (folder / "small.toml").write_text(CONFIG.format(folder))
    commands = [*WORKS.values(), *(command for command, _ in NEEDS.values())]
    named = [[word.replace("{}", str(folder)) for word in command] for command in commands]
    lists = folder / "allowed.json", folder / "commands.json"
    for path, content in zip(lists, (core_distributions(), named), strict=True):
        path.write_text(json.dumps(content))
    command = [sys.executable, str(ROOT / "tests/core_only.py"), *map(str, lists)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return dict(zip([*WORKS, *NEEDS], json.loads(done.stdout), strict=True)) | {"folder": folder}


def test_the_core_is_light():
    core = set(core_distributions())
    assert {"torch", "numpy", "pillow", "safetensors", "numba", "typer", "rich"} <= core
    assert not core & {"gradio", "matplotlib", "scipy", "onnx", "h5py", "scikit-image", "deepinv"}


@pytest.mark.parametrize("name", WORKS)
def test_it_works_without_extras(outcomes, name):
    assert outcomes[name]["code"] == 0, outcomes[name]["err"]


def test_and_its_results_are_there(outcomes):
    folder = outcomes["folder"]
    assert len(list(folder.glob("again/*.png"))) == 2
    mean = json.loads((folder / "figures.json").read_text())["mean"]["psnr"]
    assert np.isfinite(mean)
    assert (folder / "run/model.safetensors").stat().st_size > 1000


@pytest.mark.parametrize("name", NEEDS)
def test_what_needs_an_extra_names_it_in_one_line(outcomes, name):
    outcome, (_, extra) = outcomes[name], NEEDS[name]
    assert outcome["code"] == 2
    assert outcome["out"] == ""
    assert re.fullmatch(rf"tersense: .*pip install .*'\.\[{extra}\]'.*\n", outcome["err"])


def test_every_extra_that_is_named_exists():
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        named |= set(re.findall(r"install_hint\([\"'](\w+)[\"']\)", path.read_text()))
    assert named <= set(PROJECT["optional-dependencies"])
    assert len(named) > 5
