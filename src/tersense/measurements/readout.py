"""How measurements are read out: light, noise of the sensor, then a converter of few bits.

    y ──photons──▶ ──+ Gaussian noise──▶ ──÷ step, round half up, clip──▶ codes

A value v of a quantized readout stands for v·step. Reconstructors are told the deviation of the
error, because a network or an estimate that knows it need not believe its measurements blindly.

Photons: mirrors are on or off, so a pattern is shown twice, first its +1 and then its −1, and each
exposure counts photons. A pixel of value v gives v·photons of them on average, and y is the
difference of the two counts divided by photons. Its variance is light/photons, where `light`, |Φ|x,
is the sum of the pixels that are on in either exposure. Gains of other libraries are 1/photons:
`gain` of deepinv's PoissonNoise, and SPyRiT's `alpha` is photons times the largest pixel value.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tersense.io.schema import above, at_least, at_most, build, require, validate

LARGEST_NOISE = 1e7  # so that the noisiest measurement fits 32 bits
LEAST_PHOTONS = 1e-6  # for the same reason
MOST_PHOTONS = 1e9  # so that counts fit 64 bits
MOST_BITS = 32
LARGEST_VALUE = 2**31 - 1
WHOLE_RANGE = 100.0  # percentile: nothing is clipped

Values = TypeVar("Values", bound=Any)  # arrays of numpy and tensors of torch alike


@dataclass(frozen=True)
class Readout:
    """The light, the sensor's noise and its converter; without arguments, exact integers.

    Args:
        bits: B of the converter; 0 for exact values. Codes lie within ±(2^(B−1) − 1).
        step: What one unit of a code stands for; 1 for exact values.
        noise: Standard deviation of Gaussian noise on each measurement, in pixel values.
        seed: Of all that is random.
        photons: That a pixel of value 1 gives in an exposure, on average; 0 for light without
            shot noise.
        percentile: If above 0, the step follows the image: `ranged` chooses it so that this share
            of all |y|, in percent, is not clipped.

    Example:
        >>> import numpy as np
        >>> from tersense import Readout
        >>> readout = Readout.covering(1000, bits=4)
        >>> readout.apply(np.array([0, 100, -999]))
        array([ 0,  1, -7], dtype=int32)
    """

    bits: Annotated[int, at_least(0), at_most(MOST_BITS)] = 0
    step: Annotated[float, above(0)] = 1.0
    noise: Annotated[float, at_least(0), at_most(LARGEST_NOISE)] = 0.0
    seed: Annotated[int, at_least(0)] = 0
    photons: Annotated[float, at_least(0), at_most(MOST_PHOTONS)] = 0.0
    percentile: Annotated[float, at_least(0), at_most(100)] = 0.0

    def __post_init__(self) -> None:
        validate("readout", self)
        require(self.bits != 1, "readout.bits", self.bits, f"0 or from 2 to {MOST_BITS}")
        require(
            not 0 < self.photons < LEAST_PHOTONS, "readout.photons", self.photons,
            f"0, or from {LEAST_PHOTONS:g} to {MOST_PHOTONS:g}",
        )  # fmt: skip

    @classmethod
    def covering(
        cls, full_scale: float, bits: int | None = None, noise: float = 0.0, seed: int = 0,
        photons: float = 0.0,
    ) -> "Readout":  # fmt: skip
        """Return the readout whose converter reaches ±`full_scale`, in whole steps.

        Args:
            full_scale: The largest magnitude to represent; what exceeds it is clipped.
            bits: At least 2; None for exact values.
            noise: As above.
            seed: As above.
            photons: As above.
        """
        rest = {"noise": float(noise), "seed": int(seed), "photons": float(photons)}
        if bits is None:
            return cls(**rest)  # type: ignore[arg-type]
        _require_bits(bits)
        return cls(int(bits), _whole_step(full_scale, bits), **rest)  # type: ignore[arg-type]

    @classmethod
    def ranging(
        cls, bits: int | None = None, noise: float = 0.0, seed: int = 0, photons: float = 0.0,
        percentile: float = WHOLE_RANGE,
    ) -> "Readout":  # fmt: skip
        """Return the readout whose converter is ranged for each image; see `percentile`."""
        if bits is not None:
            _require_bits(bits)
        share = float(percentile) if bits else 0.0
        return cls(int(bits or 0), 1.0, float(noise), int(seed), float(photons), share)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Readout":
        """Build a readout from what `to_dict` returned; refuse what no readout has."""
        return build("readout", cls, content)

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; photons and percentile only where there are any."""
        later = ("photons", "percentile")  # files of before do not have them
        return {key: value for key, value in asdict(self).items() if key not in later or value}

    @property
    def largest_code(self) -> int:
        """The largest magnitude of a code; of exact values, that of 32 bits."""
        return int(2 ** (self.bits - 1) - 1) if self.bits else LARGEST_VALUE

    @property
    def full_scale(self) -> float:
        """The largest magnitude that is not clipped."""
        return self.largest_code * self.step

    @property
    def exact(self) -> bool:
        """Whether nothing happens to the measurements."""
        return not (self.bits or self.noise or self.photons)

    @property
    def deviation(self) -> float:
        """The standard deviation of a measurement's error, in pixel values, but for photons."""
        rounding = self.step**2 / 12 if self.bits else 0.0
        return math.sqrt(self.noise**2 + rounding)

    def deviation_at(self, light: Values) -> Values | float:
        """Return the standard deviation of each measurement's error, shot noise included.

        Args:
            light: |Φ|x, the sum of the pixels that are on in either exposure; an estimate or an
                upper bound serves. Of any shape that broadcasts to y.

        Returns:
            A number where it is the same for all, otherwise of the shape of `light`.
        """
        if not self.photons:
            return self.deviation
        deviation: Values = (light / self.photons + self.deviation**2) ** 0.5
        return deviation

    def scaled(self, factor: float) -> "Readout":
        """Return the same readout for measurements in other units, y·factor and light·factor."""
        return replace(
            self, step=self.step * factor, noise=self.noise * factor, photons=self.photons / factor
        )

    def ranged(self, y: NDArray[Any]) -> "Readout":
        """Return the readout with the whole step that suits y; itself where it is fixed."""
        if not (self.bits and self.percentile):
            return self
        # Always a value that was measured, so that no arithmetic rounds it.
        magnitudes = np.abs(y.astype(np.int64) if y.dtype.kind in "iu" else y)
        reached = np.percentile(magnitudes, self.percentile, method="inverted_cdf")
        return replace(self, step=_whole_step(float(reached), self.bits))

    def disturb(self, y: NDArray[Any], light: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return what light and sensor make of exact measurements, before the converter: integers.

        Args:
            y: Exact measurements.
            light: |Φ|x of the same shape, needed for photons.
        """
        if not (self.noise or self.photons):
            return y
        rng, noisy = np.random.default_rng(self.seed), y.astype(np.float64)
        if self.photons:
            if light is None:
                raise ValueError("shot noise needs light, |Φ|x; sense the image with an Imager")
            exposures = (light + noisy) / 2, (light - noisy) / 2
            positive, negative = (rng.poisson(self.photons * np.maximum(e, 0)) for e in exposures)
            noisy = (positive - negative) / self.photons
        if self.noise:
            noisy += rng.normal(0.0, self.noise, y.shape)
        return np.clip(np.rint(noisy), -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)

    def quantize(self, y: Values) -> Values:
        """Return the codes of y, clip(⌊y/step + 1/2⌋); y itself where exact.

        Integers in whole steps are divided as integers, as hardware does it. Arrays and tensors of
        real numbers give real numbers.
        """
        if not self.bits:
            return y
        codes: Any
        if isinstance(y, np.ndarray) and y.dtype.kind in "iu" and self.step.is_integer():
            codes = (2 * y.astype(np.int64) + int(self.step)) // (2 * int(self.step))
        else:
            shifted = y / self.step + 0.5
            codes = shifted.floor() if hasattr(shifted, "floor") else np.floor(shifted)
        clipped: Values = codes.clip(-self.largest_code, self.largest_code)
        return clipped

    def apply(self, y: NDArray[Any], light: NDArray[Any] | None = None) -> NDArray[np.int32]:
        """Return what the readout, with its step, gives for exact measurements; see `disturb`."""
        codes: NDArray[np.int32] = np.asarray(self.quantize(self.disturb(y, light)))
        return codes.astype(np.int32)

    def __str__(self) -> str:
        return "; ".join(filter(None, (self._converter(), *self._errors()))) or "exact"

    def _converter(self) -> str:
        if not self.bits:
            return ""
        if not self.percentile:
            return f"{self.bits} bits, steps of {self.step:g}"
        whole = self.percentile == WHOLE_RANGE
        followed = "the largest |y|" if whole else f"{self.percentile:g} % of |y|"
        steps = "" if self.step == 1 else f"steps of {self.step:g}, "
        return f"{self.bits} bits, {steps}ranged for the image to {followed}"

    def _errors(self) -> tuple[str, ...]:
        found = (
            f"{self.photons:g} photons per pixel value" if self.photons else "",
            f"noise of deviation {self.noise:g}" if self.noise else "",
        )
        return (*found, f"seed {self.seed}") if any(found) else ()


def _require_bits(bits: int) -> None:
    if not 2 <= bits <= MOST_BITS:
        raise ValueError(f"bits must be from 2 to {MOST_BITS}, got {bits}")


def _whole_step(full_scale: float, bits: int) -> float:
    """Return the smallest whole step with which codes of so many bits reach the full scale."""
    return float(max(1, math.ceil(full_scale / (2 ** (int(bits) - 1) - 1))))
