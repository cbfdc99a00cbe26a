"""Adaptive cameras as one object that senses and reconstructs, to evaluate and to compare.

The image is known here, so that all rows are sensed at once; the decision sees only what the mode
lets it see. See `capture` for cameras that really measure in rounds.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError
from tersense.evaluation.adaptive import counts_by_change, oracle_counts
from tersense.evaluation.protocols import Captured
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.images import ImageArray, to_planes
from tersense.measurements.readout import Readout
from tersense.models.capture import Capture
from tersense.models.imager import Imager
from tersense.reconstruction.allocation.predictor import PredictorOptions, predictor_for
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import rows_for_rate

Mode = Literal["closed", "open", "encoder", "change", "oracle", "even"]
Counts = NDArray[np.int64]


class AdaptiveCamera:
    """Spend a budget in one of several ways; what is evaluated (`evaluation.CameraLike`).

    Args:
        imager: With a universal network, and for closed, open and encoder with what was trained for
            adaptive sensing.
        rate: Measurements per pixel, on average.
        mode: closed (rounds, decided by the network's predictor), open (one decision of the sensor
            at half of the budget), encoder (a decision of the sensor that knows all sums), change
            (the rule of SIB-ACS), oracle (by the true errors) or even.
        rounds: Of the closed loop.
    """

    def __init__(self, imager: Imager, rate: float, mode: Mode = "closed", rounds: int = 3) -> None:
        if mode in ("open", "encoder") and imager.camera.decision is None:
            raise TersenseError(
                f"{imager.name} has no decision for sensors; train it with train.allocation=true"
            )
        self.imager, self.mode = imager, mode
        self.rounds = rounds if mode == "closed" else 1
        self.mean_rows = rows_for_rate(rate, imager.geometry.stride)
        imager.begin((1, 1), rate, self.rounds)  # refuses what cannot be

    @property
    def name(self) -> str:
        """What it is called."""
        return self.imager.name

    @property
    def geometry(self) -> Geometry:
        """Window and stride."""
        return self.imager.geometry

    @property
    def rows(self) -> int:
        """The measurements per window, on average."""
        return self.mean_rows

    @property
    def rate(self) -> float:
        """Measurements per pixel of a large image, on average."""
        return self.mean_rows / self.geometry.stride**2

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.imager.device

    def capture(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Captured:
        """Sense, decide and reconstruct one image, each channel with a budget of its own."""
        y = self.imager.sense(image, readout=readout, depth=depth)
        scale = 255 / largest_pixel(depth)
        known = y.header.readout.scaled(scale)
        planes = [
            self._capture_plane(values, plane * scale, known)
            for values, plane in zip(
                y.values.reshape(-1, *y.values.shape[-3:]), to_planes(image), strict=True
            )
        ]
        estimate = np.stack([plane / scale for plane, _ in planes], axis=-1)
        taken = sum(int(counts.sum()) for _, counts in planes)
        size = 8 * np.min_scalar_type(-int(np.abs(y.values).max(initial=0)) - 1).itemsize
        return Captured(estimate[..., 0] if image.ndim == 2 else estimate, taken, size * taken)

    def measure(self, x: Tensor) -> Tensor:
        """Sense raw pixels (N, H, W) with all rows."""
        return self.imager.measure(x)

    def reconstruct_batch(self, y: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """Reconstruct from all rows."""
        return self.imager.reconstruct_batch(y, size)

    def _capture_plane(
        self, values: NDArray[np.integer], pixels: NDArray[np.floating], readout: Readout
    ) -> tuple[NDArray[np.float32], Counts]:
        """Return the estimate (H, W) of one channel and its counts."""
        capture = self._begin(pixels.shape, readout)
        if self.mode == "closed":
            while (request := capture.next()) is not None:
                capture.add(values[request.mask])
        else:
            capture.take(self._decide(values, pixels, readout), values)
        return capture.estimate(), capture.counts

    def _begin(self, size: tuple[int, ...], readout: Readout) -> Capture:
        height, width = size
        return self.imager.begin((height, width), self.rate, self.rounds, readout)

    def _decide(
        self, values: NDArray[np.integer], pixels: NDArray[np.floating], readout: Readout
    ) -> Counts:
        """Return the counts (h, w) of one channel."""
        grid, stride = values.shape[-2:], self.geometry.stride
        budget = self.mean_rows * grid[0] * grid[1]
        levels = predictor_for(self.imager.reconstructor, PredictorOptions(1)).levels
        decision = self.imager.camera.decision
        if decision is not None and self.mode in ("open", "encoder"):
            known = max(levels[0], self.mean_rows // 2) if self.mode == "open" else None
            exact = np.rint(values * readout.unit).astype(np.int64)  # codes stand for whole sums
            return decision.decide(exact, budget, known)

        def reconstruct(counts: Counts) -> NDArray[np.float32]:
            capture = self._begin(pixels.shape, readout)
            capture.take(counts, values)
            return capture.estimate()

        if self.mode == "change":
            return counts_by_change(
                reconstruct, (grid[0], grid[1]), stride, self.imager.rows, budget
            )
        if self.mode == "oracle":
            return oracle_counts(reconstruct, pixels, stride, levels, budget)
        return np.full(grid, self.mean_rows, np.int64)
