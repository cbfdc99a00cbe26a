"""The operator without its zeros, for a finished camera on a CPU.

In training every entry of Φ may change, and Φ is a dense tensor. A finished camera has twenty zeros
for each entry that is not, and the data steps of a reconstruction need not multiply by them.
"""

import warnings

import torch
from torch import Tensor

from tersense.sensing import SensingOperator

_PAYS_BELOW = 0.1  # share of entries that are not zero; dense products have no indices to follow


def fastest_operator(phi: Tensor, stride: int, alpha: Tensor) -> SensingOperator:
    """Return the operator of a finished camera (see `SensingOperator`), the fastest there is."""
    sparse = phi.count_nonzero() < _PAYS_BELOW * phi.numel()
    here = phi.device.type == "cpu" and torch._C.has_mkl
    return (SparseOperator if sparse and here else SensingOperator)(phi, stride, alpha)


class SparseOperator(SensingOperator):
    """Leave out the zeros of Φ in inference mode; what needs gradients gets the dense operator."""

    def __init__(self, phi: Tensor, stride: int, alpha: Tensor | None = None) -> None:
        super().__init__(phi, stride, alpha)
        rows = self._kernel.permute(0, 2, 3, 1).flatten(1)  # (m, c·c·S²)
        self._rows, self._columns = _without_zeros(rows), _without_zeros(rows.T)

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
        warnings.simplefilter("ignore")  # torch calls this format new; it has been there for years
        return matrix.contiguous().to_sparse_csr()
