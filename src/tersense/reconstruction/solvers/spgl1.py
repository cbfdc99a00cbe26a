"""Basis Pursuit by somebody else: SPGL1 of van den Berg and Friedlander (2008), in Python.

It is here to check our own solver, in its results and in its speed.
"""

import torch
from torch import Tensor

from tersense.errors import TersenseError
from tersense.models.imager import Imager
from tersense.reconstruction.base import Reconstructor
from tersense.reconstruction.classical import dct_atoms, from_dct
from tersense.sensing.operator import Geometry, SensingOperator
from tersense.sensing.ternary import Patterns

_ITERATIONS = 10_000  # more than it takes: what it leaves unsolved would be no comparison


class Spgl1Reconstructor(Reconstructor):
    """Solve for whole windows one by one, with spgl1's own tolerances; there are no `options`."""

    any_rate = True

    def __init__(self, geometry: Geometry, patterns: int, options: None = None) -> None:
        super().__init__(geometry, patterns, options)
        try:
            from spgl1 import spg_bp
        except ImportError as error:
            raise TersenseError("spgl1 is missing: pip install 'tersense[baselines]'") from error
        self._solve = spg_bp

    def forward(self, y: Tensor, operator: SensingOperator, size: tuple[int, int]) -> Tensor:
        """Reconstruct (N, H, V) from y (N, m, h, w); H and V must be made of whole windows."""
        window = self.geometry.window
        if size[0] % window or size[1] % window:
            raise TersenseError(f"spgl1 is given whole windows of {window}×{window} pixels here")
        columns = y.double().movedim(1, -1).flatten(0, 2)  # (N·h·w, m)
        # Orthonormal rows, as our own solver has them: spgl1 takes half as long with them.
        atoms, targets = dct_atoms(operator.phi.double(), columns)
        matrix = atoms.flatten(1).numpy()
        solutions = (self._solve(matrix, b, iter_lim=_ITERATIONS)[0] for b in targets.numpy())
        u = torch.stack([torch.from_numpy(solution) for solution in solutions])
        windows = from_dct(u.view(-1, window, window)).view(*y[:, 0].shape, window, window)
        return windows.transpose(2, 3).reshape(-1, *size).to(y)


class Spgl1Imager(Imager):
    """A camera that learned nothing and reconstructs by spgl1, on the CPU.

    Args:
        patterns: The frozen Φ; S = W.
    """

    def __init__(self, patterns: Patterns) -> None:
        geometry, m = Geometry(patterns.window, patterns.stride), len(patterns)
        solver = Spgl1Reconstructor(geometry, m)
        super().__init__("Basis Pursuit by spgl1", patterns, torch.ones(m), 0.0, 1.0, solver)
