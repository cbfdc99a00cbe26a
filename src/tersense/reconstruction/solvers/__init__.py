"""Solvers for large linear and convex problems: conjugate gradients, Φ⁺, Basis Pursuit, TV."""

from tersense.reconstruction.solvers.conjugate_gradient import solve
from tersense.reconstruction.solvers.least_squares import least_squares
from tersense.reconstruction.solvers.primal_dual import basis_pursuit, total_variation

__all__ = ["basis_pursuit", "least_squares", "solve", "total_variation"]
