"""A network is thinned without loss where others tell what goes."""

import copy
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from skimage import data

import tersense
from tersense.io.images import write_image
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import random_patterns

TOOL = Path(__file__).parents[2] / "tools/thin.py"


def camera(channels=6):
    """A universal network of overlapping windows, all of whose weights do something."""
    torch.manual_seed(0)
    options = UnrolledOptions(
        phases=2, channels=channels, universal=True, lowest_rate=0.1, closing=True, corrections=1
    )
    network = UnrolledReconstructor(Geometry(16, 8), 32, options).eval()
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.05 * torch.randn_like(weights)
    patterns = random_patterns(32, 16, 0.1, stride=8)
    return Imager("wide", patterns, torch.ones(32), 116.0, 69.0, network)


def doubled(imager):
    """The same function, every channel of it twice, each heard half as loud."""
    options = imager.reconstructor.options
    wide = camera(2 * options.channels)
    with torch.no_grad():
        for (name, ours), given in zip(
            wide.reconstructor.named_parameters(), imager.reconstructor.parameters(), strict=True
        ):
            ours.copy_(twice(name, given))
    return wide


def twice(name, given):
    inputs = 0 if name.endswith("up.weight") else 1
    outputs = 1 - inputs
    part = name.split(".")[2] if name.startswith("phases") else ""
    if given.ndim == 4 and part == "entry":  # 8 planes of pixels, then the memory
        pixels, memory = given[:, :8], given[:, 8:]
        given = torch.cat([pixels, memory / 2, memory / 2], dim=1)
    elif given.ndim == 4:
        given = torch.cat([given, given], dim=inputs) / 2
    named = part in ("step", "step_noise", "corrections", "exit") or "hidden" in name
    whole = given.ndim == 0 or named or not part or name.startswith("closing")
    return given if whole else torch.cat([given, given], dim=outputs if given.ndim == 4 else 0)


def crops():
    """So many that every rate has its turn."""
    return torch.from_numpy(
        np.stack([data.camera()[n : n + 64, n : n + 64] for n in range(0, 384, 8)])
    )


def difference(image, expected):
    return np.sqrt(np.square(image - expected).mean()) / expected.std()


def test_channels_that_stand_twice_can_go(tmp_path):
    narrow = camera()
    wide = doubled(narrow)
    image = data.camera()[200:264, 200:264]
    y = narrow.sense(image)
    expected = narrow.estimate(y)
    np.testing.assert_allclose(wide.estimate(y), expected, atol=0.05)
    tool = runpy.run_path(str(TOOL))
    tool["thin_to"](wide, crops(), 6)
    assert wide.parameters == narrow.parameters
    assert difference(wide.estimate(y), expected) < 0.02


def test_dead_channels_begin_anew_and_change_nothing():
    imager = camera()
    block = imager.reconstructor.phases[1].coarse[0]
    with torch.no_grad():
        block.first.weight[[1, 4]] = 0
        block.first.bias[[1, 4]] = -1
    before = copy.deepcopy(imager)
    tool = runpy.run_path(str(TOOL))
    assert tool["revive"](imager, crops()) >= 2
    assert (block.first.weight[[1, 4]] != 0).all()
    y = imager.sense(data.camera()[:64, :64])
    assert difference(imager.estimate(y), before.estimate(y)) < 0.001


def test_the_tool_writes_a_model(tmp_path):
    write_model(tmp_path / "wide.safetensors", camera())
    photographs, out = tmp_path / "photographs", tmp_path / "thin.safetensors"
    photographs.mkdir()
    write_image(photographs / "camera.png", data.camera())
    command = [sys.executable, TOOL, tmp_path / "wide.safetensors", photographs, "-o", out]
    subprocess.run([*command, "--channels", "4"], check=True)
    thin = tersense.load(out)
    assert thin.reconstructor.options.channels == 4
    assert thin.about["thinned"]["channels"] == 4
    assert "recipe" not in thin.about  # which is that of the wide one
    wide = subprocess.run([*command, "--channels", "7"], capture_output=True, text=True)
    assert "--channels must be from 1 to 6" in wide.stderr
    (photographs / "camera.png").unlink()
    none = subprocess.run(command, capture_output=True, text=True)
    assert "no image" in none.stderr
    assert "Traceback" not in wide.stderr + none.stderr
