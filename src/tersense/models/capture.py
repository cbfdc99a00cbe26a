"""Closed-loop capture: measure a little, look, and measure more where it pays.

    capture = imager.begin((H, W), rate=0.1)
    while (request := capture.next()) is not None:
        capture.add(my_camera.measure(request))     # request.mask says which rows of which windows
    image = capture.reconstruct()
    capture.measurements().save("photo.tsm")

The first round takes the same number of rows in every window. Before each further round the
network reconstructs what there is, the predictor says what error every window would have with more
rows, and the next share of the budget goes where that error falls most. The budget is never
exceeded. Where a quality is asked for instead (`psnr`), the budget is its limit: rounds go on until
the predicted error is that low.

The channels of a color image share one map of counts, by the sum of their predicted errors.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.images import ImageArray, from_planes, to_pixels
from tersense.measurements.counts import cell_pixels
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.rounds import Request
from tersense.measurements.tsm import PACKED, Header
from tersense.models.camera import Camera
from tersense.reconstruction.allocation import Evidence, allocate, spread_evenly
from tersense.reconstruction.allocation.predictor import FIRST_LOOK, pool_features
from tersense.reconstruction.allocation.quality import (
    expected_error,
    from_psnr,
    next_budget,
    to_psnr,
)
from tersense.sensing.geometry import cut_tiles
from tersense.sensing.patterns import Patterns, rows_for_rate

Counts = NDArray[np.int64]

TILE_PIXELS = 2**20
_FIRST_RATE = 0.04  # where a quality is asked for, and nothing is known yet
_LOWEST_PSNR, _HIGHEST_PSNR = 5, 80


class Capture:
    """One image, measured in rounds.

    Args:
        camera: With a universal network and its predictor.
        size: (H, W) of the image.
        rate: Measurements per pixel, on average: as many in all as a uniform camera of that rate.
        rounds: How often it is decided what to measure, at most; 1 measures uniformly.
        readout: What the values have gone through; exact integers where not given.
        color: Whether there are three channels. Each has the budget of a gray image.
        depth: Bits per pixel.
        psnr: Stop when the predicted PSNR is as high, in dB; the rate is the limit then.

    `counts` (h, w) is what each window has been measured with, `history` what it was after each
    round, and `budget` the measurements in all, of one channel.
    """

    def __init__(
        self,
        camera: Camera,
        size: tuple[int, int],
        rate: float,
        rounds: int = 3,
        readout: Readout | None = None,
        color: bool = False,
        depth: int = USUAL,
        psnr: float | None = None,
    ) -> None:
        self._stride = camera.geometry.stride
        _require_sense(camera, size, rounds, psnr)
        lowest = max(1, rows_for_rate(camera.reconstructor.lowest_rate, self._stride))
        mean, m = rows_for_rate(rate, self._stride), camera.rows
        if not lowest <= mean <= m:
            raise TersenseError(
                f"rate must lie between {lowest / self._stride**2:.3g} and "
                f"{m / self._stride**2:.3g}, got {rate:g}"
            )
        self.camera, self.size, self.rounds = camera, size, rounds
        self.color, self.depth, self.psnr = color, depth, psnr
        self.readout = readout or Readout()
        self._lowest, self._pixels = lowest, cell_pixels(size, self._stride)
        grid = camera.geometry.grid(*size)
        self.counts: Counts = np.zeros(grid, np.int64)
        self.budget = mean * self.counts.size
        self.history: list[Counts] = []
        self._values = np.zeros((3 if color else 1, m, *grid))  # as they were given
        self._request: Request | None = None
        self._ones = camera.operator.sense_ones(size)
        self._evidence: Evidence | None = None
        self._seen = 0  # rounds that the evidence knows
        self._image: Tensor | None = None  # normalized, of all that is measured
        self._ended = False

    @classmethod
    def resumed(
        cls,
        camera: Camera,
        measurements: Measurements,
        rate: float,
        rounds: int = 3,
        history: Sequence[Counts] = (),
        psnr: float | None = None,
    ) -> "Capture":
        """Return a capture that goes on with what was measured before.

        Args:
            camera: That took the measurements, or whose first rows did.
            measurements: So far.
            rate: As above, those taken included.
            rounds: As above, those of the history included.
            history: Counts (h, w) after each round. Where it is not known, all that was measured
                counts as one.
            psnr: As above.
        """
        header = measurements.header
        if header.mode not in ("L", "RGB"):
            raise TersenseError(
                "a capture goes on with gray or RGB measurements, got color differences"
            )
        size, color = (header.height, header.width), header.mode == "RGB"
        made = cls(camera, size, rate, rounds, header.readout, color, header.depth, psnr)
        header.require_taken_with(made.patterns.first(min(header.rows, camera.rows)), camera.name)
        if header.rows < camera.rows and header.readout.steps:
            raise TersenseError("a step for each pattern must be that of all patterns to go on")
        given = measurements.counts
        latest = np.full(made.counts.shape, header.rows) if given is None else given
        if latest.ndim == 3:
            raise TersenseError("the channels must share one map of counts to go on; got three")
        before = made.counts
        for after in (np.asarray(counts, np.int64) for counts in (*history, latest)):
            if after.shape != before.shape or (after < before).any():
                raise TersenseError("the history of a capture must be counts that grow")
            if (after > before).any():
                made.history.append(after)
            before = after
        least = np.maximum(before, made._lowest)
        if least.sum() > made.budget:
            raise TersenseError(
                f"rate must be at least {least.mean() / made._stride**2:.4g}, what is measured "
                f"already and {made._lowest} rows of every other window, got {rate:g}"
            )
        made.counts = before
        made._values[:, : header.rows] = measurements.values.reshape(-1, *header.shape[-3:])
        return made

    @cached_property
    def patterns(self) -> Patterns:
        """Φ, as integers."""
        return Patterns(self.camera.operator.phi.cpu().numpy().astype(np.int8), self._stride)

    @property
    def request(self) -> Request | None:
        """What is asked for and not yet measured."""
        return self._request

    def next(self) -> Request | None:
        """Decide what to measure next; None when the budget is spent, or the quality reached."""
        if self._request is not None:
            raise TersenseError("the last request is still open; add its values first")
        if self._ended or len(self.history) >= self.rounds or self.counts.sum() >= self.budget:
            return None
        after = self._decide()
        if (after == self.counts).all():
            self._ended = True
            return None
        return self.ask(after)

    def _decide(self) -> Counts:
        """Return the counts after the next round."""
        if self.rounds == 1:
            return spread_evenly(self.counts, self.budget, self.camera.rows)
        budget = self._share()
        if self.counts.min() < self._lowest:  # there is nothing to decide by
            uniform = budget // self.counts.size
            if self.psnr is not None:
                uniform = min(
                    self.budget // self.counts.size, rows_for_rate(_FIRST_RATE, self._stride)
                )
            lifted = np.maximum(self.counts, max(self._lowest, uniform))
            # Windows that have more already may leave less for the others.
            return lifted if lifted.sum() <= self.budget else np.maximum(self.counts, self._lowest)
        log_errors, levels = self._predict()
        if self.psnr is not None:
            wanted = from_psnr(self.psnr) / self.camera.normalization.std**2
            last = len(self.history) + 1 == self.rounds
            budget = next_budget(
                wanted, log_errors, levels, self.counts, self._pixels, self.budget, last
            )
        return allocate(log_errors, levels, self.counts, budget)

    def _share(self) -> int:
        """Return the budget of the next round, what is measured included: all rounds are alike."""
        for number in range(len(self.history) + 1, self.rounds):
            if (budget := self.budget * number // self.rounds) > self.counts.sum():
                return budget
        return self.budget

    def _predict(self) -> tuple[NDArray[np.floating], tuple[int, ...]]:
        """Return the logarithms of the errors (K, h, w) at K counts; channels are averaged."""
        predictor = self.camera.predictor
        assert predictor is not None
        with self.camera.inference():
            of_channels = predictor(self._look().inputs).double()
            log_errors = of_channels.logsumexp(dim=0) - np.log(len(of_channels))
        return log_errors.cpu().numpy(), predictor.levels

    @property
    def predicts(self) -> bool:
        """Whether it can tell what PSNR to expect: from measurements of every window."""
        return self.camera.predictor is not None and bool(self.counts.min() >= self._lowest)

    def predicted_psnr(self) -> float:
        """Return the PSNR that the image is expected to have, from all that is measured so far."""
        if not self.predicts:
            raise TersenseError(
                f"a prediction needs a predictor, and {self._lowest} measurements of every window; "
                "see next()"
            )
        log_errors, levels = self._predict()
        error = expected_error(log_errors, levels, self.counts, self._pixels)
        return to_psnr(error * self.camera.normalization.std**2)

    def add(self, values: Any) -> None:
        """Take in what the last request asked for.

        Args:
            values: As many numbers as it has, in the order of `y[request.mask]`: row by row.
        """
        request = self._request
        if request is None:
            raise TersenseError("nothing was asked for; call next() before add()")
        new = np.asarray(values, np.float64).reshape(-1)
        if len(new) != len(request):
            raise TersenseError(f"{len(request)} values were asked for, got {len(new)}")
        if not np.isfinite(new).all():
            raise TersenseError("the values hold NaN or Inf; measure them again")
        largest = self.readout.largest_from(2 * self.patterns.largest_magnitude_at(self.depth))
        if np.abs(new).max(initial=0) > largest:
            raise TersenseError(
                f"values must lie between ±{largest:,}, twice what pixels from 0 to "
                f"{largest_pixel(self.depth)} can add up to, got {new[np.abs(new).argmax()]:,.4g}; "
                "check their units and signs"
            )
        self._values[request.mask.reshape(self._values.shape)] = new
        self.counts, self._request, self._image = request.after, None, None
        self.history.append(self.counts)

    def take(self, counts: Counts, values: NDArray[Any]) -> None:
        """Take in what another decision chose, instead of further rounds.

        Args:
            counts: (h, w), rows that each window has in the end.
            values: (m, h, w), in color (3, m, h, w), of which the rows not yet taken are read.
        """
        self.add(values[self.ask(counts).mask])
        self._ended = True

    def ask(self, counts: Counts) -> Request:
        """Return the request for counts (h, w) that were decided before, perhaps elsewhere."""
        if counts.shape != self.counts.shape or (counts < self.counts).any():
            raise TersenseError("counts that are asked for must be at least those measured")
        if counts.max() > self.camera.rows or counts.sum() > self.budget:
            raise TersenseError("counts that are asked for must keep to the budget and the rows")
        self._request = Request(self.counts, counts, self.camera.rows, len(self._values))
        return self._request

    def estimate(self) -> NDArray[np.float32]:
        """Reconstruct from all that is measured so far, neither rounded nor clipped."""
        if not self.counts.any():
            raise TersenseError("nothing is measured yet; call next() and add() first")
        with self.camera.inference():
            image = self._image if self._image is not None else self._examine(self.counts)[0]
            self._image = image
            planes = self.camera.normalization.raw(image).cpu().numpy() / self._scale
        estimate: NDArray[np.float32] = from_planes(planes)
        return estimate

    def reconstruct(self) -> ImageArray:
        """Return the image from all that is measured so far, (H, W) or (H, W, 3)."""
        return to_pixels(self.estimate(), self.depth)

    def measurements(self) -> Measurements:
        """Return what is measured so far, to keep in a file: rounded to whole numbers."""
        codes = np.rint(self._values).astype(np.int32)
        header = Header(
            *self.size,
            "RGB" if self.color else "L",
            self.patterns.window,
            self._stride,
            len(self.patterns),
            self.patterns.hash,
            self.readout,
            PACKED if self.readout.bits else 1,
            self.depth,
        )
        return Measurements(codes.reshape(header.shape), header, self.counts.astype(np.int32))

    @property
    def _scale(self) -> float:
        """From pixels to those that networks know, 0 to 255."""
        return 255 / largest_pixel(self.depth)

    def _look(self) -> Evidence:
        """Bring the evidence up to date with what is measured.

        The first time, an image from a part of the rows predicts the others. Later the image before
        the newest rows is known already, and costs nothing.
        """
        if self._evidence is None:
            predictor, operator = self.camera.predictor, self.camera.operator
            whitening = self.camera.reconstructor.whitening(operator)
            assert predictor is not None
            assert whitening is not None
            self._evidence = Evidence(operator, whitening, predictor.levels)
            part = np.maximum(1, (FIRST_LOOK * self.history[0]).astype(np.int64))
            self._take_in(self._evidence, part)
        for counts in self.history[self._seen :]:
            self._image = self._take_in(self._evidence, counts)
        self._seen = len(self.history)
        return self._evidence

    def _take_in(self, evidence: Evidence, counts: Counts) -> Tensor:
        image, pooled = self._examine(counts)
        y, deviation = self._normalized(counts)
        evidence.add(y, self._tensor(counts), image, pooled, deviation)
        return image

    def _examine(self, counts: Counts) -> tuple[Tensor, Tensor]:
        """Reconstruct tile by tile: (N, H, W) normalized, and its features (N, 2C, h, w)."""
        y, deviation = self._normalized(counts)
        image = y.new_empty(len(y), *self.size)
        pooled: Tensor | None = None
        halo, of_windows = self.camera.reconstructor.halo, self._tensor(counts)
        for tile in cut_tiles(self.camera.geometry, self.size, halo, TILE_PIXELS):
            there = (..., *tile.windows)
            errors = deviation
            if deviation is not None and deviation.shape[-2:] != (1, 1):
                errors = deviation[there]
            part, features = self.camera.examine_part(
                y[there], tile.size, errors, of_windows[there]
            )
            image[(..., *tile.place)] = part[(..., *tile.inside)]
            maps = pool_features(features, self._stride)
            if pooled is None:
                pooled = maps.new_empty(*maps.shape[:2], *self.counts.shape)
            pooled[(..., *self._cells(tile.place))] = maps[(..., *self._cells(tile.inside))]
        assert pooled is not None
        return image, pooled

    def _cells(self, pixels: tuple[slice, slice]) -> tuple[slice, slice]:
        """Return the windows whose cells some pixels are."""
        down, across = (
            slice(side.start // self._stride, -(-side.stop // self._stride)) for side in pixels
        )
        return down, across

    def _normalized(self, counts: Counts) -> tuple[Tensor, Tensor | None]:
        readout = self.readout.scaled(self._scale)
        y = torch.from_numpy(readout.values(self._values).astype(np.float32))
        y, of_windows = y.to(self.camera.device), self._tensor(counts)
        return self.camera.normalize_part(y, self._ones, self.size, readout, of_windows)

    def _tensor(self, counts: Counts) -> Tensor:
        every = torch.from_numpy(counts).to(self.camera.device)
        return every.expand(len(self._values), *counts.shape)


def _require_sense(camera: Camera, size: tuple[int, int], rounds: int, psnr: float | None) -> None:
    """Refuse what no camera can do, or not this one."""
    if rounds < 1:
        raise TersenseError(f"rounds must be at least 1, got {rounds}")
    if min(size) < 1:
        raise TersenseError(f"an image must have at least one pixel, got {size}")
    if psnr is not None and not _LOWEST_PSNR <= psnr <= _HIGHEST_PSNR:
        raise TersenseError(
            f"psnr must lie between {_LOWEST_PSNR} and {_HIGHEST_PSNR} dB, got {psnr:g}"
        )
    if psnr is not None and rounds < 2:
        raise TersenseError(f"rounds must be at least 2 to reach a PSNR, got {rounds}")
    if rounds > 1 and camera.predictor is None:
        raise TersenseError(
            f"{camera.name} cannot decide where to measure; train it with "
            "train.allocation=true, or measure in 1 round"
        )
