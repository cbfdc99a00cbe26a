"""The operator without its zeros, for a finished camera on a CPU.

In training every entry of Φ may change, and Φ is a dense tensor. In a finished camera nineteen of
twenty entries are zeros for good, and the data steps of a reconstruction need not multiply by them.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from tersense.sensing.operator import Geometry, SensingOperator

# Where it pays: dense products follow no indices and copy no windows out of the picture.
_LARGEST_DENSITY = 0.1
_LEAST_PATTERNS = 32
_MOST_CELLS = 2


def fastest_operator(phi: Tensor, stride: int, alpha: Tensor) -> SensingOperator:
    """Return the operator of a finished camera (see `SensingOperator`), the fastest there is."""
    pays = (
        phi.count_nonzero() < _LARGEST_DENSITY * phi.numel()
        and len(phi) >= _LEAST_PATTERNS
        and Geometry(phi.shape[-1], stride).cells <= _MOST_CELLS
    )
    able = phi.device.type == "cpu" and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return (SparseOperator if pays and able else SensingOperator)(phi, stride, alpha)


class SparseOperator(SensingOperator):
    """Leave out the zeros of Φ in inference mode; what needs gradients gets the dense operator."""

    def __init__(self, phi: Tensor, stride: int, alpha: Tensor | None = None) -> None:
        super().__init__(phi, stride, alpha)
        rows = self._kernel.permute(0, 2, 3, 1).flatten(1)  # (m, c·c·S²)
        self._rows, self._columns = _without_zeros(rows), _without_zeros(rows.T)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy what it is made of: torch cannot copy sparse tensors."""
        return type(self), (self.phi, self.geometry.stride, self.alpha)

    def _correlate(self, cells: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled():
            return super()._correlate(cells)
        count, reach = len(cells), self.geometry.cells - 1
        h, w = cells.shape[-2] - reach, cells.shape[-1] - reach
        cells = cells.movedim(1, 0)
        windows = torch.cat([cells[..., i : i + h, j : j + w] for i, j in self._places()])
        return (self._rows @ windows.flatten(1)).view(-1, count, h, w).movedim(1, 0)

    def _spread(self, y: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled():
            return super()._spread(y)
        count, _, h, w = y.shape
        windows = self._columns @ y.movedim(1, 0).flatten(1)
        if self.geometry.cells == 1:
            return windows.view(-1, count, h, w).movedim(1, 0)
        reach = self.geometry.cells - 1
        cells = y.new_zeros(self.geometry.stride**2, count, h + reach, w + reach)
        parts = windows.view(-1, *cells.shape[:2], h, w)
        for (i, j), part in zip(self._places(), parts, strict=True):
            cells[..., i : i + h, j : j + w] += part
        return cells.movedim(1, 0)

    def _places(self) -> list[tuple[int, int]]:
        """Return where the cells of a window lie, as in the rows of Φ."""
        side = range(self.geometry.cells)
        return [(i, j) for i in side for j in side]


def _without_zeros(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR")  # that it is new; it is not
        return matrix.contiguous().to_sparse_csr()
