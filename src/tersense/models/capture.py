"""Closed-loop capture: measure a little, look, and measure more where it pays.

    capture = imager.begin((H, W), rate=0.1)
    while (request := capture.next()) is not None:
        capture.add(my_camera.measure(request))     # request.mask says which rows of which windows
    image = capture.reconstruct()

The first round takes the same number of rows in every window. Before each further round the
network reconstructs what there is, the predictor says what error every window would have with more
rows, and the next share of the budget goes where that error falls most. The budget is never
exceeded.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.errors import TersenseError
from tersense.io.images import ImageArray, to_pixels
from tersense.measurements.readout import Readout
from tersense.models.camera import Camera
from tersense.reconstruction.allocation import Evidence, allocate, spread_evenly
from tersense.reconstruction.allocation.predictor import pool_features
from tersense.sensing.geometry import cut_tiles
from tersense.sensing.patterns import rows_for_rate

Counts = NDArray[np.int64]

TILE_PIXELS = 2**20
_FIRST_SHARE = 0.4  # of the budget, measured evenly
_FIRST_LOOK = 0.72  # of the first round's rows; how well they predict the others tells most


@dataclass(frozen=True, eq=False)
class Request:
    """What to measure next.

    Args:
        before: (h, w), rows that each window has been measured with.
        after: (h, w), rows that it shall have; nowhere fewer.
        rows: m, all that there are.
    """

    before: Counts
    after: Counts
    rows: int

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which rows of which windows are asked for, (m, h, w): `y[mask]` is what `add` takes."""
        row = np.arange(self.rows)[:, None, None]
        wanted: NDArray[np.bool_] = (row >= self.before) & (row < self.after)
        return wanted

    def __len__(self) -> int:
        return int((self.after - self.before).sum())


class Capture:
    """One gray image, measured in rounds.

    Args:
        camera: With a universal network and its predictor.
        size: (H, W) of the image.
        rate: Measurements per pixel, on average: as many in all as an even camera of that rate.
        rounds: How often it is decided what to measure; 1 measures evenly.
        readout: What the values have gone through; exact integers where not given.

    `counts` (h, w) is what each window has been measured with, `budget` the measurements in all.
    """

    def __init__(
        self,
        camera: Camera,
        size: tuple[int, int],
        rate: float,
        rounds: int = 3,
        readout: Readout | None = None,
    ) -> None:
        network, self._stride = camera.reconstructor, camera.geometry.stride
        if rounds < 1:
            raise TersenseError(f"rounds must be at least 1, got {rounds}")
        if min(size) < 1:
            raise TersenseError(f"an image must have at least one pixel, got {size}")
        if rounds > 1 and camera.predictor is None:
            raise TersenseError(
                f"{camera.name} cannot decide where to measure; train it with "
                "train.allocation=true, or measure in 1 round"
            )
        lowest, m = rows_for_rate(network.lowest_rate, self._stride), camera.rows
        mean = rows_for_rate(rate, self._stride)
        if not max(1, lowest) <= mean <= m:
            raise TersenseError(
                f"rate must lie between {max(1, lowest) / self._stride**2:.3g} and "
                f"{m / self._stride**2:.3g}, got {rate:g}"
            )
        self.camera, self.size, self.rounds, self.readout = camera, size, rounds, readout
        self._lowest = max(1, lowest)
        grid = camera.geometry.grid(*size)
        self.counts: Counts = np.zeros(grid, np.int64)
        self.budget = mean * self.counts.size
        self._values = np.zeros((m, *grid), np.float32)
        self._request: Request | None = None
        self._round = 0
        self._ones = camera.operator.sense_ones(size)
        self._evidence: Evidence | None = None
        self._image: Tensor | None = None  # normalized, of all that is measured

    def next(self) -> Request | None:
        """Decide what to measure next; None when the budget is spent."""
        if self._request is not None:
            raise TersenseError("the last request is still open; add its values first")
        if self._round == self.rounds:
            return None
        after = self._decide()
        self._round += 1
        self._request = Request(self.counts, after, self.camera.rows)
        return self._request

    def _decide(self) -> Counts:
        """Return the counts after the next round."""
        if self.rounds == 1:
            return spread_evenly(self.counts, self.budget, self.camera.rows)
        share = _FIRST_SHARE + (1 - _FIRST_SHARE) * self._round / (self.rounds - 1)
        budget = self.budget if share == 1 else int(share * self.budget)
        if self._round == 0:
            even = max(self._lowest, budget // self.counts.size)
            return np.full_like(self.counts, even)
        predictor = self.camera.predictor
        assert predictor is not None
        with self.camera.inference():
            evidence = self._look()
            log_errors = predictor(evidence.inputs)[0].float().cpu().numpy()
        budget = max(budget, int(self.counts.sum()))
        return allocate(log_errors, predictor.levels, self.counts, budget)

    def add(self, values: Any) -> None:
        """Take in what the last request asked for.

        Args:
            values: As many numbers as it has, in the order of `y[request.mask]`: row by row.
        """
        request = self._request
        if request is None:
            raise TersenseError("nothing was asked for; call next() before add()")
        new = np.asarray(values, np.float32).reshape(-1)
        if len(new) != len(request):
            raise TersenseError(f"{len(request)} values were asked for, got {len(new)}")
        if not np.isfinite(new).all():
            raise TersenseError("the values hold NaN or Inf; measure them again")
        unit = 1.0 if self.readout is None else self.readout.unit
        places = request.mask
        self._values[places] = new * np.broadcast_to(unit, places.shape)[places]
        self.counts, self._request, self._image = request.after, None, None

    def take(self, counts: Counts, values: NDArray[Any]) -> None:
        """Take in what another decision chose, instead of further rounds.

        Args:
            counts: (h, w), rows that each window has in the end.
            values: (m, h, w), of which the rows not yet taken are read.
        """
        self._request = Request(self.counts, counts, self.camera.rows)
        self._round = self.rounds
        self.add(values[self._request.mask])

    def estimate(self) -> NDArray[np.float32]:
        """Reconstruct from all that is measured so far, neither rounded nor clipped."""
        if not self.counts.any():
            raise TersenseError("nothing is measured yet; call next() and add() first")
        with self.camera.inference():
            image = self._image if self._image is not None else self._examine(self.counts)[0]
            self._image = image
            return self.camera.normalization.raw(image)[0].cpu().numpy()

    def reconstruct(self) -> ImageArray:
        """Return the image from all that is measured so far, (H, W) uint8."""
        return to_pixels(self.estimate())

    def _look(self) -> Evidence:
        """Bring the evidence up to date with what is measured.

        The first time, an image from a part of the rows predicts the others. Later the image before
        the newest rows is known already, and costs nothing.
        """
        predictor, operator = self.camera.predictor, self.camera.operator
        whitening = self.camera.reconstructor.whitening(operator)
        assert predictor is not None
        assert whitening is not None
        if self._evidence is None:
            self._evidence = Evidence(operator, whitening, predictor.levels)
            part = np.maximum(1, (_FIRST_LOOK * self.counts).astype(np.int64))
            self._take_in(self._evidence, part)
        self._image = self._take_in(self._evidence, self.counts)
        return self._evidence

    def _take_in(self, evidence: Evidence, counts: Counts) -> Tensor:
        image, pooled = self._examine(counts)
        y, deviation = self._normalized(counts)
        evidence.add(y, self._tensor(counts), image, pooled, deviation)
        return image

    def _examine(self, counts: Counts) -> tuple[Tensor, Tensor]:
        """Reconstruct tile by tile: (1, H, W) normalized, and its features (1, 2C, h, w)."""
        y, deviation = self._normalized(counts)
        image = y.new_empty(1, *self.size)
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
                pooled = maps.new_empty(1, maps.shape[1], *self.counts.shape)
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
        y = torch.from_numpy(self._values)[None].to(self.camera.device)
        of_windows = self._tensor(counts)
        return self.camera.normalize_part(y, self._ones, self.size, self.readout, of_windows)

    def _tensor(self, counts: Counts) -> Tensor:
        return torch.from_numpy(counts)[None].to(self.camera.device)
