"""A camera on batches of tensors: sensing weights of any kind and the reconstructor behind them.

    x (N, H, W) ──measure──▶ y (N, m, h, w) ──reconstruct_batch──▶ x̂ (N, H, W)

Pixels are raw, 0 to 255, in and out. Gradients flow to x and to the weights of networks; solvers
(linear, tv, bp, spgl1) give none.
"""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from tersense.errors import TersenseError
from tersense.evaluation.protocols import Captured
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.images import ImageArray
from tersense.measurements.readout import Readout
from tersense.reconstruction.allocation import ErrorPredictor, IntegerDecision
from tersense.reconstruction.base import Normalization, Reconstructor, measured_rows
from tersense.reconstruction.gaussian import fill_missing
from tersense.sensing.geometry import Geometry
from tersense.sensing.operator import SensingOperator, fastest_operator


class Camera(nn.Module):
    """Sense and reconstruct batches of gray images, differentiably.

    Args:
        name: What to call this camera in messages.
        operator: Φ, its stride and α; real weights (a dense baseline) serve as well.
        normalization: Of the pixels that the reconstructor was trained on.
        reconstructor: The network.

    `precision` may be set to bfloat16 where the machine is fast at it. `predictor` and
    `decision` are what adaptive sensing decides by, where it was trained.
    """

    def __init__(
        self,
        name: str,
        operator: SensingOperator,
        normalization: Normalization,
        reconstructor: Reconstructor,
    ) -> None:
        super().__init__()
        self.name, self.operator, self.normalization = name, operator, normalization
        self.reconstructor = reconstructor.to(operator.phi.device)
        self.precision = "float32"
        self.predictor: ErrorPredictor | None = None
        self.decision: IntegerDecision | None = None
        self.eval()

    @property
    def geometry(self) -> Geometry:
        """Window and stride."""
        return self.operator.geometry

    @property
    def rows(self) -> int:
        """m, the measurements per window."""
        return len(self.operator.phi)

    @property
    def rate(self) -> float:
        """R = m/S², measurements per pixel of a large image."""
        return self.rows / self.geometry.stride**2

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.operator.phi.device

    def measure(self, x: Tensor) -> Tensor:
        """Sense raw pixels x (…, H, W), of any real type: return y (…, m, h, w)."""
        return self.operator.forward(x.to(self.operator.phi))

    def reconstruct_batch(
        self,
        y: Tensor,
        size: tuple[int, int] | None = None,
        readout: Readout | None = None,
        counts: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct raw pixels (…, H, W), neither rounded nor clipped.

        Args:
            y: (…, m, h, w), as `measure` gives it; NaN where a measurement is missing.
            size: (H, W) of the images; whole strides, (h·S, w·S), where not given.
            readout: What y went through, in pixel values; the reconstructor is told the error.
            counts: (…, h, w), rows that each window was measured with; see `Reconstructor`.
        """
        *lead, _, h, w = y.shape
        size = size or (h * self.geometry.stride, w * self.geometry.stride)
        if len(lead) != 1:  # one image, or channels beside the batch
            y = y.flatten(0, -4) if lead else y[None]
            counts = None if counts is None else counts.reshape(-1, h, w)
        ones = self.operator.sense_ones(size)
        x = self.reconstruct_part(y, ones, size, readout, counts)
        return x if len(lead) == 1 else x.reshape(*lead, *size)

    forward = reconstruct_batch

    def reconstruct_part(
        self,
        y: Tensor,
        ones: Tensor,
        size: tuple[int, int],
        readout: Readout | None = None,
        counts: Tensor | None = None,
        deviation: Tensor | None = None,
    ) -> Tensor:
        """Reconstruct a part of an image, given its own Φ⋆1 (m, h, w); see `reconstruct_batch`.

        `deviation` is that of the errors of y, in pixel values, where it is not the readout's.
        """
        counts = None if counts is None else counts.to(self.device)
        normalized, deviation = self.normalize_part(y, ones, size, readout, counts, deviation)
        with self._autocast():
            image: Tensor = self.reconstructor(normalized, self.operator, size, deviation, counts)
        return self.normalization.raw(image.to(self.operator.phi.dtype))

    def examine_part(
        self,
        normalized: Tensor,
        size: tuple[int, int],
        deviation: Tensor | None,
        counts: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return a normalized image and the last feature maps, given `normalize_part`'s results."""
        with self._autocast():
            image, features = self.reconstructor.examine(
                normalized, self.operator, size, deviation, counts
            )
        return image.to(self.operator.phi.dtype), features

    def normalize_part(
        self,
        y: Tensor,
        ones: Tensor,
        size: tuple[int, int],
        readout: Readout | None = None,
        counts: Tensor | None = None,
        deviation: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return measurements and the deviation of their errors as the reconstructor takes them."""
        if counts is not None:
            self.require_any_count()
        normalized = self.normalization.measurements(y.to(self.operator.phi), ones)
        if counts is not None:
            normalized = normalized.where(measured_rows(counts, self.rows), 0)
        if _has_nan(normalized):
            normalized = fill_missing(normalized, self.operator, size)
        if deviation is not None:
            deviation = deviation.to(normalized) / self.normalization.std
        elif readout is not None and not readout.exact:
            light = self.estimate_light(y.to(normalized), ones, counts) if readout.photons else 0.0
            of_each = torch.as_tensor(readout.deviation_at(light)).to(normalized)
            deviation = of_each[(None,) * (4 - of_each.ndim)] / self.normalization.std
        return normalized, deviation

    def _autocast(self) -> torch.autocast:
        half = self.precision == "bfloat16" and self.reconstructor.half_precision
        return torch.autocast(self.device.type, torch.bfloat16, half)

    def require_any_count(self) -> None:
        """Refuse counts per window where the reconstructor cannot use them."""
        if not self.reconstructor.any_count:
            raise TersenseError(
                f"{self.name} needs all {self.rows} rows of every window; leave counts and "
                "adaptive sensing out, or use a universal model such as flex"
            )

    def estimate_light(self, y: Tensor, ones: Tensor, counts: Tensor | None = None) -> Tensor:
        """Estimate |Φ|x, what lit the exposures of each measurement, from y (N, m, h, w) itself.

        The file holds differences of exposures, not their sum. The brightness of a window is the
        one that explains its y best, y ≈ brightness·Φ⋆1, drawn to the mean of all images as far as
        y says little; each pixel that a pattern lights counts as so bright. Where a window reaches
        over the border, that is more than there is: an upper bound.

        Args:
            y: (N, m, h, w), raw; NaN where a measurement is missing.
            ones: Φ⋆1 (m, h, w).
            counts: (N, h, w), rows that each window was measured with.
        """
        lit = self.operator.phi.abs().sum(dim=(1, 2))  # of each pattern
        known = ~y.isnan()
        if counts is not None:
            known &= measured_rows(counts.to(y.device), len(lit))
        weights = torch.where(known, ones, 0)
        # Pixels of one variance around the brightness, and it of the same around the mean.
        prior = lit.mean()
        told = (weights * y.nan_to_num()).sum(1) + prior * self.normalization.mean
        brightness = told / ((weights * ones).sum(1) + prior)
        return lit[:, None, None] * brightness[:, None].clamp(min=1)

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Use the network as trained, without gradients; go on as before afterwards."""
        training = self.reconstructor.training
        self.reconstructor.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.reconstructor.train(training)

    def capture(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Captured:
        """Sense and reconstruct one gray image; there is no readout but an exact one.

        Args:
            image: (H, W), uint8 or uint16.
            readout: For an `Imager` only.
            depth: Bits per pixel.
        """
        if readout is not None and not readout.exact:
            raise TersenseError(
                f"the readout of {self.name} must be exact, got {readout}; use an Imager, whose "
                "measurements are integers"
            )
        scale = 255 / largest_pixel(depth)
        pixels = image if scale == 1 else image * np.float32(scale)
        with self.inference():
            y = self.measure(torch.from_numpy(np.ascontiguousarray(pixels))[None])
            estimate = self.reconstruct_batch(y, (image.shape[0], image.shape[1])) / scale
        return Captured(estimate[0].cpu().numpy(), y.numel(), 8 * y.numel() * y.itemsize)

    def get_extra_state(self) -> Tensor:
        """Return Φ for `state_dict`: weights are of use only with the patterns they know."""
        return self.operator.phi

    def set_extra_state(self, phi: Tensor) -> None:
        """Refuse a `state_dict` of other patterns, which strangers' weights would not tell."""
        own = self.operator.phi
        if phi.shape != own.shape or not torch.equal(phi.to(own), own):
            raise TersenseError(
                f"the weights must be of a camera with the patterns of {self.name}, got those of "
                f"{tuple(phi.shape)} others; build the camera from the patterns they were trained "
                "with, or load a model file"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Camera":
        """Move Φ and α with the weights: `camera.to(device)`."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        phi, alpha = fn(self.operator.phi), fn(self.operator.alpha)
        self.operator = fastest_operator(phi, self.geometry.stride, alpha)
        return self


def _has_nan(y: Tensor) -> bool:
    """Look for missing measurements; an exporter traces tensors that have no values."""
    return not torch.compiler.is_compiling() and bool(y.isnan().any())
