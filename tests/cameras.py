"""Untrained cameras of any geometry."""

import numpy as np
import torch

from tersense.models.imager import Imager
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns


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
