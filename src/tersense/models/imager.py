"""A trained camera on whole images: exact integers out, the image back.

`Imager` puts together what the floors below offer: frozen `Patterns`, exact sensing,
`Measurements`, and a `Camera` that reconstructs tile by tile.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError
from tersense.evaluation.protocols import Captured
from tersense.io.deep import USUAL, pixel_type
from tersense.io.images import ImageArray, check_image, from_planes, to_pixels, to_planes
from tersense.measurements import color
from tersense.measurements.counts import check_counts
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import Header
from tersense.models.camera import Camera
from tersense.models.capture import TILE_PIXELS, Capture
from tersense.reconstruction.base import Normalization, Reconstructor, build_reconstructor
from tersense.runtime.device import choose_device
from tersense.sensing.exact import ExactSensor, sense_light
from tersense.sensing.geometry import Geometry, cut_tiles
from tersense.sensing.operator import SensingOperator, fastest_operator
from tersense.sensing.patterns import Patterns, rows_for_rate

_USUAL_PIXELS = 116.18, 68.64  # mean and deviation of photographs, as in the paper's code


class Imager:
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

    `threads` says how many share an image when it is sensed on a CPU, 0 for as many as there are
    cores. `camera` is the same on batches of tensors, as a `torch.nn.Module`.

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
        self.camera = Camera(name, operator, Normalization(mean, std), reconstructor)
        self.patterns, self.about, self.threads = patterns, about or {}, 0

    @classmethod
    def untrained(
        cls,
        patterns: Patterns,
        reconstructor: str = "linear",
        name: str = "",
        device: str | torch.device = "cpu",
        **options: Any,
    ) -> "Imager":
        """Return a camera that has learned nothing: any patterns and a classical reconstructor.

        Args:
            patterns: The frozen Φ, learned or not.
            reconstructor: linear (the best linear estimate), or for blocks tv (total variation),
                bp (Basis Pursuit) or spgl1 (the same by that package).
            name: What to call it in messages; that of the reconstructor where not given.
            device: Where to compute.
            options: Of the reconstructor, such as `tolerance=1e-4`.
        """
        geometry, m = Geometry(patterns.window, patterns.stride), len(patterns)
        solver = build_reconstructor(reconstructor, options, geometry, m)
        if next(solver.parameters(), None) is not None:
            raise TersenseError(
                f"{reconstructor} must be trained; use linear, tv or bp, or load a model"
            )
        mean, std = (0.0, 1.0) if solver.raw_pixels else _USUAL_PIXELS
        about = {"training": "none"}
        device = choose_device(device)
        return cls(name or reconstructor, patterns, torch.ones(m), mean, std, solver, about, device)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.camera.name

    @name.setter
    def name(self, name: str) -> None:
        self.camera.name = name

    @property
    def precision(self) -> str:
        """float32, or bfloat16 where the machine is fast at it."""
        return self.camera.precision

    @precision.setter
    def precision(self, precision: str) -> None:
        self.camera.precision = precision

    @property
    def phi(self) -> NDArray[np.int8]:
        """The measurement matrix as patterns, (m, B, B) int8 with entries −1, 0, +1."""
        return self.patterns.phi

    @property
    def operator(self) -> SensingOperator:
        """Φ and Φᵀ on tensors, with α."""
        return self.camera.operator

    @property
    def reconstructor(self) -> Reconstructor:
        """The network."""
        return self.camera.reconstructor

    @property
    def mean(self) -> float:
        """μ of the training pixels."""
        return self.camera.normalization.mean

    @property
    def std(self) -> float:
        """σ of the training pixels."""
        return self.camera.normalization.std

    @property
    def geometry(self) -> Geometry:
        """Window and stride."""
        return self.camera.geometry

    @property
    def rows(self) -> int:
        """m, the measurements per window."""
        return len(self.patterns)

    @property
    def rate(self) -> float:
        """R = m/S², the sampling ratio: measurements per pixel of a large image."""
        return self.patterns.rate

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.camera.device

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
            raise TersenseError(f"rate must be a number above 0, as 0.1, got {rate:g}")
        if rate * stride**2 < 1 - 1e-6:
            raise TersenseError(
                f"rate must be at least {1 / stride**2:.3g}, one measurement per {stride}×{stride} "
                f"pixels, got {rate:g}"
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
        lowest = self.reconstructor.lowest_rate
        if wanted < rows_for_rate(lowest, stride):
            raise TersenseError(
                f"{self.name} was not trained for rates as low as {rate:g}; use "
                f"{lowest:.3g} to {self.patterns.rate:.3g}"
            )
        lower = Imager(
            self.name, self.patterns.first(wanted), self.operator.alpha[:wanted], self.mean,
            self.std, self.reconstructor, self.about, self.device,
        )  # fmt: skip
        lower.precision, lower.threads = self.precision, self.threads
        return lower

    def sense(
        self,
        image: Any,
        bits: int | None = None,
        noise: float = 0.0,
        seed: int = 0,
        readout: Readout | None = None,
        depth: int | None = None,
        counts: Any = None,
    ) -> Measurements:
        """Take the measurements of an image: exact integers, unless a readout is modeled.

        Args:
            image: (H, W) or (H, W, 3), uint8; uint16 for deeper pixels.
            bits: Model a readout of so many bits, each pattern ranged to its own y.
            noise: Model a sensor with Gaussian noise of this deviation, in pixel values.
            seed: Of the noise.
            readout: Model this readout instead of bits, noise and seed.
            depth: Bits per pixel, 9 to 16, of uint16 pixels from 0 to 2^depth − 1; 8 for uint8.
            counts: Measure each window with so many of its first rows: integers (h, w), in color
                also (3, h, w), or one for all windows. Default: all rows.
        """
        if readout is None:
            readout = Readout.ranging(bits, noise, seed)
        elif bits is not None or noise:
            raise ValueError("bits and noise belong to the readout; give one or the other")
        pixels, depth = check_image(image, depth), USUAL if depth is None else int(depth)
        header = Header(
            height=pixels.shape[0],
            width=pixels.shape[1],
            mode="L" if pixels.ndim == 2 else "RGB",
            window=self.patterns.window,
            stride=self.patterns.stride,
            rows=len(self.patterns),
            phi=self.patterns.hash,
            depth=depth,
        )
        if counts is not None:
            self.camera.require_any_count()
            counts = check_counts(counts, header.shape)
        planes = to_planes(pixels)
        y = self._exact(planes, self.operator, self.threads, depth, counts)
        exact = Measurements(y.reshape(header.shape), header, counts)
        if readout.exact:
            return exact
        light = sense_light(planes, self.operator) if readout.photons else None
        return exact.read_out(readout, None if light is None else light.reshape(header.shape))

    @cached_property
    def _exact(self) -> ExactSensor:
        return ExactSensor(self.patterns)

    def reconstruct(self, measurements: Measurements | MeasuredValues) -> ImageArray:
        """Return the image, of its own size and depth, (H, W) or (H, W, 3), uint8 or uint16.

        Measurements that are missing (NaN) are estimated from the others.
        """
        shape, depth = _image_shape(measurements), measurements.header.depth
        image: ImageArray = np.empty(shape, pixel_type(depth))
        for place, estimate in self._estimates(measurements):
            image[place] = to_pixels(estimate, depth)
        return image

    def estimate(self, measurements: Measurements | MeasuredValues) -> NDArray[np.float32]:
        """Return the image as the network gives it, neither rounded nor clipped."""
        image = np.empty(_image_shape(measurements), np.float32)
        for place, estimate in self._estimates(measurements):
            image[place] = estimate
        return image

    def capture(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Captured:
        """Sense and reconstruct one image, (H, W) or (H, W, 3); see `sense`."""
        y = self.sense(image, readout=readout, depth=depth)
        return Captured(self.estimate(y), y.taken, 8 * y.payload_bytes)

    def begin(
        self,
        size: tuple[int, int],
        rate: float,
        rounds: int = 3,
        readout: Readout | None = None,
        **more: Any,
    ) -> Capture:
        """Begin to measure an image of (H, W) in rounds, more where it pays; see `Capture`."""
        return Capture(self.camera, size, rate, rounds, readout, **more)

    def resume(
        self, measurements: Measurements, rate: float, rounds: int = 3, **more: Any
    ) -> Capture:
        """Go on with what was measured of an image; see `Capture.resumed`."""
        return Capture.resumed(self.camera, measurements, rate, rounds, **more)

    def measure(self, x: Tensor) -> Tensor:
        """Sense a batch of raw pixels (…, H, W) as tensors, differentiably; see `Camera`."""
        return self.camera.measure(x)

    def reconstruct_batch(
        self,
        y: Tensor,
        size: tuple[int, int] | None = None,
        readout: Readout | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct a batch (…, H, W) from y (…, m, h, w), differentiably; see `Camera`."""
        return self.camera.reconstruct_batch(y, size, readout, counts)

    def _estimates(
        self, measurements: Measurements | MeasuredValues
    ) -> Iterator[tuple[tuple[slice, slice], NDArray[np.float32]]]:
        """Reconstruct tile by tile, in memory that does not grow with the image.

        Reconstructors know pixels from 0 to 255. Sensing is linear, so measurements of deeper
        pixels are scaled to that range, and the pixels back; nowhere else.
        """
        header = measurements.header
        rows = header.rows
        if rows < len(self.patterns) and header.phi == self.patterns.first(rows).hash:
            yield from self.at_rate(rows / self.patterns.stride**2)._estimates(measurements)
            return
        header.require_taken_with(self.patterns, self.name)
        counts = measurements.counts
        if isinstance(measurements, MeasuredValues) and not self.reconstructor.any_count:
            counts = None  # what is missing is estimated instead
        scale = 255 / header.largest_pixel
        size, readout = (header.height, header.width), header.readout.scaled(scale)
        y = measurements.values.reshape(-1, *header.shape[-3:])
        errors = getattr(measurements, "deviation", None)
        if errors is not None:
            errors = np.broadcast_to(errors * scale, header.shape).reshape(y.shape)
        if counts is not None:
            counts = np.broadcast_to(counts, (len(y), *y.shape[-2:]))
        for tile in cut_tiles(self.geometry, size, self.reconstructor.halo, TILE_PIXELS):
            part = torch.from_numpy(readout.values(y[(..., *tile.windows)]).astype(np.float32))
            ones = self.operator.sense_ones(size, *tile.windows)
            if header.mode == color.MODE:
                part = color.raise_differences(part, ones.to(part))
            with self.camera.inference():
                planes = self.camera.reconstruct_part(
                    part, ones, tile.size, readout, _cut(counts, tile.windows),
                    _cut(errors, tile.windows),
                )  # fmt: skip
            inside = planes[(..., *tile.inside)].cpu().numpy()
            channels = color.to_channels(inside) if header.mode == color.MODE else inside
            yield tile.place, from_planes(channels / scale)

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


def _cut(values: NDArray[Any] | None, windows: tuple[slice, slice]) -> Tensor | None:
    """Return the errors or the counts of some windows as a tensor, where there are any."""
    if values is None:
        return None
    narrow = np.float32 if values.dtype.kind == "f" else np.int32
    return torch.from_numpy(values[(..., *windows)].astype(narrow))


def _image_shape(measurements: Measurements | MeasuredValues) -> tuple[int, ...]:
    if not isinstance(measurements, Measurements | MeasuredValues):
        raise TypeError(f"give Measurements, as sense() returns them, not {type(measurements)}")
    header = measurements.header
    size = header.height, header.width
    return size if header.mode == "L" else (*size, 3)
