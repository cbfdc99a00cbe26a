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
    from tersense.sensing.counted import CountedSensor

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
        counts: NDArray[np.int32] | None = None,
    ) -> NDArray[Any]:
        """Sense channels (C, H, W): return y (C, m, h, w), exact integers.

        Args:
            planes: (C, H, W): uint8, y is of `patterns.measurement_dtype`; or uint16, y is int32.
            operator: The same Φ as an operator; it says where to compute.
            threads: That share an image on a CPU; 0 for as many as there are cores.
            depth: Bits per pixel, which no value exceeds; all of the type where not given.
            counts: (h, w) or (C, h, w), the first rows to sense each window with; what is beyond
                them is 0. None for all.
        """
        self.patterns.require_depth(depth or 8 * planes.dtype.itemsize)
        threads = threads or usable_cores()
        each: Any = [None] * len(planes)
        if counts is not None:
            each = np.broadcast_to(counts, (len(planes), *counts.shape[-2:]))
        y = np.stack([
            self._sense(plane, operator, threads, wanted)
            for plane, wanted in zip(planes, each, strict=True)
        ])  # fmt: skip
        narrow = planes.dtype == np.uint8
        return y.astype(self.patterns.measurement_dtype if narrow else np.int32, copy=False)

    def _sense(
        self,
        plane: NDArray[np.uint8 | np.uint16],
        operator: SensingOperator,
        threads: int,
        counts: NDArray[np.int32] | None,
    ) -> NDArray[Any]:
        if operator.phi.device.type != "cpu":
            return sense_by_products(plane, operator, counts)
        if counts is None:
            return self._add_only(plane, threads)
        return self._counted(plane, counts, threads)

    @cached_property
    def _add_only(self) -> "AddOnlySensor":
        from tersense.sensing.additions import AddOnlySensor  # Numba takes a while to import

        return AddOnlySensor(self.patterns.phi, self.patterns.stride)

    @cached_property
    def _counted(self) -> "CountedSensor":
        from tersense.sensing.counted import CountedSensor

        return CountedSensor(self.patterns.phi, self.patterns.stride)


def sense_by_products(
    plane: NDArray[np.uint8 | np.uint16],
    operator: SensingOperator,
    counts: NDArray[np.int32] | None = None,
) -> NDArray[Any]:
    """Sense an image (H, W) where the operator computes: exact integers (m, h, w), int32.

    Args:
        plane: (H, W).
        operator: Φ.
        counts: (h, w), as in `sense_exactly`.
    """
    device = operator.phi.device
    wanted = None if counts is None else torch.from_numpy(counts).to(device)
    if plane.dtype == np.uint8:
        y = sense_exactly(torch.from_numpy(plane.copy()).to(device), operator, wanted)
    else:
        pixels = torch.from_numpy(plane.astype(np.int32)).to(device)
        lower, upper = (
            sense_exactly(part, operator, wanted) for part in (pixels & 255, pixels >> 8)
        )
        y = lower + 256 * upper
    exact: NDArray[Any] = y.cpu().numpy()
    return exact


def sense_light(planes: NDArray[np.uint8 | np.uint16], operator: SensingOperator) -> NDArray[Any]:
    """Return |Φ|x (C, m, h, w) of channels (C, H, W): what lights the exposures of each pattern."""
    lit = SensingOperator(operator.phi.abs(), operator.geometry.stride)
    return np.stack([sense_by_products(plane, lit) for plane in planes])


@torch.no_grad()
def sense_exactly(
    pixels: Tensor, operator: SensingOperator, counts: Tensor | None = None
) -> Tensor:
    """Sense pixels from 0 to 255, (…, H, W), and return exact integers (…, m, h, w), int32.

    With counts (…, h, w), windows are sensed with so many of their first rows; the rest is 0. Rows
    that no window asks for are not computed, the others for all windows.

    Every partial sum is an integer of magnitude at most 255·B². Floats hold integers exactly up
    to 2²⁴ (single precision) or 2⁵³ (double), in whatever order they are added; the narrowest
    that suffices is used. These are plain matrix products, strip by strip, because a convolution
    library may choose a transform (FFT, Winograd) that does not add integers.
    """
    window, stride = operator.geometry.window, operator.geometry.stride
    dtype = torch.float32 if 255 * window**2 < 2**24 else torch.float64
    extended = F.pad(pixels.to(dtype), operator.geometry.padding(*pixels.shape[-2:]))
    windows = extended.unfold(-2, window, stride).unfold(-2, window, stride)
    most = len(operator.phi) if counts is None else int(counts.max())
    phi, rows = operator.phi[:most].to(dtype), windows.shape[-4]
    at_once = max(1, _PIXELS_AT_ONCE * rows // windows.numel())
    strips = [
        torch.tensordot(strip, phi, dims=([-2, -1], [-2, -1])).to(torch.int32)
        for strip in torch.split(windows, at_once, dim=-4)
    ]
    y = torch.cat(strips, dim=-3).movedim(-1, -3)
    if counts is None:
        return y
    there = torch.arange(most, device=y.device)[:, None, None] < counts[..., None, :, :]
    return F.pad(y.where(there, 0), (0, 0, 0, 0, 0, len(operator.phi) - most))


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
