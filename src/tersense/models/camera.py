"""What every camera can do, ours or another's: sense pictures and estimate them."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.io.images import Picture
from tersense.reconstruction.base import Reconstructor
from tersense.reconstruction.missing import fill_missing
from tersense.sensing.operator import Geometry, SensingOperator


class Camera(ABC):
    """A way to sense windows and to give pictures back, as far as evaluation needs it.

    Subclasses set `name`, `geometry`, `rows` (m, the measurements of a window) and `device`.
    """

    name: str
    geometry: Geometry
    rows: int
    device: torch.device

    @property
    def rate(self) -> float:
        """R = m/S², measurements a pixel of a large picture."""
        return self.rows / self.geometry.stride**2

    @abstractmethod
    def sense_planes(self, pixels: Tensor) -> Tensor:
        """Sense gray pictures (N, H, V) uint8: return y (N, m, h, w)."""

    @abstractmethod
    def estimate_planes(self, y: Tensor, size: tuple[int, int]) -> Tensor:
        """Reconstruct gray pictures of `size` (H, V) from y (N, m, h, w): return (N, H, V)."""

    def capture(self, picture: Picture) -> tuple[NDArray[Any], int]:
        """Sense and reconstruct one gray picture (H, V).

        Returns:
            The estimate (H, V) as it is, and the number of measurements that it took.
        """
        pixels = torch.from_numpy(np.ascontiguousarray(picture)).to(self.device)
        y = self.sense_planes(pixels[None])
        estimate = self.estimate_planes(y, (picture.shape[0], picture.shape[1]))
        return estimate[0].cpu().numpy(), y.numel()


class NetworkCamera(Camera):
    """Sensing weights of any kind and the network trained with them.

    Args:
        name: What to call this camera in messages.
        operator: Φ, its stride and α.
        mean: μ of the pixels it was trained on.
        std: σ of the pixels it was trained on.
        reconstructor: The network.

    `precision` may be set to bfloat16 where the machine is fast at it.
    """

    def __init__(
        self,
        name: str,
        operator: SensingOperator,
        mean: float,
        std: float,
        reconstructor: Reconstructor,
    ) -> None:
        self.name, self.operator, self.mean, self.std = name, operator, mean, std
        self.geometry, self.rows = operator.geometry, len(operator.phi)
        self.device = operator.phi.device
        self.reconstructor = reconstructor.to(self.device).eval()
        self.precision = "float32"

    def sense_planes(self, pixels: Tensor) -> Tensor:
        """Sense gray pictures (N, H, V) uint8 as real numbers; see `Camera`."""
        return self.operator.forward(pixels.to(self.device).float())

    def estimate_planes(self, y: Tensor, size: tuple[int, int]) -> Tensor:
        """Reconstruct (N, H, V) from y (N, m, h, w), in one piece; see `Camera`."""
        return self.reconstruct_planes(y, self.operator.sense_ones(size), size)

    @torch.inference_mode()
    def reconstruct_planes(self, y: Tensor, ones: Tensor, size: tuple[int, int]) -> Tensor:
        """Reconstruct pixels (N, H, V) from y (N, m, h, w), given Φ⋆1 (m, h, w).

        Φ⋆1 tells which pixels each window really covers: outside there is no mean to remove. A
        measurement that is NaN is missing; it is estimated from the others.
        """
        normalised = (y.to(self.device) - self.mean * ones) / self.std
        if normalised.isnan().any():
            normalised = fill_missing(normalised, self.operator, size)
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bfloat16"):
            picture: Tensor = self.reconstructor(normalised, self.operator, size)
        return picture.float() * self.std + self.mean
