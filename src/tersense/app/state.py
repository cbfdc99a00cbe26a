"""An image's whole way through a camera, with everything that the web page shows of it."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr, ssim
from tersense.experiments.comparison import Comparison, counts_of
from tersense.io.images import ImageArray
from tersense.io.webpage import BITS, NOISES
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models.adaptive import measure_alike
from tersense.models.imager import Imager
from tersense.models.zoo import ALIASES, load, names

_PURPOSES = {  # of the built-in families; their windows and additions are looked up
    "lapped": "Overlapping windows, every sampling ratio, two fifths of the arithmetic of large",
    "block": "Windows side by side, fewest additions",
    "flex": "One model for every sampling ratio",
    "large": "Overlapping windows, every sampling ratio, four times the arithmetic of flex",
    "fast": "Overlapping windows, every sampling ratio, a third of the time of flex",
    "paper": "The network of the 2017 paper",
}
ROUNDS = range(2, 6)  # of adaptive sensing
_RATES = (0.01, 0.04, 0.1, 0.25, 0.3, 0.5)  # offered of models that work at any rate

Shelf = dict[str, dict[str, Imager]]


def stock_shelf(models: Sequence[str] | None = None) -> Shelf:
    """Load the cameras on offer: by family, then by rate (`block` → `25 %`).

    Models that differ in their rate only (`own-r10`, `own-r25`) are one family; a model that
    works at any rate is one by itself.

    Args:
        models: Built-in names or model files; None for all that are built in, the default first.
    """
    if models is None:
        first = ALIASES["default"].model
        models = [first, *(name for name in names() if name != first)]
    shelf: Shelf = {}
    for imager in map(load, models):
        for one in _at_rates(imager):
            family = shelf.setdefault(re.sub(r"-r\d+$", "", imager.name), {})
            label = _label(one.rate)
            if label in family:  # two models of the same name: tell them apart by their patterns
                family = shelf.setdefault(f"{imager.name} ({imager.patterns.hash[:6]})", {})
            family[label] = one
    return {name: dict(sorted(f.items(), key=lambda item: item[1].rate))
            for name, f in shelf.items()}  # fmt: skip


def choose_readout(bits: object, noise: object) -> Readout:
    """Return the readout that somebody chose; a request may hold anything."""
    for name, value, known in (("bits", bits, BITS), ("noise", noise, NOISES)):
        if not isinstance(value, str) or value not in known:
            raise TersenseError(f"{name} must be {', '.join(known)}; choose one")
    return Readout.ranging(BITS[str(bits)] or None, NOISES[str(noise)])


def choose_rounds(rounds: object) -> int:
    """Return the rounds that somebody chose; a request may hold anything."""
    if not isinstance(rounds, int | float) or isinstance(rounds, bool) or rounds not in ROUNDS:
        raise TersenseError(f"rounds must be from {ROUNDS[0]} to {ROUNDS[-1]}; choose them again")
    return int(rounds)


def deciding_camera(rates: Mapping[str, Imager]) -> Imager | None:
    """Return the camera of a family that decides where to measure, with all its rows, if any."""
    whole = max(rates.values(), key=lambda imager: imager.rate)
    return whole if whole.camera.predictor is not None else None


def quickest_decider(shelf: Shelf, whole: Imager) -> Imager | None:
    """Return the smallest camera on the shelf that can decide for another, if any is smaller.

    Args:
        shelf: The cameras on offer.
        whole: Of `deciding_camera`.
    """
    deciding = (deciding_camera(rates) for rates in shelf.values())
    alike = [one for one in deciding if one and measure_alike(one, whole)]
    quickest = min([whole, *alike], key=lambda imager: imager.parameters)
    return None if quickest is whole else quickest


def _at_rates(imager: Imager) -> list[Imager]:
    if not imager.reconstructor.any_rate:
        return [imager]
    lowest = 0.999 * max(imager.reconstructor.lowest_rate, 1 / imager.patterns.stride**2)
    own = _label(imager.rate)
    rates = [rate for rate in _RATES if lowest < rate < imager.rate and _label(rate) != own]
    lower = [imager.at_rate(rate) for rate in rates]
    # Of a few patterns, several rates may come to the same number.
    return list({one.rows: one for one in (*lower, imager)}.values())


def _label(rate: float) -> str:
    return f"{100 * rate:.2g} %"


def explain(family: str, rates: Mapping[str, Imager]) -> str:
    """Say in one line what a family on the shelf is: its purpose, windows and additions."""
    imagers = list(rates.values())
    one = imagers[0]
    overlap = one.patterns.stride < one.patterns.window
    laid = "overlapping windows" if overlap else "windows side by side"
    purpose = f"Your own model, {laid}"
    if all(imager.name in names() for imager in imagers):
        purpose = _PURPOSES.get(family, f"Built in, {laid}")
    elif one.reconstructor.any_rate:
        purpose += ", any sampling ratio"
    windows, strides, additions = (
        sorted(set(values))
        for values in zip(
            *((i.patterns.window, i.patterns.stride, round(i.patterns.additions_per_measurement))
              for i in imagers),
            strict=True,
        )
    )  # fmt: skip
    return (
        f"{purpose}. {_span([f'{window}×{window}' for window in windows])} pixels, "
        f"stride {_span(strides)}; {_span(additions)} additions per measurement."
    )


def _span(values: Sequence[object]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


@dataclass(frozen=True)
class Capture:
    """An image, what was measured of it, and what came back.

    Args:
        imager: The camera.
        original: (H, W) or (H, W, 3) uint8.
        measurements: What the camera read out.
        estimate: What came back, as `original`.
        sensing_seconds: By the clock on the wall.
        reconstruction_seconds: By the clock on the wall.
    """

    imager: Imager
    original: ImageArray
    measurements: Measurements
    estimate: ImageArray
    sensing_seconds: float
    reconstruction_seconds: float

    @property
    def quality(self) -> dict[str, tuple[str, str]]:
        """Return how good it is, and from how little: name → value, and what else to know."""
        likeness, y = ssim(self.estimate, self.original), self.measurements
        height, width = self.original.shape[:2]
        each = "" if self.original.ndim == 2 else "of each color, "
        return {
            "PSNR": (f"{psnr(self.estimate, self.original):.2f} dB", f"{width}×{height} pixels"),
            "SSIM": ("–" if math.isnan(likeness) else f"{likeness:.4f}", "1 would be the same"),
            "Measurements per pixel": (f"{y.per_pixel:.3f}", f"{each}{y.taken:,} in all"),
        }

    @property
    def costs(self) -> dict[str, tuple[str, str]]:
        """Return what it takes: name → value, and what to hold it against."""
        patterns, y = self.imager.patterns, self.measurements
        windows = y.values.size // len(patterns)  # of all channels
        dense = patterns.phi.size * windows
        stored, as_float = (patterns.storage_bytes[form] for form in ("CSC", "float32"))
        # Exact sums leave a sensor as its accumulators hold them; a plain file has 16 or 32 bits.
        converted = y.header.readout.bits
        bits = 8 * y.payload_bytes if converted else y.taken * patterns.accumulator_bits
        return {
            "Arithmetic": (
                f"{_short(patterns.nonzeros * windows)} additions",
                f"dense: {_short(dense)} multiply-adds",
            ),
            "Matrix": (_bytes(stored), f"dense float: {_bytes(as_float)}"),
            "Readout": (
                _bytes(-(-bits // 8)),
                f"{bits / y.pixels:.2g} bits per pixel; the image: {_bytes(self.original.size)}",
            ),
            "Sensed in": (
                _time(self.sensing_seconds),
                f"{len(patterns)} patterns, {patterns.density:.1%} non-zero",
            ),
            "Reconstructed in": (
                _time(self.reconstruction_seconds),
                f"{self.imager.name}, {_short(self.imager.parameters)} weights",
            ),
        }


def capture(imager: Imager, image: ImageArray, readout: Readout | None = None) -> Capture:
    """Sense and reconstruct an image."""
    began = time.perf_counter()
    y = imager.sense(image, readout=readout)
    sensed = time.perf_counter()
    estimate = imager.reconstruct(y)
    done = time.perf_counter()
    return Capture(imager, image, y, estimate, sensed - began, done - sensed)


def describe_comparison(compared: Comparison) -> dict[str, tuple[str, str]]:
    """Return what rounds are worth: name → value, and what else to know."""
    counts, original = counts_of(compared.adaptive), compared.original
    decided = f", decided by {compared.decider.name}" if compared.decider else ""
    return {
        "Uniform": (
            f"{psnr(compared.uniform_image, original):.2f} dB",
            f"{compared.uniform.header.rows} in every window",
        ),
        f"{compared.rounds} rounds": (
            f"{psnr(compared.adaptive_image, original):.2f} dB",
            f"{counts.min()} to {counts.max()} per window{decided}",
        ),
        "Gain": (f"{compared.gain:+.2f} dB", f"both of {compared.adaptive.taken:,} measurements"),
    }


def _short(count: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.3g}"


def _bytes(count: float) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
