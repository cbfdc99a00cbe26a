"""The one operator: m patterns of W×W pixels, applied every S pixels.

An image of H×V pixels has ⌈H/S⌉×⌈V/S⌉ windows. Window (i, j) starts at pixel
(i·S − (W−S)/2, j·S − (W−S)/2); pixels outside the picture add nothing.

    x (…, H, V) ──zeros around──▶ S×S cells as channels ──⌈W/S⌉² correlation──▶ y (…, m, h, w)

Cutting the picture into cells of S×S pixels turns the sparse, long-strided correlation into an
ordinary small one: one matrix product for blocks (S = W), a 2×2 convolution for S = W/2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.errors import TersenseError

BlockKind = tuple[tuple[slice, slice], tuple[slice, slice], tuple[int, int]]


@dataclass(frozen=True)
class Geometry:
    """Where the windows of a picture lie.

    Args:
        window: W, the side of a window in pixels.
        stride: S, the distance between windows; at most W.
    """

    window: int
    stride: int

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.window:
            raise ValueError(f"stride {self.stride} must lie between 1 and window {self.window}")

    @property
    def offset(self) -> int:
        """Return by how many pixels the first window begins before the picture."""
        return (self.window - self.stride) // 2

    @property
    def cells(self) -> int:
        """Return how many S×S cells cover a window's side."""
        return -(-self.window // self.stride)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return (h, w), the number of windows down and across."""
        # Not −(−a // b): where a stands for any size, runtimes may divide towards zero.
        more = self.stride - 1
        return (height + more) // self.stride, (width + more) // self.stride

    def padding(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the zeros to add left, right, above and below (the order of `F.pad`)."""
        h, w = self.grid(height, width)
        covered_height = (h - 1 + self.cells) * self.stride
        covered_width = (w - 1 + self.cells) * self.stride
        return (
            self.offset,
            covered_width - width - self.offset,
            self.offset,
            covered_height - height - self.offset,
        )

    def block_kinds(self, size: tuple[int, int]) -> Iterator[BlockKind]:
        """Sort blocks, whole or cut by the end of the picture: yield places, pixels and shape.

        Args:
            size: (H, V) of the picture.
        """
        if self.stride != self.window:
            raise TersenseError(
                f"windows {self.window} wide and {self.stride} apart overlap; "
                f"use stride {self.window}"
            )

        def kinds(side: int) -> Iterator[tuple[slice, slice, int]]:
            count, rest = divmod(side, self.window)
            if count:
                yield slice(count), slice(count * self.window), self.window
            if rest:
                yield slice(count, None), slice(count * self.window, None), rest

        for (rows, top, height), (columns, left, width) in product(kinds(size[0]), kinds(size[1])):
            yield (rows, columns), (top, left), (height, width)


class SensingOperator:
    """Apply Φ to pictures, and Φᵀ to measurements.

    Args:
        phi: (m, W, W) float; gradients flow through it.
        stride: S.
        alpha: (m,), the scale of each pattern that goes with Θ; ones where none is known. The
            operator itself does not use it: scaling belongs to the reconstruction.

    Example:
        >>> operator = SensingOperator(torch.ones(1, 2, 2), stride=2)
        >>> operator.forward(torch.ones(4, 5))
        tensor([[[4., 4., 2.],
                 [4., 4., 2.]]])
    """

    def __init__(self, phi: Tensor, stride: int, alpha: Tensor | None = None) -> None:
        self.geometry = Geometry(phi.shape[-1], stride)
        self.phi = phi
        self.alpha = phi.new_ones(len(phi)) if alpha is None else alpha
        missing = self.geometry.cells * stride - self.geometry.window
        whole_cells = F.pad(phi, (0, missing, 0, missing))
        self._kernel = F.pixel_unshuffle(whole_cells[:, None], stride)  # (m, S², c, c)

    def forward(self, x: Tensor) -> Tensor:
        """Sense pictures x (…, H, V): return y (…, m, h, w)."""
        height, width = x.shape[-2:]
        extended = F.pad(x.reshape(-1, 1, height, width), self.geometry.padding(height, width))
        y = self._correlate(F.pixel_unshuffle(extended, self.geometry.stride))
        return y.reshape(*x.shape[:-2], *y.shape[1:])

    def adjoint(self, y: Tensor, size: tuple[int, int]) -> Tensor:
        """Spread measurements y (…, m, h, w) back over pictures: return Φᵀy (…, H, V).

        Args:
            y: (…, m, h, w).
            size: (H, V) of the picture; the measurements of a picture do not tell it exactly.
        """
        cells = self._spread(y.reshape(-1, *y.shape[-3:]))
        extended = F.pixel_shuffle(cells, self.geometry.stride)[:, 0]
        left, _, top, _ = self.geometry.padding(*size)
        x = extended[:, top : top + size[0], left : left + size[1]]
        return x.reshape(*y.shape[:-3], *size)

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
        """Return Φ⋆1 (m, h, w): what a picture of H×V ones gives, for some of its windows.

        Windows away from the border are all alike, so that a small picture tells all of them.
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


_PIXELS_AT_ONCE = 2**26  # of windows, copied out to be multiplied


@torch.no_grad()
def sense_exactly(pixels: Tensor, operator: SensingOperator) -> Tensor:
    """Sense uint8 pixels (…, H, V) and return exact integers (…, m, h, w), int32.

    Every partial sum is an integer of magnitude at most 255·W². Floats hold integers exactly up
    to 2²⁴ (single precision) or 2⁵³ (double), in whatever order they are added; the narrowest
    that suffices is used. These are plain matrix products, strip by strip, because a convolution
    library may choose a transform (FFT, Winograd) that does not add integers.
    """
    window, stride = operator.geometry.window, operator.geometry.stride
    dtype = torch.float32 if 255 * window**2 < 2**24 else torch.float64
    extended = F.pad(pixels.to(dtype), operator.geometry.padding(*pixels.shape[-2:]))
    windows = extended.unfold(-2, window, stride).unfold(-2, window, stride)
    phi, rows = operator.phi.to(dtype), windows.shape[-4]
    at_once = max(1, _PIXELS_AT_ONCE * rows // windows.numel())
    strips = [
        torch.tensordot(strip, phi, dims=([-2, -1], [-2, -1])).to(torch.int32)
        for strip in torch.split(windows, at_once, dim=-4)
    ]
    return torch.cat(strips, dim=-3).movedim(-1, -3)
