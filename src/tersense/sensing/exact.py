"""Exact integer sensing: by additions on a CPU, by an exact matrix product on a GPU.

Both give the same integers, and the same as the exported Verilog and C.

Pixels of more than 8 bits are sensed byte by byte: x = 256·u + l, so y = 256·Φu + Φl. What is exact
and fast for bytes is so for them, and sensing of 8 bits does not change.
"""

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns

if TYPE_CHECKING:
    from tersense.sensing.additions import AddOnlySensor

_PIXELS_AT_ONCE = 2**26  # of windows, copied out to be multiplied


class ExactSensor:
    """Sense uint8 and uint16 images with a frozen Φ.

    Args:
        patterns: The frozen Φ.
    """

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns

    def __call__(
        self,
        planes: NDArray[np.uint8 | np.uint16],
        operator: SensingOperator,
        threads: int = 0,
        depth: int | None = None,
    ) -> NDArray[Any]:
        """Sense channels (C, H, W): return y (C, m, h, w), exact integers.

        Args:
            planes: (C, H, W): uint8, y is of `patterns.measurement_dtype`; or uint16, y is int32.
            operator: The same Φ as an operator; it says where to compute.
            threads: That share an image on a CPU; 0 for as many as there are cores.
            depth: Bits per pixel, which no value exceeds; all of the type where not given.
        """
        self.patterns.require_depth(depth or 8 * planes.dtype.itemsize)
        if operator.phi.device.type == "cpu":
            threads = threads or usable_cores()
            y = np.stack([self._add_only(plane, threads) for plane in planes])
        else:
            y = np.stack([sense_by_products(plane, operator) for plane in planes])
        narrow = planes.dtype == np.uint8
        return y.astype(self.patterns.measurement_dtype if narrow else np.int32, copy=False)

    @cached_property
    def _add_only(self) -> "AddOnlySensor":
        from tersense.sensing.additions import AddOnlySensor  # Numba takes a while to import

        return AddOnlySensor(self.patterns.phi, self.patterns.stride)


def sense_by_products(
    plane: NDArray[np.uint8 | np.uint16], operator: SensingOperator
) -> NDArray[Any]:
    """Sense an image (H, W) where the operator computes: exact integers (m, h, w), int32."""
    device = operator.phi.device
    if plane.dtype == np.uint8:
        y = sense_exactly(torch.from_numpy(plane.copy()).to(device), operator)
    else:
        pixels = torch.from_numpy(plane.astype(np.int32)).to(device)
        y = sense_exactly(pixels & 255, operator) + 256 * sense_exactly(pixels >> 8, operator)
    exact: NDArray[Any] = y.cpu().numpy()
    return exact


@torch.no_grad()
def sense_exactly(pixels: Tensor, operator: SensingOperator) -> Tensor:
    """Sense pixels from 0 to 255, (…, H, W), and return exact integers (…, m, h, w), int32.

    Every partial sum is an integer of magnitude at most 255·B². Floats hold integers exactly up
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


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
