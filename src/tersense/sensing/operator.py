"""The one operator: m patterns of B×B pixels, applied every S pixels.

    x (…, H, W) ──zeros around──▶ S×S cells as channels ──⌈B/S⌉² correlation──▶ y (…, m, h, w)

Cutting the image into cells of S×S pixels turns the sparse, long-strided correlation into an
ordinary small one: one matrix product for blocks (S = B), a 2×2 convolution for S = B/2.

In training every entry of Φ may change, and Φ is a dense tensor. In a trained model nineteen of
twenty entries are zeros for good, and the data steps of a reconstruction on a CPU need not multiply
by them (`SparseOperator`).
"""

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.sensing.geometry import Geometry

# Where leaving out zeros pays: dense products follow no indices and copy no windows out.
_LARGEST_DENSITY = 0.1
_MIN_PATTERNS = 32
_MAX_CELLS = 3


class SensingOperator:
    """Apply Φ to images, and Φᵀ to measurements.

    Args:
        phi: (m, B, B) float; gradients flow through it.
        stride: S.
        alpha: (m,), the scale of each pattern that goes with Θ; ones where none is known. The
            operator itself does not use it: scaling belongs to the reconstruction.

    `whitening` may hold what `gram.whitening` gave for a Φ much like this one: training, where Φ
    moves from step to step, computes it only now and then.

    Example:
        >>> import torch
        >>> from tersense.sensing import SensingOperator
        >>> operator = SensingOperator(torch.ones(1, 2, 2), stride=2)
        >>> operator.forward(torch.ones(4, 5))
        tensor([[[4., 4., 2.],
                 [4., 4., 2.]]])
    """

    def __init__(self, phi: Tensor, stride: int, alpha: Tensor | None = None) -> None:
        self.geometry = Geometry(phi.shape[-1], stride)
        self.phi = phi
        self.whitening: Tensor | None = None
        self.alpha = phi.new_ones(len(phi)) if alpha is None else alpha
        missing = self.geometry.cells * stride - self.geometry.window
        whole_cells = F.pad(phi, (0, missing, 0, missing))
        self._kernel = F.pixel_unshuffle(whole_cells[:, None], stride)  # (m, S², c, c)

    def forward(self, x: Tensor) -> Tensor:
        """Sense images x (…, H, W): return y (…, m, h, w)."""
        height, width = x.shape[-2:]
        extended = F.pad(x.reshape(-1, 1, height, width), self.geometry.padding(height, width))
        y = self._correlate(F.pixel_unshuffle(extended, self.geometry.stride))
        return y.reshape(*x.shape[:-2], *y.shape[1:])

    def __call__(self, x: Tensor) -> Tensor:
        """Sense images, as `forward` does."""
        return self.forward(x)

    def adjoint(self, y: Tensor, size: tuple[int, int]) -> Tensor:
        """Spread measurements y (…, m, h, w) back over images: return Φᵀy (…, H, W).

        Args:
            y: (…, m, h, w).
            size: (H, W) of the image; the measurements of an image do not tell it exactly.
        """
        cells = self._spread(y.reshape(-1, *y.shape[-3:]))
        extended = F.pixel_shuffle(cells, self.geometry.stride)[:, 0]
        left, _, top, _ = self.geometry.padding(*size)
        x = extended[:, top : top + size[0], left : left + size[1]]
        return x.reshape(*y.shape[:-3], *size)

    def for_counts(self, counts: Tensor) -> "SensingOperator":
        """Return the operator of the first patterns, those in use, where that saves time.

        Args:
            counts: How many of the first patterns each window was measured with.
        """
        return self

    def _correlate(self, cells: Tensor) -> Tensor:
        """Turn cells (N, S², h + c − 1, w + c − 1) into measurements (N, m, h, w)."""
        if self.geometry.cells == 1:
            return F.linear(cells.movedim(1, -1), self._kernel.flatten(1)).movedim(-1, 1)
        return F.conv2d(cells, self._kernel)

    def _spread(self, y: Tensor) -> Tensor:
        """Turn measurements (N, m, h, w) into cells (N, S², h + c − 1, w + c − 1)."""
        if self.geometry.cells == 1:
            return F.linear(y.movedim(1, -1), self._kernel.flatten(1).T).movedim(-1, 1)
        return F.conv_transpose2d(y, self._kernel)

    def sense_ones(
        self, size: tuple[int, int], rows: slice = slice(None), columns: slice = slice(None)
    ) -> Tensor:
        """Return Φ⋆1 (m, h, w): what an image of H×W ones gives, for some of its windows.

        Windows away from the border are all alike, so that a small image tells all of them.
        """
        (height, down), (width, across) = (self._shorten(side) for side in size)
        small = self.forward(self.phi.new_ones(height, width))
        return small[:, down[rows]][:, :, across[columns]]

    def _shorten(self, side: int) -> tuple[int, Tensor]:
        """Leave out inner windows: return the side that remains, and the like of each window."""
        stride, border = self.geometry.stride, self.geometry.cells
        count = -(-side // stride)
        removed = max(0, count - 2 * border - 1)
        index = torch.arange(count, device=self.phi.device)
        like = index.minimum((index - removed).clamp(min=border))
        return side - removed * stride, like


def fastest_operator(phi: Tensor, stride: int, alpha: Tensor) -> SensingOperator:
    """Return the operator of a finished camera (see `SensingOperator`), the fastest there is."""
    pays = (
        phi.count_nonzero() < _LARGEST_DENSITY * phi.numel()
        and len(phi) >= _MIN_PATTERNS
        and Geometry(phi.shape[-1], stride).cells <= _MAX_CELLS
    )
    able = phi.device.type == "cpu" and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return (SparseOperator if pays and able else SensingOperator)(phi, stride, alpha)


class SparseOperator(SensingOperator):
    """Leave out the zeros of Φ in inference mode; what needs gradients gets the dense operator."""

    def __init__(self, phi: Tensor, stride: int, alpha: Tensor | None = None) -> None:
        super().__init__(phi, stride, alpha)
        rows = self._kernel.permute(2, 3, 0, 1).flatten(0, 2)  # (c·c·m, S²): Φ, cell by cell
        self._rows, self._columns = _without_zeros(rows), _without_zeros(rows.T)
        # Of the cells that windows reach, so many before and after those of the image are empty.
        before, reach = self.geometry.offset // stride, self.geometry.cells - 1
        self._empty = before, (reach * stride - self.geometry.offset) // stride
        self._first: dict[int, SparseOperator] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy what it is made of: torch cannot copy sparse tensors."""
        return type(self), (self.phi, self.geometry.stride, self.alpha)

    def for_counts(self, counts: Tensor) -> SensingOperator:
        """Return the operator of 32, 64, 128, … patterns; few, so that they can be kept."""
        if not torch.is_inference_mode_enabled():
            return self
        rows = max(_MIN_PATTERNS, 1 << (int(counts.max()) - 1).bit_length())
        if rows >= len(self.phi):
            return self
        if rows not in self._first:
            some = self.phi[:rows], self.geometry.stride, self.alpha[:rows]
            self._first[rows] = SparseOperator(*some)
        return self._first[rows]

    def _correlate(self, cells: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled():
            return super()._correlate(cells)
        (before, after), reach = self._empty, self.geometry.cells - 1
        count, _, down, across = cells.shape
        inner = cells[..., before : down - after, before : across - after].movedim(1, 0)
        parts = (self._rows @ inner.flatten(1)).view(-1, len(self.phi), *inner.shape[1:])
        y = cells.new_zeros(len(self.phi), count, down - reach, across - reach)
        for of_windows, of_cells in self._meetings(y, parts):
            of_windows += of_cells
        return y.movedim(1, 0)

    def _spread(self, y: Tensor) -> Tensor:
        if not torch.is_inference_mode_enabled():
            return super()._spread(y)
        (before, after), more = self._empty, self.geometry.cells - 1 - sum(self._empty)
        count, m, h, w = y.shape
        parts = y.new_zeros(self.geometry.cells**2, m, count, h + more, w + more)
        for of_windows, of_cells in self._meetings(y.movedim(1, 0), parts):
            of_cells.copy_(of_windows)
        cells = (self._columns @ parts.view(len(parts) * m, -1)).view(-1, *parts.shape[2:])
        return F.pad(cells.movedim(1, 0), (before, after, before, after))

    def _meetings(self, of_windows: Tensor, of_cells: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield, for each place (i, j) of a cell in its window, the windows and their cells there.

        Args:
            of_windows: (…, h, w).
            of_cells: (c·c, …), for each place a value of every cell that is not empty.
        """
        (h, w), (down, across) = of_windows.shape[-2:], of_cells.shape[-2:]
        places = product(range(self.geometry.cells), repeat=2)
        for part, (i, j) in zip(of_cells, places, strict=True):
            rows, rows_of_cells = _meet(i - self._empty[0], h, down)
            columns, columns_of_cells = _meet(j - self._empty[0], w, across)
            yield of_windows[..., rows, columns], part[..., rows_of_cells, columns_of_cells]


def _meet(ahead: int, windows: int, cells: int) -> tuple[slice, slice]:
    """Return which of some windows and which of some cells meet, `ahead` cells on."""
    return (
        slice(max(0, -ahead), max(0, min(windows, cells - ahead))),
        slice(max(0, ahead), max(0, min(cells, windows + ahead))),
    )


def _without_zeros(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR")  # that it is new; it is not
        return matrix.contiguous().to_sparse_csr()


def dot_test(operator: SensingOperator, size: tuple[int, int], tolerance: float = 1e-5) -> None:
    """Check that the adjoint is the transpose, ⟨Φx, y⟩ = ⟨x, Φᵀy⟩, for random x and y.

    Args:
        operator: Any operator with `forward` and `adjoint`.
        size: (H, W) of the image.
        tolerance: Of the difference, relative to ‖Φx‖·‖y‖.

    Raises:
        ValueError: They differ by more.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, generator=generator).to(operator.phi)
    sensed = operator.forward(x)
    y = torch.randn(sensed.shape, generator=generator).to(operator.phi)
    left, right = (sensed * y).sum(), (x * operator.adjoint(y, size)).sum()
    difference = float((left - right).abs() / (sensed.norm() * y.norm()))
    if not difference <= tolerance:
        raise ValueError(
            f"the adjoint must be the transpose: ⟨Φx, y⟩ = {left:.6g}, ⟨x, Φᵀy⟩ = {right:.6g}, "
            f"relative difference {difference:.1g} above {tolerance:.1g}"
        )
