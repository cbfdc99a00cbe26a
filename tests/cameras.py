"""Untrained cameras of any geometry."""

from dataclasses import replace

import numpy as np
import torch

import tersense
from tersense.models.imager import Imager
from tersense.reconstruction.allocation import IntegerDecision
from tersense.reconstruction.allocation.predictor import PredictorOptions, predictor_for
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns, random_patterns

ADAPTIVE_ROWS, ADAPTIVE_STRIDE = 32, 8


def random_camera(m, window, stride, density=0.2, seed=0):
    """Build a camera of m random patterns; the network is random too, but settled."""
    random = np.random.default_rng(seed)
    signs = random.choice(np.array([-1, 1], np.int8), size=(m, window, window))
    phi = signs * (random.random(signs.shape) < density)
    return camera_of(phi.astype(np.int8), stride, seed)


def camera_of(phi, stride, seed=0):
    """Build a camera of the given patterns with a random network."""
    torch.manual_seed(seed)
    m, window = len(phi), phi.shape[1]
    reconstructor = MlpReconstructor(Geometry(window, stride), m, MlpOptions(hidden=(24,)))
    with torch.no_grad():
        for _ in range(3):
            reconstructor.layers(torch.randn(50, m) * 3)
    alpha = torch.rand(m) + 0.5
    return Imager(f"random-{seed}", Patterns(phi, stride), alpha, 116.18, 68.64, reconstructor)


def adaptive_imager(seed=0):
    """Build a camera of 16×16 windows, 8 apart, whose network and predictor are random."""
    torch.manual_seed(seed)
    patterns = random_patterns(ADAPTIVE_ROWS, 16, 0.1, stride=ADAPTIVE_STRIDE)
    network = UnrolledReconstructor(
        Geometry(16, ADAPTIVE_STRIDE),
        ADAPTIVE_ROWS,
        UnrolledOptions(2, 8, universal=True, lowest_rate=0.05),
    )
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.05)
    imager = Imager("adaptive", patterns, torch.ones(ADAPTIVE_ROWS), 116.0, 69.0, network.eval())
    predictor = predictor_for(network, PredictorOptions(8))
    with torch.no_grad():
        predictor.layers[-1].weight.mul_(30)  # windows shall differ
        predictor.layers[-1].bias.copy_(torch.linspace(2, -2, len(predictor.levels)))
    imager.camera.predictor = predictor.eval().requires_grad_(False)
    return imager


def deciding_imager(seed=0):
    """Build an `adaptive_imager` with random weights of a sensor's own decision."""
    imager = adaptive_imager(seed)
    decision = IntegerDecision(imager.rows, imager.camera.predictor.levels)
    random = np.random.default_rng(seed)
    for buffer in decision.buffers():
        values = random.integers(-60, 60, buffer.shape)
        buffer.copy_(buffer.new_tensor(np.abs(values) % 7 if buffer.ndim == 1 else values))
    decision.prediction.copy_(decision.prediction.tril(-1))  # rows before a row predict it
    decision.around.copy_(decision.around // 8)  # for sums of four, so that scores do not saturate
    imager.camera.decision = decision
    return imager


def short_flex(phases=1):
    """Return flex with the first phases of its network only: all the rest is real."""
    imager = tersense.load("flex")
    network = imager.reconstructor
    network.phases = network.phases[:phases]
    network.options = replace(network.options, phases=phases)
    return imager
