"""From measurements back to the image.

`base` has the interface and the registry. Networks: `mlp` (the paper's), `unrolled` (ours), `sda`
(the paper's rival). Without training: `gaussian` (the best linear estimate) and `classical` (Basis
Pursuit, total variation), by the `solvers`.
"""

from tersense.reconstruction.base import (
    Normalization,
    Reconstructor,
    build_reconstructor,
    find_reconstructor,
    register,
)

__all__ = [
    "Normalization",
    "Reconstructor",
    "build_reconstructor",
    "find_reconstructor",
    "register",
]
