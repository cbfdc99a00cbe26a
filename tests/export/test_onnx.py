"""The exported models, run by onnxruntime, against the package."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from skimage import data

import tersense
import tersense.export.onnx
from cameras import random_camera
from readmes import check_readme, run_the_program_of_the_readme
from tersense.export.base import export
from tersense.export.onnx import model_inputs, sensor_model
from tersense.models.imager import Imager
from tersense.reconstruction.base import Reconstructor
from tersense.reconstruction.gaussian import LinearOptions, LinearReconstructor
from tersense.reconstruction.sda import SdaOptions, SdaReconstructor

GEOMETRIES = {
    "blocks": (9, 8, 8),
    "lapped": (5, 16, 8),
    "lapped four deep": (2, 8, 2),
    "window is no multiple of the stride": (4, 7, 3),
}
SIZES = [(48, 64), (31, 50), (3, 70), (1, 1)]


@dataclass(frozen=True)
class NoOptions:
    """Nothing to choose."""


class WholeImage(Reconstructor):
    """Step towards the measurements and convolve, twice, on the image as a whole."""

    registered_name = "whole"
    Options = NoOptions

    def __init__(self, geometry, patterns):
        super().__init__(geometry, patterns, NoOptions())
        self.steps = torch.nn.ModuleList(
            torch.nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect") for _ in range(2)
        )

    def forward(self, y, operator, size, deviation=None, counts=None):
        image = operator.adjoint(y, size) / 50
        for step in self.steps:
            towards = operator.adjoint(y - operator.forward(image), size)
            image = image + step((image + towards / 50)[:, None])[:, 0]
        return image


class Solving(WholeImage):
    """Solve with ΦΦᵀ: by an inverse that is made once, because ONNX has no such operation."""

    inverse = None

    def forward(self, y, operator, size, deviation=None, counts=None):
        if self.inverse is None:
            phi = operator.phi.flatten(1)
            self.inverse = torch.linalg.inv(phi @ phi.T + torch.eye(len(phi)))
        return operator.adjoint(torch.einsum("rs,nshw->nrhw", self.inverse, y), size)


class Choosy(WholeImage):
    """Decide by the values, which no exporter can follow."""

    def forward(self, y, operator, size, deviation=None, counts=None):
        return operator.adjoint(y if y.sum() > 0 else -y, size)


def with_network(geometry, build):
    """Build a camera of random patterns with another network."""
    torch.manual_seed(5)
    imager = random_camera(*geometry)
    network = build(imager.geometry, len(imager.patterns))
    return Imager("with network", imager.patterns, imager.operator.alpha, 116.18, 68.64, network)


CAMERAS = {
    "mlp, blocks": lambda: random_camera(9, 8, 8),
    "mlp, window is no multiple of the stride": lambda: random_camera(4, 7, 3),
    "sda, lapped": lambda: with_network(
        (5, 16, 8), lambda g, m: SdaReconstructor(g, m, SdaOptions())
    ),
    "whole image, blocks": lambda: with_network((9, 8, 8), WholeImage),
    "whole image, lapped": lambda: with_network((5, 16, 8), WholeImage),
    "with an inverse, lapped": lambda: with_network((5, 16, 8), Solving),
}


def run(model, **inputs):
    content = model if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(content).run(None, inputs)[0]


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_the_sensor_is_exact_at_every_size(geometry, rng):
    imager = random_camera(*geometry, density=1.0)  # the largest sums
    model = sensor_model(imager.patterns)
    stride = geometry[2]
    for size in [*SIZES, *((2 * stride + k, 3 * stride - k) for k in range(stride))]:
        images = rng.choice(np.array([0, 1, 254, 255], np.uint8), (2, *size))
        y = run(model, image=images)
        assert y.dtype == np.int32
        for own, image in zip(y, images, strict=True):
            np.testing.assert_array_equal(own, imager.sense(image).values)


@pytest.mark.parametrize("build", CAMERAS.values(), ids=CAMERAS.keys())
def test_the_reconstructor_agrees_at_every_size(tmp_path, build):
    imager = build()
    manifest, facts = export("onnx", imager, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx/reconstructor.onnx")
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    assert shapes == {
        "y": ["n", len(imager.patterns), "h", "w"],
        "inside": ["height", "width"],
        "image": ["n", "height", "width"],
    }
    for height, width in SIZES if "mlp" in imager.reconstructor.registered_name else SIZES[:2]:
        image = data.astronaut()[:height, 100 : 100 + width]
        y = imager.sense(image)
        again = session.run(None, model_inputs(imager, y))[0]
        np.testing.assert_allclose(again.transpose(1, 2, 0), imager.estimate(y), atol=0.01)
    assert manifest.details["checked"]["largest_difference"] < 0.01
    assert "equal" in facts["sensor"]
    content = (tmp_path / "onnx/reconstructor.onnx").read_bytes()
    assert str(Path(tersense.__file__).parent).encode() not in content  # nothing of this computer
    assert b".py" not in content
    run_the_program_of_the_readme(tmp_path / "onnx", check_readme(tmp_path / "onnx", manifest))


def linear(geometry, patterns):
    return LinearReconstructor(geometry, patterns, LinearOptions())


@pytest.mark.parametrize(("build", "name"), [(Choosy, "whole"), (linear, "linear")])
def test_what_cannot_be_exported_is_refused(tmp_path, refused, capfd, build, name):
    with refused(f"cannot export the reconstructor {name}"):
        export("onnx", with_network((9, 8, 8), build), tmp_path / "onnx")
    assert capfd.readouterr() == ("", "")  # torch likes to print the graph
    assert not (tmp_path / "onnx").exists()


def test_a_model_that_differs_is_not_kept(tmp_path, refused, monkeypatch):
    imager = random_camera(9, 8, 8)
    module = tersense.export.onnx
    monkeypatch.setattr(module, "reconstructor_model", lambda imager: sensor_model(imager.patterns))
    for difference in (0.5, float("nan")):
        monkeypatch.setattr(module, "_compare", lambda *_, result=difference: result)
        with refused("differs from torch's", "nothing was exported"):
            export("onnx", imager, tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_sensor_that_differs_is_not_kept(tmp_path, refused, monkeypatch):
    other = sensor_model(random_camera(9, 8, 8, seed=1).patterns)
    monkeypatch.setattr(tersense.export.onnx, "reconstructor_model", lambda imager: other)
    monkeypatch.setattr(tersense.export.onnx, "sensor_model", lambda patterns: other)
    with refused("measurements differ", "nothing was exported"):
        export("onnx", random_camera(9, 8, 8), tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()
