"""A trained camera: sense a picture, reconstruct it."""

import math
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError
from tersense.io.images import Picture, check_picture, from_planes, to_pixels, to_planes
from tersense.measurements.measurements import Header, MeasuredValues, Measurements
from tersense.models.camera import NetworkCamera
from tersense.reconstruction.base import Reconstructor
from tersense.sensing.geometry import cut_tiles
from tersense.sensing.nesting import LOWEST_SHARE
from tersense.sensing.operator import sense_exactly
from tersense.sensing.sparse import fastest_operator
from tersense.sensing.ternary import Patterns, rows_for_rate

if TYPE_CHECKING:
    from tersense.sensing.exact import AddOnlySensor


TILE_PIXELS = 2**20


class Imager(NetworkCamera):
    """Patterns and the network trained with them.

    Args:
        name: What to call this camera in messages.
        patterns: The frozen Φ.
        alpha: (m,), the scale of each pattern.
        mean: μ of the pixels it was trained on.
        std: σ of the pixels it was trained on.
        reconstructor: The network.
        about: Where it comes from: recipe, data, figures; free form, kept in the model file.
        device: Where to compute.

    Example:
        >>> import tersense, numpy as np
        >>> imager = tersense.load("paper-r25")
        >>> y = imager.sense(np.full((40, 50), 128, np.uint8))
        >>> y.values.shape
        (256, 2, 2)
        >>> imager.reconstruct(y).shape
        (40, 50)
    """

    def __init__(
        self,
        name: str,
        patterns: Patterns,
        alpha: Tensor,
        mean: float,
        std: float,
        reconstructor: Reconstructor,
        about: dict[str, Any] | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        phi = torch.from_numpy(patterns.phi.astype(np.float32)).to(device)
        operator = fastest_operator(phi, patterns.stride, alpha.float().to(device))
        super().__init__(name, operator, mean, std, reconstructor)
        self.patterns, self.about = patterns, about or {}
        self.threads = 0  # that sense one picture on the CPU; 0 for as many as there are cores

    @property
    def phi(self) -> NDArray[np.int8]:
        """The patterns, (m, W, W) int8 with entries −1, 0, +1."""
        return self.patterns.phi

    @property
    def parameters(self) -> int:
        """The number of weights in the reconstructor."""
        return sum(weights.numel() for weights in self.reconstructor.parameters())

    def __repr__(self) -> str:
        m, window, stride = len(self.patterns), self.patterns.window, self.patterns.stride
        return f"<Imager {self.name}: {m} patterns of {window}×{window} every {stride} pixels>"

    def at_rate(self, rate: float) -> "Imager":
        """Return the camera that takes only as many measurements as `rate` allows."""
        stride, rows = self.patterns.stride, len(self.patterns)
        if not (math.isfinite(rate) and rate > 0):
            raise TersenseError(f"rate {rate:g} is not a share of the pixels; use one above 0")
        if rate * stride**2 < 1 - 1e-6:
            raise TersenseError(
                f"rate {rate:g} is less than one measurement for {stride}×{stride} pixels; "
                f"use at least {1 / stride**2:.3g}"
            )
        wanted = rows_for_rate(rate, stride)
        if wanted > rows:
            less = " or less" if self.reconstructor.any_rate else ""
            raise TersenseError(
                f"rate {rate:g} needs {wanted} rows, but {self.name} has {rows}; "
                f"use a rate of {self.patterns.rate:g}{less}"
            )
        if wanted == rows:
            return self
        if not self.reconstructor.any_rate:
            raise TersenseError(
                f"{self.name} works at rate {self.patterns.rate:g} only, not at {rate:g}; "
                "leave the rate out or choose another model"
            )
        if wanted < (least := int(rows * LOWEST_SHARE)):
            raise TersenseError(
                f"{self.name} was not trained for rates as low as {rate:g}; use "
                f"{least / stride**2:.3g} to {self.patterns.rate:.3g}"
            )
        lower = Imager(
            self.name, self.patterns.first(wanted), self.operator.alpha[:wanted], self.mean,
            self.std, self.reconstructor, self.about, self.device,
        )  # fmt: skip
        lower.precision, lower.threads = self.precision, self.threads
        return lower

    def sense(
        self, picture: Any, bits: int | None = None, noise: float = 0.0, seed: int = 0
    ) -> Measurements:
        """Take the measurements of a picture: exact integers.

        Args:
            picture: (H, V) or (H, V, 3) uint8.
            bits: Model a readout of so many bits that covers the patterns' full range.
            noise: Model a sensor with Gaussian noise of this deviation, in pixel values.
            seed: Of the noise.
        """
        pixels = check_picture(picture)
        y = self._sense_planes(to_planes(pixels))
        header = Header(
            height=pixels.shape[0],
            width=pixels.shape[1],
            mode="L" if pixels.ndim == 2 else "RGB",
            window=self.patterns.window,
            stride=self.patterns.stride,
            patterns=len(self.patterns),
            phi=self.patterns.hash,
        )
        measurements = Measurements(y[0] if pixels.ndim == 2 else y, header)
        if noise:
            measurements = measurements.with_noise(noise, seed)
        if bits is not None:
            measurements = measurements.quantized(bits, self.patterns.largest_magnitude)
        return measurements

    def _sense_planes(self, planes: Picture) -> NDArray[Any]:
        """Sense channels (C, H, V): by additions on a CPU, by an exact product on a GPU."""
        if self.device.type == "cpu":
            threads = self.threads or _usable_cores()
            return np.stack([self._add_only(plane, threads) for plane in planes])
        y = [sense_exactly(torch.from_numpy(plane.copy()).to(self.device), self.operator)
             for plane in planes]  # fmt: skip
        return torch.stack(y).cpu().numpy().astype(self.patterns.measurement_dtype)

    @cached_property
    def _add_only(self) -> "AddOnlySensor":
        from tersense.sensing.exact import AddOnlySensor  # Numba takes a while to import

        return AddOnlySensor(self.phi, self.patterns.stride)

    def reconstruct(self, measurements: Measurements | MeasuredValues) -> Picture:
        """Return the picture, uint8 of its own size, (H, V) or (H, V, 3).

        Measurements that are missing (NaN) are estimated from the others.
        """
        picture: Picture = np.empty(_picture_shape(measurements), np.uint8)
        for place, estimate in self._estimates(measurements):
            picture[place] = to_pixels(estimate)
        return picture

    def estimate(self, measurements: Measurements | MeasuredValues) -> NDArray[np.float32]:
        """Return the picture as the network gives it, neither rounded nor clipped."""
        picture = np.empty(_picture_shape(measurements), np.float32)
        for place, estimate in self._estimates(measurements):
            picture[place] = estimate
        return picture

    def _estimates(
        self, measurements: Measurements | MeasuredValues
    ) -> Iterator[tuple[tuple[slice, slice], NDArray[np.float32]]]:
        """Reconstruct tile by tile, in memory that does not grow with the picture."""
        header = measurements.header
        rows = header.patterns
        if rows < len(self.patterns) and header.phi == self.patterns.first(rows).hash:
            yield from self.at_rate(rows / self.patterns.stride**2)._estimates(measurements)
            return
        if header.phi != self.patterns.hash:
            raise TersenseError(
                f"these measurements were taken with patterns {header.phi[:12]}…, but "
                f"{self.name} has {self.patterns.hash[:12]}…; use the model that sensed them "
                "(`tersense info` names it where it is built in)"
            )
        own = self.patterns.window, self.patterns.stride
        if (header.window, header.stride) != own:
            raise TersenseError(
                f"these measurements have window {header.window} and stride {header.stride}, but "
                f"{self.name} has {own[0]} and {own[1]}; use the model that sensed them"
            )
        size = header.height, header.width
        y = measurements.values.reshape(-1, *header.shape[-3:])
        for tile in cut_tiles(self.geometry, size, self.reconstructor.halo, TILE_PIXELS):
            part = torch.from_numpy(y[(..., *tile.windows)].astype(np.float32)) * header.step
            ones = self.operator.sense_ones(size, *tile.windows)
            planes = self.reconstruct_planes(part, ones, tile.size)[(..., *tile.inside)]
            yield tile.place, from_planes(planes.cpu().numpy())

    def save_pretrained(self, folder: str | Path, **options: Any) -> Path:
        """Write the camera and a card that explains it into a folder; see `hub`."""
        from tersense.models import hub

        return hub.save_pretrained(self, folder, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the camera and its card to the model hub; see `hub`."""
        from tersense.models import hub

        return hub.push_to_hub(self, repo_id, **options)

    @staticmethod
    def from_pretrained(source: str | Path, **options: Any) -> "Imager":
        """Load a camera from a folder or from the model hub; see `hub`."""
        from tersense.models import hub

        return hub.from_pretrained(source, **options)

    def capture(self, picture: Picture) -> tuple[NDArray[Any], int]:
        """Sense and reconstruct one gray picture (H, V); see `Camera`."""
        y = self.sense(picture)
        return self.estimate(y), y.values.size


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _picture_shape(measurements: Measurements | MeasuredValues) -> tuple[int, ...]:
    if not isinstance(measurements, Measurements | MeasuredValues):
        raise TypeError(f"give Measurements, as sense() returns them, not {type(measurements)}")
    header = measurements.header
    size = header.height, header.width
    return size if header.mode == "L" else (*size, 3)
