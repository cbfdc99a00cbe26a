"""Adaptive cameras as one object that senses and reconstructs, to evaluate and to compare.

The image is known here, so that all rows are sensed at once; the decision sees only what the mode
lets it see. See `capture` for cameras that really measure in rounds.

Who decides need not be who reconstructs: a small network with the same patterns decides nearly as
well as a large one, and a round costs little then (`decider`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError
from tersense.evaluation.adaptive import counts_by_change, oracle_counts
from tersense.evaluation.protocols import Captured
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.images import ImageArray
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models.capture import Capture
from tersense.models.imager import Imager
from tersense.reconstruction.allocation.predictor import levels_of
from tersense.reconstruction.allocation.quality import from_psnr, to_psnr
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import rows_for_rate

Mode = Literal["closed", "open", "encoder", "change", "oracle", "uniform"]
Counts = NDArray[np.int64]

USUAL_ROUNDS = 3
ROUNDS_TO_QUALITY = 8  # at most, unless said otherwise


class ImagerCamera:
    """What a camera that decides has from its imager; see `evaluation.CameraLike`."""

    imager: Imager

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
        """The most measurements per window."""
        return self.imager.rows

    @property
    def rate(self) -> float:
        """The most measurements per pixel of a large image."""
        return self.imager.rate

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.imager.device

    def measure(self, x: Tensor) -> Tensor:
        """Sense raw pixels (N, H, W) with all rows."""
        return self.imager.measure(x)

    def reconstruct_batch(self, y: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """Reconstruct from all rows."""
        return self.imager.reconstruct_batch(y, size)


class AdaptiveCamera(ImagerCamera):
    """Spend a budget in one of several ways; what is evaluated (`evaluation.CameraLike`).

    Args:
        imager: With a universal network, and for closed, open and encoder with what was trained for
            adaptive sensing, unless there is a decider.
        rate: Measurements per pixel, on average; with `psnr` at most.
        mode: closed (rounds, decided by the network's predictor), open (the sensor decides at 40 %
            and at 70 % of the budget), encoder (a decision of the sensor that knows all sums),
            change (the rule of SIB-ACS), oracle (by the true errors) or uniform.
        rounds: Of the closed loop; 3 where not given, with `psnr` at most 8.
        psnr: Of the closed loop: measure until the predicted PSNR is as high.
        own_maps: In color, let each channel have counts of its own, a third of the budget each;
            otherwise they share one map.
        decider: Another imager for the same measurements, which decides instead; `imager` then only
            reconstructs.
    """

    def __init__(
        self,
        imager: Imager,
        rate: float,
        mode: Mode = "closed",
        rounds: int | None = None,
        psnr: float | None = None,
        own_maps: bool = False,
        decider: Imager | None = None,
    ) -> None:
        self.decider = decider or imager
        if mode in ("open", "encoder") and self.decider.camera.decision is None:
            raise TersenseError(
                f"{self.decider.name} has no decision for sensors; train it with "
                "train.allocation=true"
            )
        if mode != "closed" and (rounds, psnr) != (None, None):
            raise TersenseError(f"rounds and psnr belong to the mode closed, got {mode}")
        if decider is not None:
            _require_alike(imager, decider, psnr)
            if mode == "uniform" or rounds == 1:
                raise TersenseError("there is nothing to decide; leave the decider out")
        self.imager, self.mode, self.psnr, self.own_maps = imager, mode, psnr, own_maps
        usual = USUAL_ROUNDS if psnr is None else ROUNDS_TO_QUALITY
        self.rounds = 1 if mode != "closed" else usual if rounds is None else rounds
        self.mean_rows = rows_for_rate(rate, imager.geometry.stride)
        self.decider.begin((1, 1), rate, self.rounds, psnr=psnr)  # refuses what cannot be

    @property
    def rows(self) -> int:
        """The measurements per window, on average."""
        return self.mean_rows

    @property
    def rate(self) -> float:
        """Measurements per pixel of a large image, on average."""
        return self.mean_rows / self.geometry.stride**2

    def describe(self) -> dict[str, Any]:
        """Return how it decides, ready for JSON."""
        closed = {"rounds": self.rounds, "psnr": self.psnr} if self.mode == "closed" else {}
        other = {} if self.decider is self.imager else {"decider": self.decider.name}
        return {"mode": self.mode, **closed, "own_maps": self.own_maps, **other}

    def sense(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Measurements:
        """Sense and decide: return the measurements of one image, with their counts."""
        return _joined([c.measurements() for c in self.captures(image, readout, depth)])

    def capture(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Captured:
        """Sense, decide and reconstruct one image."""
        captures = self.captures(image, readout, depth)
        y = _joined([capture.measurements() for capture in captures])
        if self.decider is not self.imager:
            return Captured(self.imager.estimate(y), y.taken, 8 * y.payload_bytes)
        predicted = None
        if self.rounds > 1:  # looks at the image, which need not be reconstructed again then
            errors = [from_psnr(capture.predicted_psnr()) for capture in captures]
            predicted = to_psnr(float(np.mean(errors)))
        estimates = [capture.estimate() for capture in captures]
        estimate = estimates[0] if len(estimates) == 1 else np.stack(estimates, axis=-1)
        return Captured(estimate, y.taken, 8 * y.payload_bytes, predicted)

    def captures(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> list[Capture]:
        """Return the finished capture of an image; of each channel, where maps are their own."""
        y = self.decider.sense(image, readout=readout, depth=depth)
        known = y.header.readout
        if image.ndim == 2 or not self.own_maps:
            return [self._captured(y.values, image, known, depth)]
        planes = (np.ascontiguousarray(image[..., channel]) for channel in range(3))
        return [
            self._captured(values, plane, known, depth)
            for values, plane in zip(y.values, planes, strict=True)
        ]

    def _captured(
        self, values: NDArray[np.integer], image: ImageArray, readout: Readout, depth: int
    ) -> Capture:
        scale = 255 / largest_pixel(depth)

        def begin(rate: float) -> Capture:
            return self.decider.begin(
                (image.shape[0], image.shape[1]), rate, self.rounds, readout,
                color=image.ndim == 3, depth=depth, psnr=self.psnr,
            )  # fmt: skip

        def reconstruct(counts: Counts) -> NDArray[np.float32]:
            trial = begin(self.decider.rate)  # the oracle tries counts beyond the budget
            trial.take(counts, values)
            return trial.estimate() * np.float32(scale)

        capture = begin(self.rate)
        budget, grid = capture.budget, capture.counts.shape
        if self.mode == "closed":
            while (request := capture.next()) is not None:
                capture.add(values[request.mask])
            return capture
        if self.mode in ("open", "encoder"):
            counts = self._decide(readout.values(values) * scale, budget)
        elif self.mode == "change":
            size = grid[0], grid[1]
            counts = counts_by_change(
                reconstruct, size, self.geometry.stride, self.decider.rows, budget
            )
        elif self.mode == "oracle":
            stride = self.geometry.stride
            levels = levels_of(self.decider.reconstructor)
            counts = oracle_counts(reconstruct, image * scale, stride, levels, budget)
        else:
            counts = np.full(grid, self.mean_rows, np.int64)
        capture.take(counts, values)
        return capture

    def _decide(self, sums: NDArray[Any], budget: int) -> Counts:
        """Return the counts (h, w) that the sensor decides on; in color by the mean of channels."""
        decision = self.decider.camera.decision
        assert decision is not None
        gray = sums.mean(axis=0) if sums.ndim == 4 else sums
        whole = np.rint(gray).astype(np.int64)  # codes of a converter stand for whole sums
        return (decision.open_loop if self.mode == "open" else decision.decide)(whole, budget)


def measure_alike(one: Imager, other: Imager) -> bool:
    """Return whether one may decide for the other: all that they can take is the same."""
    return one is other or (
        one.patterns.hash == other.patterns.hash
        and one.patterns.stride == other.patterns.stride
        and one.reconstructor.lowest_rate == other.reconstructor.lowest_rate
    )


def _require_alike(imager: Imager, decider: Imager, psnr: float | None) -> None:
    """Refuse a decider whose measurements the imager cannot use, or whose words are not its own."""
    imager.camera.require_any_count()
    if not measure_alike(imager, decider):
        raise TersenseError(
            f"the decider must have patterns, stride and lowest rate of {imager.name}, which "
            f"{decider.name} has not; leave the decider out or choose another"
        )
    if psnr is not None:
        raise TersenseError(
            "a PSNR is predicted for the network that reconstructs; leave the decider out"
        )


def _joined(channels: Sequence[Measurements]) -> Measurements:
    """Return the measurements of a color image, given those of its channels; of one, itself."""
    if len(channels) == 1:
        return channels[0]
    values = np.stack([y.values for y in channels])
    counts = np.stack([y.counts for y in channels if y.counts is not None])
    return Measurements(values, replace(channels[0].header, mode="RGB"), counts)
