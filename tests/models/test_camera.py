"""The camera on batches of tensors: the same numbers as on images, and gradients."""

import copy

import numpy as np
import pytest
import torch
from skimage import data

import tersense
from cameras import random_camera
from tersense.errors import TersenseError
from tersense.models.camera import Camera
from tersense.models.files import read_model, write_model
from tersense.models.imager import Imager
from tersense.reconstruction.base import Normalization, build_reconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import random_patterns


@pytest.fixture
def batch():
    image = data.camera().astype(np.float32)
    return torch.from_numpy(np.stack([image[:40, :56], image[100:140, 200:256]]))


def test_a_batch_gives_the_numbers_of_the_images(batch):
    imager = tersense.load("block-r25")
    y = imager.measure(batch)
    with torch.inference_mode():
        estimates = imager.reconstruct_batch(y, batch.shape[1:])
    for image, values, estimate in zip(batch, y, estimates, strict=True):
        measured = imager.sense(image.numpy().astype(np.uint8))
        np.testing.assert_array_equal(values, measured.values)
        np.testing.assert_allclose(estimate, imager.estimate(measured), atol=0.02)


def test_without_a_size_images_are_whole_strides(batch):
    imager = random_camera(9, 8, 8)
    assert imager.reconstruct_batch(imager.measure(batch)).shape == (2, 40, 56)
    assert imager.reconstruct_batch(imager.measure(batch[:, :37])).shape == (2, 40, 56)


@pytest.mark.parametrize("geometry", [(16, 8, 8), (6, 16, 8)])
def test_gradients_reach_the_image_and_the_network(batch, geometry):
    m, window, stride = geometry
    patterns = random_patterns(m, window, 0.2, stride)
    network = build_reconstructor(
        "unrolled", {"phases": 2, "channels": 8}, Geometry(window, stride), m
    )
    imager = Imager("own", patterns, torch.ones(m), 116.0, 68.0, network)
    x = batch.clone().requires_grad_()
    loss = (imager.reconstruct_batch(imager.measure(x), (40, 56)) - batch).square().mean()
    loss.backward()
    assert x.grad.abs().sum() > 0
    assert all(weight.grad is not None for weight in imager.camera.parameters())
    # The gradient is that of the loss: a small step against it makes it smaller.
    with torch.no_grad():
        better = imager.reconstruct_batch(
            imager.measure(x - 0.1 * x.grad / x.grad.norm()), (40, 56)
        )
        assert (better - batch).square().mean() < loss


def test_it_is_a_module_that_moves_with_its_matrix():
    camera = copy.deepcopy(random_camera(9, 8, 8).camera)
    assert isinstance(camera, torch.nn.Module)
    camera.double()
    assert camera.operator.phi.dtype == torch.float64
    assert camera(camera.measure(torch.rand(1, 16, 16))).dtype == torch.float64


NETWORKS = {
    "mlp": {"hidden": [8]},
    "sda": {},
    "unrolled": {"phases": 2, "channels": 4},
    "universal": {"phases": 2, "channels": 4, "universal": True},
}


def small_network(kind, m, window, stride):
    torch.manual_seed(0)
    name = "unrolled" if kind == "universal" else kind
    network = build_reconstructor(name, NETWORKS[kind], Geometry(window, stride), m)
    with torch.no_grad():
        for weight in network.parameters():  # some begin at zero, and would hide what they do
            weight.add_(0.05 * torch.randn_like(weight))
    patterns = random_patterns(m, window, 0.2, stride)
    return Imager(kind, patterns, torch.ones(m), 116.0, 68.0, network).camera


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("geometry", [(16, 8, 8), (6, 16, 8)])
def test_double_precision_agrees_with_single(batch, kind, geometry):
    camera = small_network(kind, *geometry)
    counts = torch.randint(1, geometry[0] + 1, (2, 5, 7)) if kind == "universal" else None
    readout = tersense.Readout(noise=2.0)
    single = camera(camera.measure(batch), (40, 56), readout, counts)
    double = copy.deepcopy(camera).double()
    precise = double(double.measure(batch), (40, 56), readout, counts)
    assert precise.dtype == torch.float64
    torch.testing.assert_close(precise.float(), single, rtol=1e-4, atol=0.01)


@pytest.mark.parametrize("kind", ["unrolled", "universal"])
def test_the_gradient_to_the_image_is_that_of_differences(kind):
    camera = small_network(kind, 6, 8, 4).double()
    x = 255 * torch.rand(2, 1, 9, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: camera(camera.measure(x), (9, 7)), (x,), fast_mode=True, atol=1e-4
    )


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (1, 2, 2)])
def test_any_dimensions_may_come_before_those_of_the_image(lead):
    camera = small_network("universal", 16, 8, 8)
    x = 255 * torch.rand(*lead, 20, 30)
    y = camera.measure(x)
    counts = torch.randint(1, 17, (*lead, 3, 4))
    assert y.shape == (*lead, 16, 3, 4)
    with torch.no_grad():
        estimate = camera(y, (20, 30), counts=counts)
        first = camera(y.reshape(-1, 16, 3, 4)[:1], (20, 30), counts=counts.reshape(-1, 3, 4)[:1])
    assert estimate.shape == x.shape
    torch.testing.assert_close(estimate.reshape(-1, 20, 30)[:1], first)


def test_a_state_dict_fits_the_patterns_it_was_trained_with_only(batch, tmp_path, refused):
    camera, same = (small_network("mlp", 16, 8, 8) for _ in range(2))
    torch.nn.init.ones_(camera.reconstructor.layers[-1].bias)
    torch.save(camera.state_dict(), tmp_path / "weights.pt")
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    same.load_state_dict(state)
    y = camera.measure(batch)
    assert torch.equal(camera(y), same(y))
    other = random_camera(16, 8, 8).camera
    with refused("patterns they were trained with"):
        other.load_state_dict(state)


def test_any_sensing_weights_serve(batch):
    operator = SensingOperator(torch.randn(16, 8, 8), 8)
    network = build_reconstructor("mlp", {"hidden": [8]}, Geometry(8, 8), 16)
    camera = Camera("dense", operator, Normalization(116.0, 68.0), network)
    estimate, taken, bits, _ = camera.capture(batch[0].numpy().astype(np.uint8))
    assert estimate.shape == (40, 56)
    assert taken == 16 * 5 * 7
    assert bits == 32 * taken  # real weights give real numbers
    assert camera.rate == 0.25


def test_every_imager_is_one_class_and_keeps_its_promises(tmp_path):
    """A camera without training, too, is written, read, and works at lower rates."""
    classical = Imager.untrained(random_patterns(32, 8, 0.2), "tv", tolerance=0.01)
    assert type(classical) is type(tersense.load("paper-r25")) is Imager
    write_model(tmp_path / "tv.safetensors", classical)
    again = read_model(tmp_path / "tv.safetensors")
    y = classical.sense(data.camera()[:16, :24])
    np.testing.assert_array_equal(again.reconstruct(y), classical.reconstruct(y))
    assert again.reconstructor.options.tolerance == 0.01
    assert len(classical.at_rate(0.25).patterns) == 16


def test_the_lowest_rate_belongs_to_the_model_file(tmp_path):
    for lowest in (0.05, 0.2):
        options = {"phases": 1, "channels": 4, "nested": True, "lowest_rate": lowest}
        network = build_reconstructor("unrolled", options, Geometry(8, 8), 32)
        imager = Imager("n", random_patterns(32, 8, 0.2), torch.ones(32), 116.0, 68.0, network)
        write_model(tmp_path / "n.safetensors", imager)
        again = read_model(tmp_path / "n.safetensors")
        assert again.at_rate(lowest).rows == int(lowest * 64)
        with pytest.raises(TersenseError, match=f"use {lowest} to 0.5"):
            again.at_rate(lowest - 0.02)


def test_images_are_reconstructed_as_trained_even_in_the_middle_of_a_training(batch):
    imager = tersense.load("paper-r25")
    image = batch[0].numpy().astype(np.uint8)
    y = imager.sense(image)
    expected = imager.estimate(y)
    imager.camera.train()
    np.testing.assert_array_equal(imager.estimate(y), expected)
    assert imager.reconstructor.training


def test_a_trained_damping_is_used_at_once():
    imager = copy.deepcopy(tersense.load("block-r25"))
    y = imager.sense(data.camera()[:64, :64])
    before = imager.estimate(y)
    with torch.no_grad():
        imager.reconstructor.damping.fill_(3.0)
    assert np.abs(imager.estimate(y) - before).max() > 0


@pytest.mark.parametrize("name", ["linear", "tv", "bp"])
def test_solvers_keep_single_precision(name):
    imager = Imager.untrained(random_patterns(16, 8, 0.3), name)
    y = imager.sense(data.camera()[:16, :16])
    expected = imager.estimate(y)
    imager.precision = "bfloat16"
    np.testing.assert_array_equal(imager.estimate(y), expected)


def test_what_needs_training_or_other_windows_is_refused_at_once():
    with pytest.raises(TersenseError, match="mlp must be trained"):
        Imager.untrained(random_patterns(16, 8), "mlp")
    with pytest.raises(TersenseError, match="stride must be the window, 8, for tv, got 4"):
        Imager.untrained(random_patterns(4, 8, stride=4), "tv")
    with pytest.raises(TersenseError, match="device must be auto"):
        Imager.untrained(random_patterns(4, 8), device="gpu")
