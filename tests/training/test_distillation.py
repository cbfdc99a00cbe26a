"""Learning from a teacher: the student becomes like it, and nothing of it stays."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tersense
from conftest import build_small_imager
from runs import assert_equal_weights, train_until, unrolled_config, weights_of
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.runtime.progress import Quiet
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import random_patterns
from tersense.training.run import Run, train

ROWS, WINDOW, STRIDE = 12, 12, 8
FAULT = 0.8  # deviations of the pixels: the teacher's images are too bright


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A model file whose universal network makes all images too bright, and nothing else."""
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    torch.manual_seed(0)
    options = UnrolledOptions(2, 12, universal=True, lowest_rate=0.02)
    network = UnrolledReconstructor(Geometry(WINDOW, STRIDE), ROWS, options)
    with torch.no_grad():
        network.phases[-1].exit.bias.fill_(FAULT)
    patterns = random_patterns(ROWS, WINDOW, 0.1, STRIDE)
    write_model(path, Imager("teacher", patterns, torch.rand(ROWS) + 0.5, 100.0, 50.0, network))
    return path


def config(out, teacher, **changes):
    options = {
        "reconstructor__universal": True,
        "reconstructor__phases": 1,
        "reconstructor__channels": 4,
        "reconstructor__lowest_rate": 0.02,
        "readout__share": 0.5,
        "train__freeze_epochs": 0,
        "train__lr": 0.01,
        "train__warmup": 0,
        "teacher__model": str(teacher),
        "teacher__share": 1.0,
        "teacher__features": 0.1,
    }
    return unrolled_config(out, **{**options, **changes})


def distance(one, other, image):
    """Return how far two cameras' reconstructions are from each other, in deviations of pixels."""
    estimates = [imager.estimate(imager.sense(image)) for imager in (one, other)]
    return np.abs(estimates[0] - estimates[1]).mean() / 50


@pytest.fixture
def image(rng):
    """An image that nobody was trained on."""
    down, across = np.mgrid[:48, :48]
    return (100 + down + 40 * np.sin(across / 5) + rng.uniform(-9, 9, (48, 48))).astype(np.uint8)


def test_a_student_learns_what_its_teacher_gives_right_or_wrong(tmp_path, teacher, image):
    """Only the teacher is too bright: who learns that has it from the teacher."""
    taught = train(config(tmp_path / "taught", teacher))
    alone = train(config(tmp_path / "alone", teacher, teacher__share=0.0))
    theirs = tersense.load(teacher)
    assert distance(alone, theirs, image) > 0.7 * FAULT
    assert distance(taught, theirs, image) < 0.2 * FAULT


def test_features_of_student_and_teacher_come_closer(tmp_path, teacher):
    run = Run(config(tmp_path / "run", teacher, teacher__features=1.0), Quiet())
    network, step, locations = run.state.network, run.loop.make_step(), run.data.sampler.epoch(0)

    def strangeness():
        torch.manual_seed(1)  # the same counts and errors
        kept, network.distillation.distance = network.distillation.distance, lambda *_: 0.0
        network.refresh()
        with torch.no_grad():
            far = network(run.data.crops(locations[:8])).item()
        network.distillation.distance = kept
        return far

    before = strangeness()
    for number in range(40):
        step(run.data.my_part(locations, number % run.data.steps_per_epoch))
    assert 0 < strangeness() < 0.7 * before


def test_the_camera_is_the_teachers_and_nothing_else_of_it_is_in_the_model(tmp_path, teacher):
    before = teacher.read_bytes()
    run = Run(config(tmp_path / "run", teacher), Quiet())
    run.loop.make_step()(run.data.my_part(run.data.sampler.epoch(0), 0))
    theirs = tersense.load(teacher)
    network = run.state.network
    for name, weights in network.distillation.teacher.reconstructor.state_dict().items():
        assert torch.equal(weights, theirs.reconstructor.state_dict()[name]), name
    ours = train(config(tmp_path / "run", teacher))
    assert teacher.read_bytes() == before
    assert ours.patterns.hash == theirs.patterns.hash
    assert (ours.mean, ours.std) == (theirs.mean, theirs.std)
    assert torch.equal(ours.operator.alpha, theirs.operator.alpha)
    assert ours.about["recipe"]["teacher"]["model"] == "teacher.safetensors"
    plain = UnrolledReconstructor(Geometry(WINDOW, STRIDE), ROWS, ours.reconstructor.options)
    kept = {name.removeprefix("reconstructor.") for name in weights_of(tmp_path / "run")}
    assert kept == {"phi", "alpha", *plain.state_dict()}


def test_a_taught_run_continues_bit_for_bit(tmp_path, teacher):
    changes = {"train__checkpoint_epochs": 1, "train__optimizer": "muon", "train__epochs": 2}
    train(config(tmp_path / "whole", teacher, **changes))
    parts = config(tmp_path / "parts", teacher, **changes)
    train_until(parts, 25)
    train(parts, resume=True)
    assert_equal_weights(weights_of(tmp_path / "whole"), weights_of(tmp_path / "parts"))


def test_a_step_asks_the_device_for_no_value(tmp_path, teacher):
    """Or it could not be recorded as a CUDA graph; tensors without values have none to give."""
    network = Run(config(tmp_path / "run", teacher), Quiet()).state.network
    with FakeTensorMode(allow_non_fake_inputs=True), torch.autocast("cpu", torch.bfloat16):
        crops = torch.zeros(8, 16, 16, dtype=torch.uint8)
        assert network.train()(crops).shape == ()


def test_without_training_the_loss_is_that_of_the_images(tmp_path, teacher):
    network = Run(config(tmp_path / "run", teacher), Quiet()).state.network.eval()
    crops = torch.randint(0, 256, (4, 16, 16), dtype=torch.uint8)
    camera = network.to_camera("student", {})
    with torch.no_grad():
        estimate = camera.reconstruct_batch(camera.measure(crops), (16, 16))
        x, again = (network.normalization.pixels(pixels.float()) for pixels in (crops, estimate))
        torch.testing.assert_close(network(crops), network.loss(x, again))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reconstructor__universal": False, "readout__share": 0.0}, "universal must be true"),
        ({"reconstructor__lowest_rate": 0.01}, "lowest_rate must be at least 0.02"),
        ({"sensing__kind": "random"}, "sensing.kind must be that of teacher.model"),
        ({"sensing__patterns": "mine.npy"}, "without sensing.patterns, got 'mine.npy'"),
        ({"sensing__scale": "learned"}, "sensing.scale must be alpha"),
        ({"teacher__share": 1.5}, "teacher.share must be at least 0 and at most 1"),
        ({"teacher__model": "nobody"}, "no model or model file is called nobody"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(tmp_path, teacher, refused, changes, said):
    with refused(said):
        config(tmp_path / "run", teacher, **changes)


def test_a_teacher_of_another_kind_gives_its_images_but_no_features(tmp_path, refused):
    write_model(tmp_path / "mlp.safetensors", build_small_imager())
    plain = {"reconstructor__universal": False, "readout__share": 0.0}
    with refused("teacher.features must be 0 unless both networks are unrolled"):
        config(tmp_path / "run", tmp_path / "mlp.safetensors", **plain)
    with refused("reconstructor.nested must be false"):
        config(tmp_path / "run", tmp_path / "mlp.safetensors", reconstructor__nested=True,
               teacher__features=0.0, **plain)  # fmt: skip
    taught = config(tmp_path / "run", tmp_path / "mlp.safetensors", teacher__features=0.0,
                    train__epochs=1, **plain)  # fmt: skip
    assert (taught.sensing.kind, taught.sensing.window) == ("fixed", 8)
    assert train(taught).patterns.hash == build_small_imager().patterns.hash
