"""The patterns, read back by the programs that they are written for."""

import numpy as np
import pytest
from PIL import Image
from scipy.io import loadmat

from cameras import random_camera
from tersense.export.base import export


@pytest.fixture
def exported(tmp_path):
    imager = random_camera(7, 16, 8)
    export("matrix", imager, tmp_path / "matrix")
    return imager, tmp_path / "matrix"


def test_every_file_holds_the_patterns(exported):
    imager, folder = exported
    np.testing.assert_array_equal(np.load(folder / "phi.npy"), imager.phi)
    from_csv = np.loadtxt(folder / "phi.csv", delimiter=",", dtype=np.int8)
    np.testing.assert_array_equal(from_csv.reshape(7, 16, 16), imager.phi)


def test_matlab_finds_pattern_k_as_a_matrix_and_as_a_row(exported, rng):
    imager, folder = exported
    variables = loadmat(folder / "phi.mat")
    window = rng.integers(0, 256, (16, 16), np.uint8)
    y = np.tensordot(imager.phi.astype(int), window.astype(int), axes=2)
    np.testing.assert_array_equal(variables["phi"].astype(int) @ window.ravel(), y)
    sums = [(variables["patterns"][:, :, k] * window.astype(int)).sum() for k in range(7)]
    np.testing.assert_array_equal(sums, y)
    assert variables["alpha"].shape == (7, 1)
    assert (variables["stride"], variables["mean"]) == (8, 116.18)


def test_the_image_shows_every_pattern_in_its_colors(exported):
    imager, folder = exported
    sheet = np.array(Image.open(folder / "patterns.png").convert("RGB"))
    orange = (sheet == (214, 96, 32)).all(axis=2).sum()
    blue = (sheet == (33, 92, 168)).all(axis=2).sum()
    assert (orange, blue) == (16 * (imager.phi > 0).sum(), 16 * (imager.phi < 0).sum())
