from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tersense.reconstruction import base as recon
from tersense.reconstruction.base import Reconstructor, find_reconstructor, register
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor, average_windows
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator

# The registry


def test_the_papers_network_is_found_by_name():
    assert find_reconstructor("mlp") is MlpReconstructor
    assert MlpReconstructor.registered_name == "mlp"


def test_an_unknown_name_is_refused_with_the_known_ones(refused):
    with refused("zzz", "mlp"):
        find_reconstructor("zzz")


def test_a_new_reconstructor_is_found_once_registered(monkeypatch, refused):
    monkeypatch.setattr(recon, "_registry", dict(recon._registry))
    with refused("flat"):
        find_reconstructor("flat")

    @dataclass(frozen=True)
    class FlatOptions:
        level: float = 0.0

    @register("flat")
    class FlatReconstructor(Reconstructor):
        Options = FlatOptions

        def forward(self, y, operator, size, deviation=None, counts=None):
            return torch.full((len(y), *size), self.options.level)

    assert find_reconstructor("flat") is FlatReconstructor
    assert FlatReconstructor.registered_name == "flat"
    assert find_reconstructor("mlp") is MlpReconstructor


# The paper's network


def build(hidden, patterns=16, window=8, stride=8):
    return MlpReconstructor(Geometry(window, stride), patterns, MlpOptions(hidden=hidden))


def test_the_defaults_are_the_papers_layers():
    assert MlpOptions().hidden == (2048, 2048)


@pytest.mark.parametrize("hidden", [(5,), (5, 7), (5, 7, 3)])
def test_layers_are_fc_relu_bn_and_the_last_fc_bn(hidden):
    layers = list(build(hidden).layers)
    order = [nn.Linear, nn.ReLU, nn.BatchNorm1d] * len(hidden) + [nn.Linear, nn.BatchNorm1d]
    assert [type(layer) for layer in layers] == order
    sizes = [(layer.in_features, layer.out_features) for layer in layers[::3]]
    assert sizes == list(zip((16, *hidden), (*hidden, 64), strict=True))


def test_the_papers_network_has_6_831_104_parameters():
    with torch.device("meta"):
        network = build((2048, 2048), patterns=256, window=32, stride=32)
    widths = [256, 2048, 2048, 1024]
    weights = sum(a * b for a, b in pairwise(widths))
    biases_scales_and_shifts = 3 * sum(widths[1:])
    assert sum(p.numel() for p in network.parameters()) == 6_831_104
    assert weights + biases_scales_and_shifts == 6_831_104


def test_the_weights_begin_as_xavier_says_and_the_biases_at_zero():
    torch.manual_seed(0)
    layer = build((300,), patterns=200).layers[0]
    bound = (6 / (200 + 300)) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.abs().max() > 0.99 * bound
    assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert not layer.bias.any()


def test_measurements_are_scaled_by_alpha():
    torch.manual_seed(0)
    network = build((5,)).eval()
    phi, alpha = torch.randn(16, 8, 8), torch.rand(16) + 0.5
    y = torch.randn(2, 16, 1, 1)
    scaled = network(y, SensingOperator(phi, 8, alpha), (8, 8))
    by_hand = network(y * alpha.view(1, 16, 1, 1), SensingOperator(phi, 8), (8, 8))
    torch.testing.assert_close(scaled, by_hand)


def test_every_window_is_reconstructed_from_its_own_measurements():
    torch.manual_seed(0)
    network = build((5,)).eval()
    operator = SensingOperator(torch.randn(16, 8, 8), 8)
    y = torch.randn(1, 16, 2, 3)
    before = network(y, operator, (16, 24))
    y[0, :, 1, 2] += 1
    changed = (network(y, operator, (16, 24)) != before)[0]
    assert not changed[:8].any()
    assert not changed[:, :16].any()
    assert changed[8:, 16:].any()


@pytest.mark.parametrize(("stride", "size"), [(8, (8, 8)), (8, (13, 30)), (4, (9, 5)), (3, (1, 1))])
def test_images_have_the_size_that_was_asked_for(stride, size):
    network = build((5,), stride=stride).eval()
    operator = SensingOperator(torch.randn(16, 8, 8), stride)
    y = operator.forward(torch.randn(2, *size))
    assert network(y, operator, size).shape == (2, *size)


# Averaging


def cut_windows(images, window, stride, fill):
    """Cut (N, H, W) into windows (N, h, w, B²), straight from the definition."""
    count, height, width = images.shape
    first = (window - stride) // 2
    far = window + stride
    around = np.pad(images, ((0, 0), (far, far), (far, far)), constant_values=fill)
    rows, columns = -(-height // stride), -(-width // stride)
    windows = np.empty((count, rows, columns, window**2), np.float32)
    for i in range(rows):
        for j in range(columns):
            top, left = i * stride - first + far, j * stride - first + far
            part = around[:, top : top + window, left : left + window]
            windows[:, i, j] = part.reshape(count, -1)
    return torch.from_numpy(windows)


@st.composite
def geometries(draw):
    window = draw(st.integers(1, 12))
    return Geometry(window, draw(st.integers(1, window)))


@given(geometries(), st.integers(1, 40), st.integers(1, 40), st.integers(1, 2), st.integers(0, 99))
def test_a_images_own_windows_give_the_image_back(geometry, height, width, count, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (count, height, width))
    # What a window says about the outside of the image must not matter.
    windows = cut_windows(pixels, geometry.window, geometry.stride, fill=10_000)
    image = average_windows(windows, geometry, (height, width))
    np.testing.assert_array_equal(image.numpy(), pixels)


@given(geometries(), st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_averaging_is_a_mean_over_the_windows_that_cover_a_pixel(geometry, height, width, seed):
    rows, columns = geometry.grid(height, width)
    rng = np.random.default_rng(seed)
    windows = rng.integers(-99, 99, (1, rows, columns, geometry.window**2)).astype(np.float32)
    row, column = rng.integers(height), rng.integers(width)
    said = []
    for i in range(rows):
        for j in range(columns):
            top = i * geometry.stride - (geometry.window - geometry.stride) // 2
            left = j * geometry.stride - (geometry.window - geometry.stride) // 2
            if 0 <= row - top < geometry.window and 0 <= column - left < geometry.window:
                place = (row - top) * geometry.window + column - left
                said.append(windows[0, i, j, place])
    image = average_windows(torch.from_numpy(windows), geometry, (height, width))
    assert image[0, row, column].item() == pytest.approx(np.mean(said), rel=1e-5, abs=1e-4)
