"""The program of docs/real-camera.md with a file like that of the real camera."""

import re

import numpy as np
import scipy.io
from skimage import data

import tersense
from docs.pages import ROOT
from docs.test_docs import run_fresh
from tersense.evaluation.metrics import psnr

SIDE = 64


def haar(image, levels):
    """Return the coefficients of an image, one wavelet after the other, right minus left."""
    square, n = image.astype(float), len(image)
    for _ in range(levels):
        half, part = n // 2, square[:n, :n].copy()
        for i in range(half):
            for j in range(half):
                (a, b), (c, d) = part[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
                square[i, j], square[i, half + j] = (a + b + c + d) / 2, (b + d - a - c) / 2
                square[half + i, j], square[half + i, half + j] = (
                    (c + d - a - b) / 2,
                    (a + d - b - c) / 2,
                )
        n = half
    return square


def test_a_file_of_coefficients_becomes_an_image(tmp_path, rng):
    wide = data.camera()[100 : 100 + 2 * SIDE : 2, 200 : 202 + 2 * SIDE : 2]
    truth, seen_elsewhere = wide[:, :SIDE], wide[:, 1 : 1 + SIDE]
    square = haar(truth, 4) + rng.normal(0, 4, (SIDE, SIDE))
    square[SIDE // 2 :], square[:, SIDE // 2 :] = 0, 0
    content = {"W": np.rint(1000 * square).astype(np.int32), "J": np.uint8(4),
               "F": seen_elsewhere.astype(float)}  # fmt: skip
    scipy.io.savemat(tmp_path / "file.mat", content)
    printed = run_fresh([ROOT / "examples/real_camera.py", "file.mat", "-o", "camera"], tmp_path)

    signs = dict(re.findall(r"^(h. v. d.): neighbors differ by ([\d.]+)", printed, re.MULTILINE))
    assert min(signs, key=lambda text: float(signs[text])) == "h- v- d+"
    moved = re.search(r"moved by (\S+) pixels down and (\S+) right", printed)
    assert abs(float(moved[1])) < 0.3
    assert abs(float(moved[2]) + 1) < 0.3
    registered = [float(text) for text in re.findall(r", ([\d.]+) registered", printed)]
    assert len(registered) == 9
    assert min(registered) > 0.8
    assert registered[1] > 0.93  # linear, from all

    values = tersense.read_measured(tmp_path / "camera/table.npy", tmp_path / "camera")
    image = tersense.load(tmp_path / "camera/haar.npy").estimate(values)
    gain, offset = np.polyfit(image.ravel(), truth.ravel(), 1)
    assert psnr(gain * image + offset, truth) > 22
    (only,) = {round(float(d / np.sqrt(k)), 6) for d, k in zip(
        values.deviation[:, 0, 0], (np.load(tmp_path / "camera/haar.npy") != 0).sum((1, 2)),
        strict=True)}  # fmt: skip
    assert 2 < only < 20  # gray levels in a coefficient; texture counts as noise
