"""Small training runs: their settings, and what they leave."""

import pytest
import torch
from safetensors.torch import load_file

from tersense.runtime.progress import Quiet
from tersense.training.config import build_config
from tersense.training.run import open_run


def small_config(out, **changes):
    """A camera that trains in a second on the images of scikit-image."""
    tables = {
        "sensing": {"window": 8, "stride": 8, "rate": 0.25, "density": 0.1},
        "reconstructor": {"name": "mlp", "hidden": [32]},
        "data": {"train": "package:skimage/data", "crop": 8, "samples": 4000, "augment": True},
        "train": {"out": str(out), "epochs": 3, "batch": 200, "lr": 0.01, "checkpoint_epochs": 1},
    }
    for key, value in changes.items():
        section, name = key.split("__")
        tables[section][name] = value
    return build_config(tables)


def weights_of(run_folder):
    return load_file(run_folder / "model.safetensors")


def assert_equal_weights(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def unrolled_config(out, **changes):
    """A small camera with the unrolled network, trained as the large ones are."""
    options = {
        "sensing__density": 0.2,
        "reconstructor__name": "unrolled",
        "reconstructor__phases": 2,
        "reconstructor__channels": 8,
        "data__crop": 16,
        "data__samples": 160,
        "train__epochs": 4,
        "train__batch": 8,
        "train__lr": 0.003,
        "train__loss": "charbonnier",
        "train__schedule": "cosine",
        "train__clip": 1.0,
        "train__freeze_epochs": 3,
    }
    tables = {
        "sensing": {"window": 8, "stride": 8},
        "reconstructor": {},
        "readout": {},
        "allocation": {},
        "teacher": {},
        "data": {"train": "package:skimage/data", "fresh": True, "augment": True},
        "train": {},
    }
    for key, value in {**options, "train__out": str(out), **changes}.items():
        section, name = key.split("__")
        tables[section][name] = value
    return build_config(tables)


def train_until(config, last):
    """Begin a training run and interrupt it before a step, without a last checkpoint."""
    run = open_run(config, False, Quiet())
    learn = run.loop.make_step()

    def dying(locations):
        if run.state.step == last:
            raise KeyboardInterrupt
        return learn(locations)

    run.loop.make_step = lambda: dying
    with pytest.raises(KeyboardInterrupt):
        run.loop.run()
