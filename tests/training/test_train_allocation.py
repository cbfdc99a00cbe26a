"""Training what adaptive sensing decides by."""

import numpy as np
import pytest
import torch

from runs import assert_equal_weights, unrolled_config, weights_of
from tersense.errors import TersenseError
from tersense.reconstruction.allocation.predictor import PredictorOptions, predictor_for
from tersense.training.allocation import examine, fit, gather
from tersense.training.config import AllocationConfig, ReadoutConfig, build_config
from tersense.training.losses import mean_of_logs
from tersense.training.packing import open_images
from tersense.training.run import train

SMALL = AllocationConfig(
    seconds=0, crops=24, crop=48, batch=8, steps=150, channels=16, sensor_crops=8
)


def config(out, **changes):
    options = {"reconstructor__universal": True, "train__loss": "log", "sensing__rate": 0.5}
    return unrolled_config(out, **{**options, **changes})


@pytest.fixture(scope="module")
def imager(tmp_path_factory):
    return train(config(tmp_path_factory.mktemp("network") / "run"))


@pytest.fixture(scope="module")
def images():
    return open_images("package:skimage/data", 48)


@pytest.fixture(scope="module")
def cases(imager, images):
    levels = predictor_for(imager.reconstructor, PredictorOptions()).levels
    return gather(imager, levels, images, SMALL)


def test_errors_are_those_of_the_network_at_uniform_counts(imager):
    levels = predictor_for(imager.reconstructor, PredictorOptions()).levels
    pixels = torch.randint(0, 256, (3, 48, 48), generator=torch.Generator().manual_seed(0)).float()
    with imager.camera.inference():
        _, errors = examine(imager, levels, pixels, None)
        assert errors.shape == (3, len(levels), 6, 6)
        for place, level in ((0, levels[0]), (-1, levels[-1])):  # met exactly, never shifted
            y = imager.measure(pixels)
            counts = torch.full((3, 6, 6), level)
            image = imager.reconstruct_batch(y, counts=counts).clamp(0, 255)
            error = ((image - pixels) / imager.std).square()
            wanted = error.unfold(1, 8, 8).unfold(2, 8, 8).mean(dim=(-2, -1)).log()
            torch.testing.assert_close(errors[:, place], wanted, rtol=1e-3, atol=1e-3)


def test_a_predictor_learns_the_errors(imager, cases):
    torch.manual_seed(0)
    predictor = predictor_for(imager.reconstructor, PredictorOptions(16))
    fit(predictor, cases, steps=150)
    with torch.no_grad():
        predicted = predictor(cases.inputs[:, 3].float())
    missed = (predicted - cases.errors).abs().mean()
    spread = (cases.errors - cases.errors.mean(dim=(0, 2, 3), keepdim=True)).abs().mean()
    assert missed < 0.75 * spread


def test_the_loss_is_least_at_the_mean_of_what_looks_alike():
    """Of errors 1 and 9, alike to a predictor, the mean is 5; that of logarithms would be 3."""
    errors = torch.tensor([1.0, 9.0]).log().repeat(4, 50)
    tried = torch.linspace(0.5, 3, 251)
    absolute = torch.stack([mean_of_logs(errors - p) for p in tried])
    assert tried[absolute.argmin()].exp().item() == pytest.approx(5, rel=0.02)
    # Between two kinds of windows only the ratio of their means matters much: 5 and 1.
    both = torch.cat([errors, torch.zeros_like(errors)], dim=1)

    def apart(ratio):
        low = torch.cat([torch.full_like(errors, ratio), torch.zeros_like(errors)], dim=1)
        return mean_of_logs(both - low)

    best = tried[torch.stack([apart(p) for p in tried]).argmin()]
    assert best.exp().item() == pytest.approx(5, rel=0.05)
    far = torch.tensor(
        [[50.0]], requires_grad=True
    )  # an outlier pulls toward itself, within bounds
    mean_of_logs(far).backward()
    assert 0 < far.grad.item() < 3


def test_measurements_are_kept_with_their_errors(imager, cases):
    assert cases.y.shape == (8, imager.rows, 6, 6)
    assert not cases.y.is_floating_point()


@pytest.mark.parametrize("seconds", [0.0, -5.0])
def test_no_time_left_is_no_training(imager, cases, seconds):
    predictor = predictor_for(imager.reconstructor, PredictorOptions(8))
    before = {key: value.clone() for key, value in predictor.layers.state_dict().items()}
    fit(predictor, cases, steps=5, seconds=seconds)
    last = f"{len(predictor.layers) - 1}.bias"  # begins with the mean of the errors
    for key, value in predictor.layers.state_dict().items():
        assert key == last or torch.equal(value, before[key])


def test_errors_of_measurements_reach_the_predictor(imager, images):
    levels = predictor_for(imager.reconstructor, PredictorOptions()).levels
    noisy = gather(imager, levels, images, SMALL, ReadoutConfig(share=1.0))
    told = noisy.inputs[:, :, -1].float()
    assert (told[8:] > 0).all()
    assert (told[:8] == 0).all()  # a sensor's own integers
    assert len(noisy.y) == 8


def test_a_finished_model_gets_a_predictor_and_keeps_its_network(tmp_path, imager):
    first = tmp_path / "first"
    train(config(first))
    small = {
        "allocation__crops": 6, "allocation__crop": 32, "allocation__steps": 5,
        "allocation__channels": 8, "allocation__sensor_crops": 0,
    }  # fmt: skip
    changes = {"train__allocation": True, "train__epochs": 0, "train__start": str(first)}
    added = train(config(tmp_path / "second", **changes, **small))
    assert added.camera.predictor is not None
    before, after = weights_of(first), weights_of(tmp_path / "second")
    assert_equal_weights(before, {key: after[key] for key in before})
    assert any(key.startswith("allocation.") for key in after)
    capture = added.begin((40, 40), 0.2)
    capture.add(np.zeros(len(capture.next())))
    assert len(capture.next()) > 0


def test_a_run_trains_network_and_predictor(tmp_path):
    small = {
        "allocation__crops": 6, "allocation__crop": 32, "allocation__steps": 5,
        "allocation__channels": 8, "allocation__sensor_crops": 2,
        "train__allocation": True, "train__epochs": 1,
    }  # fmt: skip
    imager = train(config(tmp_path / "run", **small))
    assert imager.camera.predictor is not None
    weights = weights_of(tmp_path / "run")
    assert any(key.startswith("allocation.") for key in weights)
    assert weights["decision.first"].dtype == torch.int8
    assert imager.camera.decision.prediction.any()


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(TersenseError, match=r"train\.allocation must be false unless .*universal"):
        build_config({"train": {"allocation": True}})
    with pytest.raises(TersenseError, match=r"train\.epochs must be at least 1, or 0 with"):
        build_config({"train": {"epochs": 0}})
