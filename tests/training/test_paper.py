"""Training and the overlapping protocol are the paper's: equal to plain loops written from it."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from skimage import data
from torch import nn

import paper
from tersense.evaluation.protocols import reconstruct_overlapping, score_image
from tersense.training.config import build_config
from tersense.training.state import TrainingState

MEAN, DEVIATION = 112.0, 64.0


def small_state(**train):
    tables = {
        "sensing": {"window": 4, "stride": 4, "rate": 0.375, "density": 0.25},
        "reconstructor": {"hidden": [7, 5]},
        "data": {"crop": 4},
        "train": {"lr": 0.01, "device": "cpu"} | train,
    }
    return TrainingState(build_config(tables), MEAN, DEVIATION, torch.device("cpu"))


def copied(tensor):
    return tensor.detach().numpy().astype(np.float64)


def layers_of(network):
    modules = list(network.reconstructor.layers)
    for number, module in enumerate(modules):
        if isinstance(module, nn.Linear):
            relu = isinstance(modules[number + 1], nn.ReLU)
            norm = modules[number + 1 + relu]
            values = (module.weight, module.bias, norm.weight, norm.bias)
            statistics = copied(norm.running_mean), copied(norm.running_var)
            yield paper.Layer(*map(copied, values), relu, *statistics)


def crops(number):
    photograph, rng = data.camera(), np.random.default_rng(number)
    places = rng.integers(0, 500, (12, 2))
    return np.stack([photograph[r : r + 4, c : c + 4] for r, c in places])


def test_the_loops_share_no_code_with_the_package():
    tree = ast.parse(Path(paper.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                for alias in node.names}  # fmt: skip
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"math", "dataclasses", "numpy"}


@pytest.mark.parametrize("l2", [0.0, 0.001])
def test_steps_of_algorithm_1_equal_plain_loops(l2):
    state = small_state(l2=l2)
    network = state.network
    theta, layers, memory = copied(network.sensor.theta).T.copy(), list(layers_of(network)), {}
    for number in range(4):
        pixels = crops(number)
        phi, alpha = network.sensor()
        loss = network(torch.from_numpy(pixels))
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()

        patches = (pixels.reshape(len(pixels), -1) - MEAN) / DEVIATION
        expected, theta_sb, scale = paper.train_step(patches, theta, layers, 4, 0.01, memory, l2)
        assert loss.item() == pytest.approx(expected, rel=1e-4)
        np.testing.assert_array_equal(copied(phi).reshape(6, 16), theta_sb.T)
        np.testing.assert_allclose(copied(alpha), scale, rtol=1e-4)
        np.testing.assert_allclose(copied(network.sensor.theta), theta.T, atol=1e-4)
        # The last normalization takes constants away. What only adds one, the bias before it and
        # the shift before that, has no gradient but rounding errors, which Adam makes into steps.
        idle = {(1, "shift"), (2, "bias")}
        for place, (ours, loops) in enumerate(zip(layers_of(network), layers, strict=True)):
            for name in ("weights", "bias", "gain", "shift"):
                if (place, name) not in idle:
                    values = getattr(ours, name), getattr(loops, name)
                    np.testing.assert_allclose(*values, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(("size", "stride"), [((9, 14), 2), ((12, 8), 3)])
def test_the_overlapping_protocol_equals_plain_loops(size, stride):
    network = small_state().network
    for number in range(20):  # batch normalization learns its statistics
        network(torch.from_numpy(crops(number)))
    camera = network.eval().to_camera("small", {})
    image = data.camera()[200 : 200 + size[0], 150 : 150 + size[1]]
    theta_sb = camera.phi.reshape(camera.rows, -1).T
    alpha, layers = copied(camera.operator.alpha), list(layers_of(network))

    def give_back(patch):
        y = paper.measure(patch, theta_sb)
        return paper.reconstruct(y, theta_sb, alpha, layers, MEAN, DEVIATION)

    expected = paper.reconstruct_overlapping(image, 4, stride, give_back)
    estimate, _ = reconstruct_overlapping(camera, image, stride)
    np.testing.assert_allclose(estimate, expected, atol=1e-3)
    score = score_image(camera, "photograph", image, stride)
    assert score.psnr == pytest.approx(paper.psnr(expected, image), abs=1e-3)
