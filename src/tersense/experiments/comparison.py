"""One image, sensed uniformly and in rounds, with the same number of measurements."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tersense.evaluation.metrics import psnr
from tersense.io.count_maps import CountScale, draw_count_bar, draw_counts
from tersense.io.figures import ERROR_CAPTION, draw_color_bar, draw_error, draw_sheet
from tersense.io.images import ImageArray
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.imager import Imager

_WIDTH = 330  # pixels, at least, of each panel: captions need them
_BAR_CAPTION = "measurements per window, and per pixel"


@dataclass(frozen=True, eq=False)
class Comparison:
    """An image and what came back of it, from as many measurements spent in two ways.

    Args:
        imager: With all rows.
        rounds: Of the adaptive one.
        original: (H, W) or (H, W, 3) uint8.
        uniform: The same number of rows in every window.
        adaptive: Counts per window.
        uniform_image: Reconstructed from `uniform`.
        adaptive_image: Reconstructed from `adaptive`.
        decider: Who decided on the counts, where it was not the imager.
    """

    imager: Imager
    rounds: int
    original: ImageArray
    uniform: Measurements
    adaptive: Measurements
    uniform_image: ImageArray
    adaptive_image: ImageArray
    decider: Imager | None = None

    @property
    def gain(self) -> float:
        """By how many dB the adaptive image is better."""
        return psnr(self.adaptive_image, self.original) - psnr(self.uniform_image, self.original)


def compare_sensing(
    imager: Imager,
    image: ImageArray,
    rate: float,
    rounds: int,
    readout: Readout | None = None,
    decider: Imager | None = None,
    uniform: tuple[Measurements, ImageArray] | None = None,
) -> Comparison:
    """Sense an image uniformly and in rounds, and reconstruct it from both.

    Args:
        imager: With a universal network and its predictor.
        image: (H, W) or (H, W, 3) uint8.
        rate: Measurements per pixel, of both.
        rounds: Of the adaptive one; 1 is uniform, too.
        readout: What happens to the values.
        decider: Who decides where to measure, where it is not the imager.
        uniform: Measurements and reconstruction, where they are there already.
    """
    camera = AdaptiveCamera(imager, rate, "closed", rounds, decider=decider)
    if uniform is None:
        lower = imager.at_rate(rate)
        y = lower.sense(image, readout=readout)
        uniform = y, lower.reconstruct(y)
    adaptive = camera.sense(image, readout)
    images = uniform[1], imager.reconstruct(adaptive)
    return Comparison(imager, rounds, image, uniform[0], adaptive, *images, decider)


def counts_of(measurements: Measurements) -> NDArray[np.int32]:
    """Return how many measurements each window took, (h, w) or (3, h, w)."""
    if measurements.counts is not None:
        return measurements.counts
    header = measurements.header
    return np.full(header.shape[-2:], header.rows, np.int32)


def draw_comparison(compared: Comparison) -> ImageArray:
    """Draw where the measurements went, both images and their errors, with scales."""
    enlarge = _enlargement(compared.original)
    shown = compared.original, compared.uniform_image, compared.adaptive_image
    original, uniform, adaptive = (_enlarged(image, enlarge) for image in shown)
    first, second = (
        _enlarged(draw_error(image, compared.original), enlarge) for image in shown[1:]
    )
    rounds = f"{compared.rounds} round{'s' if compared.rounds > 1 else ''}"
    qualities = (f"{psnr(image, compared.original):.2f} dB" for image in shown[1:])
    costs = (f"error; {_cost(y)}" for y in (compared.uniform, compared.adaptive))
    heat, bar = _draw_map(compared.imager, compared.adaptive, compared.original, enlarge)
    names = "uniform", rounds
    captions = (f"{name}: {quality}" for name, quality in zip(names, qualities, strict=True))
    return draw_sheet([
        [("original", original), *zip(captions, (uniform, adaptive), strict=True)],
        [(_spread(compared.adaptive), heat), *zip(costs, (first, second), strict=True)],
        [(_BAR_CAPTION, bar), (ERROR_CAPTION, draw_color_bar(original.shape[1]))],
    ])  # fmt: skip


def draw_where(imager: Imager, measurements: Measurements) -> ImageArray:
    """Draw where the measurements of a file went, over the image that they give."""
    image = imager.reconstruct(measurements)
    enlarge = _enlargement(image)
    heat, bar = _draw_map(imager, measurements, image, enlarge)
    return draw_sheet([
        [(_cost(measurements), _enlarged(image, enlarge)), (_spread(measurements), heat)],
        [(_BAR_CAPTION, bar)],
    ])  # fmt: skip


def _draw_map(
    imager: Imager, measurements: Measurements, image: ImageArray, enlarge: int
) -> tuple[ImageArray, ImageArray]:
    """Return the counts over an image, and the bar that explains the colors."""
    counts, stride = counts_of(measurements), imager.geometry.stride
    scale = CountScale.of(counts)
    heat = draw_counts(image, counts, stride, scale, enlarge, numbers=True)
    return heat, draw_count_bar(heat.shape[1], scale, stride)


def _cost(measurements: Measurements) -> str:
    return f"{measurements.per_pixel:.4f} measurements per pixel"


def _spread(measurements: Measurements) -> str:
    counts = counts_of(measurements)
    if counts.min() == counts.max():
        return f"{counts.min()} in every window"
    return f"{counts.min()} to {counts.max()} per window, {counts.mean():.0f} on average"


def _enlargement(image: ImageArray) -> int:
    return math.ceil(_WIDTH / int(image.shape[1]))


def _enlarged(image: ImageArray, times: int) -> ImageArray:
    color = image if image.ndim == 3 else np.stack([image] * 3, axis=2)
    large: ImageArray = color.repeat(times, axis=0).repeat(times, axis=1)
    return large
