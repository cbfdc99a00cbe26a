"""Windows cut smaller keep the weights that are felt most."""

import importlib.util
from pathlib import Path

import numpy as np

from tersense.sensing.patterns import random_patterns

spec = importlib.util.spec_from_file_location(
    "trim", Path(__file__).parents[2] / "tools" / "trim.py"
)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def test_the_least_felt_weights_go_and_the_rest_stay():
    phi = random_patterns(6, 32, 0.05).phi
    rng = np.random.default_rng(0)
    slope = rng.standard_normal(phi.shape).astype(np.float32)
    trimmed = tool.trim(phi, slope, 30)
    inside = (slice(None), slice(1, 31), slice(1, 31))
    assert trimmed.shape == (6, 30, 30)
    assert (np.count_nonzero(trimmed, axis=(1, 2)) == 45).all()  # 5 % of 30×30
    for was, now, slant in zip(phi[inside], trimmed, slope[inside], strict=True):
        kept, dropped = (was != 0) & (now != 0), (was != 0) & (now == 0)
        assert (now[kept] == was[kept]).all()
        felt = -was * slant
        if dropped.any():
            assert felt[dropped].max() <= felt[kept].min()
        came = (was == 0) & (now != 0)
        assert (now[came] == -np.sign(slant[came])).all()
