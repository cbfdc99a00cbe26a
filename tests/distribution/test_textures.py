"""Textures to train with are the same for the same seed, and textures all over."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

TOOL = Path(__file__).parents[2] / "tools/textures.py"


def draw(folder, *options):
    subprocess.run([sys.executable, TOOL, folder, *options], check=True)
    return {path.name: np.asarray(Image.open(path)) for path in sorted(folder.iterdir())}


def test_textures_depend_on_their_seed_alone(tmp_path):
    few, more = (draw(tmp_path / n, "--number", n, "--seed", "3") for n in ("4", "6"))
    others = draw(tmp_path / "other", "--number", "4", "--seed", "4")
    assert len(few) == 4
    assert len({name.split("-")[0] for name in few}) == 4  # of every kind
    for name, image in few.items():
        assert image.shape == (512, 512)
        assert (image == more[name]).all()
    for image, other in zip(few.values(), others.values(), strict=True):
        assert (image != other).mean() > 0.5
    spectra = [np.abs(np.fft.rfft2(image - image.mean())) for image in few.values()]
    for spectrum in spectra:  # waves of 5 to 28 pixels, and finer ones where edges are hard
        frequency = np.hypot(np.fft.fftfreq(512)[:, None], np.fft.rfftfreq(512)[None])
        waves = spectrum[(frequency > 1 / 40)] ** 2
        assert waves.sum() > 0.05 * (spectrum**2).sum()
