"""Reconstruct without learning: Basis Pursuit and total variation.

The solvers work on raw pixels, as they were sensed, and on windows that do not overlap. `spgl1`
(van den Berg and Friedlander 2008) is here to check our own solver, in its results and its speed.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from tersense.errors import TersenseError, install_hint
from tersense.io.schema import above, validate
from tersense.reconstruction.base import Reconstructor, register
from tersense.reconstruction.solvers.primal_dual import (
    basis_pursuit,
    dct_atoms,
    from_dct,
    total_variation,
)
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator

NAMES = {"bp": "Basis Pursuit", "tv": "total variation", "spgl1": "Basis Pursuit by spgl1"}
_ITERATIONS = 10_000  # of spgl1; what it leaves unsolved would be no comparison


@dataclass(frozen=True)
class SolverOptions:
    """When to stop.

    Args:
        tolerance: The gap to stop at.
    """

    tolerance: Annotated[float, above(0)] = 1e-3

    def __post_init__(self) -> None:
        validate("reconstructor", self)


class _Solver(Reconstructor):
    """Work on raw pixels of windows that do not overlap."""

    any_rate = raw_pixels = True
    half_precision = False

    def __init__(self, geometry: Geometry, rows: int, options: Any) -> None:
        super().__init__(geometry, rows, options)
        if geometry.stride != geometry.window:
            raise TersenseError(
                f"stride must be the window, {geometry.window}, for {self.registered_name}, got "
                f"{geometry.stride}: it solves for windows that do not overlap; linear takes any"
            )


@register("tv")
class TotalVariationReconstructor(_Solver):
    """Find the image of least total variation that has these measurements."""

    Options = SolverOptions
    halo = 1  # total variation sees across the seam of two tiles

    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); see `Reconstructor`."""
        return total_variation(y, operator, size, self.options.tolerance).x


@register("bp")
class BasisPursuitReconstructor(_Solver):
    """Find the windows of least ℓ1 norm in the DCT domain that have these measurements."""

    Options = SolverOptions

    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); see `Reconstructor`."""
        x = y.new_empty(len(y), *size)
        for (rows, columns), (top, left), (height, width) in self.geometry.block_kinds(size):
            part, phi = y[..., rows, columns].movedim(1, -1), operator.phi[:, :height, :width]
            windows = basis_pursuit(part.flatten(0, 2), phi, self.options.tolerance).x
            windows = windows.view(*part.shape[:3], height, width)
            x[:, top, left] = windows.transpose(2, 3).flatten(3).flatten(1, 2)
        return x


@dataclass(frozen=True)
class Spgl1Options:
    """None: spgl1 stops at its own tolerances."""


@register("spgl1")
class Spgl1Reconstructor(_Solver):
    """Basis Pursuit by spgl1, whole windows one by one, on the CPU."""

    Options = Spgl1Options

    def __init__(self, geometry: Geometry, rows: int, options: Spgl1Options) -> None:
        super().__init__(geometry, rows, options)
        try:
            from spgl1 import spg_bp
        except ImportError as error:
            raise TersenseError(f"spgl1 is missing: {install_hint('baselines')}") from error
        self._solve = spg_bp

    @torch.no_grad()
    def forward(
        self,
        y: Tensor,
        operator: SensingOperator,
        size: tuple[int, int],
        deviation: Tensor | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct (N, H, W) from y (N, m, h, w); H and W must be made of whole windows."""
        window = self.geometry.window
        if size[0] % window or size[1] % window:
            raise TersenseError(f"spgl1 is given whole windows of {window}×{window} pixels here")
        columns = y.double().movedim(1, -1).flatten(0, 2)  # (N·h·w, m)
        # Orthonormal rows, as our own solver has them: spgl1 takes half as long with them.
        atoms, targets = dct_atoms(operator.phi.double(), columns)
        matrix = atoms.flatten(1).cpu().numpy()
        solutions = (self._solve(matrix, b, iter_lim=_ITERATIONS)[0] for b in targets.cpu().numpy())
        u = torch.stack([torch.from_numpy(solution) for solution in solutions])
        windows = from_dct(u.view(-1, window, window)).view(*y[:, 0].shape, window, window)
        return windows.transpose(2, 3).reshape(-1, *size).to(y)
