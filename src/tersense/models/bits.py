"""Spend bits instead of measurements: a camera whose files have a given size.

A file has few bits if few measurements are taken or if their steps are wide, and it is a waste to
take many measurements coarsely or few finely. `_BEST` says which rate goes with which step; along
that line the step alone tells the quality, from 0 to 100. The size of a file is what coding it
gives, so the quality for a size is found by trying.
"""

import math
from typing import Any, Literal

import numpy as np

from tersense.errors import TersenseError
from tersense.evaluation.protocols import Captured
from tersense.io.deep import USUAL, largest_pixel
from tersense.io.images import ImageArray
from tersense.measurements.color import brightness, to_differences
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import MOST_BITS, Readout
from tersense.models.adaptive import USUAL_ROUNDS, AdaptiveCamera, ImagerCamera
from tersense.models.imager import Imager
from tersense.models.refinement import refine, shaped, sums_for
from tersense.sensing.patterns import rows_for_rate

BitsMode = Literal["encoder", "open", "closed", "uniform"]

# Steps, in pixel values, and the rates that go with them: at equal size of the files, the best PSNR
# of `flex` on ILSVRCval40, measured where the sensor decides (encoder). Its patterns have 51
# non-zeros; the error of a sum of four times as many is spread over as many pixels, so that twice
# the step does the same harm.
_BEST = (
    (16, 0.5), (24, 0.5), (48, 0.46), (72, 0.38), (96, 0.3), (160, 0.18), (256, 0.118),
    (320, 0.09), (400, 0.06), (512, 0.035), (800, 0.015), (1600, 0.01),
)  # fmt: skip
_NONZEROS = 51
_LAPPED = 1.25  # measurements of windows that overlap, for each of windows side by side
_WIDEST, _NARROWEST = 1600, 1
FINEST = 100  # quality
_CHROMA = 0.125  # measurements of a color difference, for each of brightness
_TRIES = 12  # qualities tried for a size: one of 2¹²
_CLOSED_TRIES = 4  # of closed loops, which take longer, at most where one fits
_GROWTH = 0.085  # of the logarithm of a size, about, with a unit of quality
_SLACK = 0.002  # of a size, which a closed loop may leave
_SPARED = 0.02  # of a size, by which files grow when they are refined


class BitsCamera(ImagerCamera):
    """Choose step, rate and counts for a size of files or for a quality.

    Args:
        imager: With a universal network; other networks and classical reconstructors take all
            rows, so that only the step is chosen.
        bpp: Bits per pixel that a file has at most, its header included; of a color image for all
            channels together.
        quality: From 0 to 100, instead of `bpp`.
        mode: Who decides on the counts: encoder, open or closed (see `AdaptiveCamera`), or uniform
            for as many everywhere. Default: encoder where the model can, otherwise uniform.
        rounds: Of the closed loop.
        refined: How often the codes are moved to what the network reconstructs best, see
            `refinement`; takes a reconstruction and its gradient each time. 0 for what is measured.
        decider: Another imager with the same patterns, which decides instead.
    """

    def __init__(
        self,
        imager: Imager,
        bpp: float | None = None,
        quality: float | None = None,
        mode: BitsMode | None = None,
        rounds: int | None = None,
        refined: int = 0,
        decider: Imager | None = None,
    ) -> None:
        if (bpp is None) == (quality is None):
            raise TersenseError("bits are chosen by bpp or by quality; give one of them")
        if bpp is not None and not (math.isfinite(bpp) and bpp > 0):
            raise TersenseError(f"bpp must be above 0, got {bpp:g}")
        if quality is not None and not 0 <= quality <= FINEST:
            raise TersenseError(f"quality must lie between 0 and {FINEST}, got {quality:g}")
        self._universal = imager.reconstructor.any_count and imager.parameters > 0
        if mode not in (None, "uniform") and not self._universal:
            raise TersenseError(
                f"{imager.name} measures every window with all of its rows, so that {mode} has "
                "nothing to decide; leave it out or use a universal model such as flex"
            )
        if refined < 0:
            raise TersenseError(f"refined must be at least 0, got {refined}")
        if refined and not self._universal:
            raise TersenseError(
                f"only files of universal models can be refined, which {imager.name} is not; "
                "leave it out or use flex"
            )
        decision = (decider or imager).camera.decision
        usual: BitsMode = "uniform" if decision is None else "encoder"
        self.imager, self.bpp, self.quality = imager, bpp, quality
        self.mode: BitsMode = mode or usual
        if self.mode != "uniform" or decider:  # refuses what cannot be before an image is there
            AdaptiveCamera(imager, imager.rate, self.mode, rounds, decider=decider)
        # A closed loop takes long to try; what costs nothing tells about where to look.
        self._quick: BitsMode = usual if self.mode == "closed" else self.mode
        self.rounds, self.refined, self.decider = rounds, refined, decider

    def describe(self) -> dict[str, Any]:
        """Return how it decides, ready for JSON."""
        other: dict[str, Any] = {} if self.decider is None else {"decider": self.decider.name}
        if self.mode == "closed":
            other["rounds"] = self.rounds or USUAL_ROUNDS
        return {"mode": self.mode, "bpp": self.bpp, "quality": self.quality,
                "refined": self.refined, **other}  # fmt: skip

    def sense(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Measurements:
        """Sense an image and choose what is kept of it."""
        _require_exact(readout)
        limit = math.inf if self.bpp is None else self._limit(image)
        if self.quality is not None:
            y = self._sense_at(self.quality, self.mode, image, depth)
        else:
            y = self._sense_within(int(limit), image, depth)
        if not self.refined:
            return y
        return refine(self.imager, image, y, self.refined, lambda y: self._size(y) <= limit)

    def capture(
        self, image: ImageArray, readout: Readout | None = None, depth: int = USUAL
    ) -> Captured:
        """Sense and reconstruct one image; the bits are those of its file."""
        y = self.sense(image, readout, depth)
        return Captured(self.imager.estimate(y), y.taken, 8 * self._size(y))

    def _limit(self, image: ImageArray) -> int:
        assert self.bpp is not None
        return int(self.bpp * image.shape[0] * image.shape[1] / 8)

    def _size(self, y: Measurements) -> int:
        return len(y.to_bytes(self.imager.patterns))

    def _sense_within(self, limit: int, image: ImageArray, depth: int) -> Measurements:
        """Return the measurements of the highest quality whose file has at most `limit` bytes."""
        quality, best = 0.0, self._sense_at(0, self._quick, image, depth)
        if (least := self._size(best)) > limit:
            raise self._too_large(best)
        wanted = max(least, int(limit * (1 - _SPARED))) if self.refined else limit
        finest = self._sense_at(FINEST, self._quick, image, depth)
        if self._size(finest) <= wanted:  # as of an image without content, whose files hardly grow
            quality, best = FINEST, finest
        for attempt in range(_TRIES if quality < FINEST else 0):
            higher = quality + FINEST / 2 ** (attempt + 1)
            y = self._sense_at(higher, self._quick, image, depth)
            if self._size(y) <= wanted:
                quality, best = higher, y
        if self.mode == self._quick:
            return best
        return self._close_in(quality, wanted, limit, image, depth)

    def _close_in(
        self, quality: float, wanted: int, limit: int, image: ImageArray, depth: int
    ) -> Measurements:
        """Return the largest that has the wanted size, of a few closed loops around a quality."""
        best, largest, tries = None, 0, 0
        while best is None or (tries < _CLOSED_TRIES and largest < (1 - _SLACK) * wanted):
            y = self._sense_at(quality, "closed", image, depth)
            size, tries = self._size(y), tries + 1
            if best is None and quality == 0 and size > limit:
                raise self._too_large(y)
            if largest < size <= (wanted if quality else limit):
                best, largest = y, size
            # A little less each time, so that one fits.
            missing = math.log(wanted / size) - tries * _SLACK / 2
            before, quality = quality, min(max(quality + missing / _GROWTH, 0), FINEST)
            if best is not None and quality == before:  # there is none finer
                break
        return best

    def _too_large(self, y: Measurements) -> TersenseError:
        least = 8 * self._size(y) / (y.header.height * y.header.width)
        least = math.ceil(least * 1000) / 1000
        return TersenseError(
            f"{self.name} needs at least {least:g} bits per pixel for this image, got "
            f"{self.bpp:g}; give more, or a quality instead"
        )

    def _sense_at(
        self, quality: float, mode: BitsMode, image: ImageArray, depth: int
    ) -> Measurements:
        step = step_for(quality)
        wider = math.sqrt(self.imager.patterns.additions_per_measurement / _NONZEROS)
        whole = max(1, round(step * wider * largest_pixel(depth) / 255))
        bits = 1 + (self.imager.patterns.largest_magnitude_at(depth) // whole + 1).bit_length()
        readout = Readout(min(max(2, bits), MOST_BITS), float(whole))
        if not self._universal:
            return self.imager.sense(image, readout=readout, depth=depth)
        lowest = self.imager.reconstructor.lowest_rate
        lapped = self.geometry.window > self.geometry.stride
        rate = rate_for(step) * (_LAPPED if lapped else 1)
        rate = min(max(rate, lowest), self.imager.rate)
        exact = self.imager.sense(image, depth=depth)
        if image.ndim == 2:
            y = self._sense_gray(rate, mode, image, readout, depth)
            return shaped(self.imager, sums_for(exact, y), y)
        counts = self._sense_gray(rate, mode, brightness(image), readout, depth).counts
        assert counts is not None
        least = rows_for_rate(lowest, self.geometry.stride)
        chroma = np.maximum((counts * _CHROMA).astype(np.int32), least)
        y = to_differences(exact, readout, np.stack([counts, chroma, chroma]))
        return shaped(self.imager, sums_for(exact, y), y)

    def _sense_gray(
        self, rate: float, mode: BitsMode, image: ImageArray, readout: Readout, depth: int
    ) -> Measurements:
        if mode == "uniform":
            rows = rows_for_rate(rate, self.geometry.stride)
            return self.imager.sense(image, readout=readout, depth=depth, counts=rows)
        rounds = self.rounds if mode == "closed" else None
        camera = AdaptiveCamera(self.imager, rate, mode, rounds, decider=self.decider)
        return camera.sense(image, readout, depth)


def step_for(quality: float) -> float:
    """Return the step of a quality from 0 to 100, in values of 8-bit pixels: that of `flex`."""
    return _WIDEST * math.pow(_NARROWEST / _WIDEST, quality / FINEST)


def rate_for(step: float) -> float:
    """Return the measurements per pixel that go with a step."""
    steps, rates = np.log(np.array(_BEST)).T
    return float(np.exp(np.interp(math.log(step), steps, rates)))


def _require_exact(readout: Readout | None) -> None:
    if readout is not None and not readout.exact:
        raise TersenseError(f"a size or a quality chooses the readout; got another: {readout}")
