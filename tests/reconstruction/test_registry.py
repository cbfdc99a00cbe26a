"""The registry of reconstructors, and what each is given."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from skimage import data

from cameras import random_camera
from tersense.errors import TersenseError
from tersense.measurements.readout import Readout
from tersense.models.imager import Imager
from tersense.reconstruction import Reconstructor, base, find_reconstructor, register
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import random_patterns


@dataclass(frozen=True)
class NoOptions:
    """Nothing to choose."""


class Recorder(Reconstructor):
    """Return a flat image, and remember what was given."""

    Options = NoOptions
    registered_name = "recorder"

    def forward(self, y, operator, size, deviation=None, counts=None):
        self.given = {"y": y, "size": size, "deviation": deviation, "counts": counts}
        return y.new_zeros(len(y), *size)


def recording_imager(std=2.0):
    recorder = Recorder(Geometry(8, 8), 16, NoOptions())
    return Imager("recorder", random_patterns(16, 8, 0.2), torch.ones(16), 100.0, std, recorder)


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_registry", dict(base._registry))


FRESH = """
from tersense.reconstruction import Reconstructor, find_reconstructor, register
from tersense.errors import TersenseError

class Mine(Reconstructor):
    def forward(self, y, operator, size, deviation=None, counts=None):
        raise AssertionError

try:
    register("linear")(Mine)
except TersenseError as error:
    assert "tersense.reconstruction.gaussian" in str(error), error
else:
    raise AssertionError("a built-in name was taken")
assert find_reconstructor("linear").__module__ == "tersense.reconstruction.gaussian"
"""


def test_a_built_in_name_is_refused_before_its_module_is_imported():
    """In a fresh interpreter: here the built-in ones may be imported already."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_name_is_given_once_but_the_same_class_may_come_again(own_registry):
    class Mine(Recorder):
        pass

    again = type("Mine", (Recorder,), {"__module__": Mine.__module__})
    again.__qualname__ = Mine.__qualname__
    assert register("mine")(Mine) is Mine
    register("mine")(again)  # a cell of a notebook that is run twice
    assert find_reconstructor("mine") is again
    with pytest.raises(TersenseError, match=r"must be new, got 'mine', which .*Mine has"):
        register("mine")(Recorder)


def test_other_packages_offer_reconstructors_by_entry_points(own_registry, tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "from tersense.reconstruction.gaussian import LinearOptions, LinearReconstructor\n"
        "class Theirs(LinearReconstructor):\n    Options = LinearOptions\n"
    )
    about = tmp_path / "elsewhere-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[tersense.reconstructors]\ntheirs = elsewhere:Theirs\nbroken = nowhere:Nothing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_reconstructor("theirs").registered_name == "theirs"
    imager = Imager.untrained(random_patterns(16, 8, 0.2), "theirs")
    assert imager.reconstruct(imager.sense(np.zeros((8, 8), np.uint8))).shape == (8, 8)
    with pytest.raises(TersenseError, match="'broken' of nowhere:Nothing cannot be imported"):
        find_reconstructor("broken")
    with pytest.raises(TersenseError, match=r"known: .*broken, .*theirs"):
        find_reconstructor("unheard-of")


def test_the_reconstructor_is_given_the_error_in_the_units_of_its_measurements():
    imager = recording_imager(std=2.0)
    image = data.camera()[:16, :24]
    y = imager.sense(image, bits=6, noise=3.0, seed=5)
    imager.reconstruct(y)
    steps = np.array(y.header.readout.steps)
    given = imager.reconstructor.given["deviation"].expand(1, 16, 2, 3).numpy()
    np.testing.assert_allclose(given[0, :, 1, 2], np.sqrt(9 + steps**2 / 12) / 2, rtol=1e-6)
    imager.reconstruct(imager.sense(image, noise=4.0))
    assert imager.reconstructor.given["deviation"].unique().item() == 2.0
    imager.reconstruct(imager.sense(image))
    assert imager.reconstructor.given["deviation"] is None


def test_counts_per_window_reach_those_who_can_use_them_and_are_refused_by_others():
    image = torch.from_numpy(data.camera()[:32, :32].astype(np.float32))[None]
    linear = Imager.untrained(random_patterns(20, 8, 0.2), "linear")
    y = linear.measure(image)
    some = torch.full((1, 4, 4), 12)
    lower = linear.at_rate(12 / 64)
    few = linear.reconstruct_batch(y, counts=some)
    torch.testing.assert_close(few, lower.reconstruct_batch(y[:, :12]), atol=1.5, rtol=0)
    every = linear.reconstruct_batch(y, counts=torch.full((1, 4, 4), 20))
    torch.testing.assert_close(every, linear.reconstruct_batch(y), atol=1.5, rtol=0)
    with pytest.raises(TersenseError, match=r"needs all .* rows of every window; leave counts"):
        random_camera(9, 8, 8).reconstruct_batch(torch.zeros(1, 9, 2, 2), counts=some)


def test_a_linear_estimate_that_knows_the_noise_is_better():
    linear = Imager.untrained(random_patterns(32, 8, 0.2), "linear")
    image = data.camera()[100:164, 100:164]
    noisy = torch.from_numpy(linear.sense(image, noise=150.0).values.astype(np.float32))[None]
    blind = linear.reconstruct_batch(noisy)[0].numpy()
    knowing = linear.reconstruct_batch(noisy, readout=Readout(noise=150.0))[0].numpy()
    errors = [np.mean((estimate - image) ** 2) for estimate in (blind, knowing)]
    assert errors[1] < 0.7 * errors[0]


def test_a_reconstructor_without_feature_maps_says_that_it_cannot_decide():
    linear = base.build_reconstructor("linear", {}, Geometry(8, 8), 4)
    operator = SensingOperator(torch.ones(4, 8, 8), 8)
    with pytest.raises(TersenseError, match=r"linear has no feature maps.*use unrolled"):
        linear.examine(torch.zeros(1, 4, 2, 2), operator, (16, 16))
