"""Random operators of any geometry, and the test of their adjoints."""

import torch
from hypothesis import strategies as st

geometries = st.integers(1, 9).flatmap(lambda w: st.tuples(st.just(w), st.integers(1, w)))
sizes = st.tuples(st.integers(1, 23), st.integers(1, 23))


def random_phi(rng, m, window, density=0.5):
    return rng.choice([-1, 0, 1], (m, window, window), p=[density / 2, 1 - density, density / 2])


def assert_adjoint(operator, size):
    """⟨Φx, z⟩ = ⟨x, Φᵀz⟩, for images of several channels."""
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    y = operator.forward(x)
    z = torch.randn_like(y)
    back = operator.adjoint(z, size)
    assert back.shape == x.shape
    torch.testing.assert_close((y * z).sum(), (x * back).sum())
