"""How measurements are read out: light, noise of the sensor, then a converter of few bits.

    y ──photons──▶ ──+ Gaussian noise──▶ ──÷ step, round half up, − offset, clip──▶ codes

A code stands for (code + offset)·step. The sums of a pattern that is mostly +1 are many times
larger than those of a balanced one, and rarely near zero. So each pattern may have a step and an
offset of its own: a gain before the converter, and where the middle of its range lies.
Reconstructors are told the deviation of the error, because a network or an estimate that knows it
need not believe its measurements blindly.

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
        percentile: If above 0, the steps follow the image: `ranged` chooses one for each row of Φ,
            so that this share of its y, in percent, is not clipped.
        steps: Of each row of Φ, where `ranged` chose them; `step` means nothing then.
        offsets: Of each row of Φ, in its steps, where `ranged` chose them; 0 for all where not.

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
    steps: tuple[Annotated[float, above(0), at_most(LARGEST_VALUE)], ...] = ()
    offsets: tuple[Annotated[int, at_least(-LARGEST_VALUE), at_most(LARGEST_VALUE)], ...] = ()

    def __post_init__(self) -> None:
        validate("readout", self)
        require(self.bits != 1, "readout.bits", self.bits, f"0 or from 2 to {MOST_BITS}")
        require(
            not 0 < self.photons < LEAST_PHOTONS, "readout.photons", self.photons,
            f"0, or from {LEAST_PHOTONS:g} to {MOST_PHOTONS:g}",
        )  # fmt: skip
        require(
            len(self.offsets) in (0, len(self.steps)), "readout.offsets", len(self.offsets),
            f"as many as steps, {len(self.steps)}, or none",
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
        """Return the readout whose converter follows the image; see `percentile` and `ranged`."""
        if bits is not None:
            _require_bits(bits)
        share = float(percentile) if bits else 0.0
        return cls(int(bits or 0), 1.0, float(noise), int(seed), float(photons), share)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Readout":
        """Build a readout from what `to_dict` returned; refuse what no readout has."""
        return build("readout", cls, content)

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; what files of before do not have only where it is there."""
        later = ("photons", "percentile", "steps", "offsets")
        content = asdict(self) | {"steps": list(self.steps), "offsets": list(self.offsets)}
        return {key: value for key, value in content.items() if key not in later or value}

    @property
    def largest_code(self) -> int:
        """The largest magnitude of a code; of exact values, that of 32 bits."""
        return int(2 ** (self.bits - 1) - 1) if self.bits else LARGEST_VALUE

    def largest_from(self, magnitude: float) -> int:
        """Return the largest code of sums up to a magnitude, with all the noise there ever is."""
        if self.bits:
            return self.largest_code
        noise = float(np.max(self.deviation_at(np.float64(magnitude))))
        return int(min(self.largest_code, magnitude + 8 * noise))

    @property
    def unit(self) -> float | NDArray[np.float64]:
        """What one unit of a code stands for: `step`, or (m, 1, 1) where rows of Φ differ."""
        return np.array(self.steps)[:, None, None] if self.steps else self.step

    @property
    def offset(self) -> int | NDArray[np.int64]:
        """Which multiple of the unit the code 0 stands for: 0, or (m, 1, 1) where rows differ."""
        return np.array(self.offsets)[:, None, None] if self.offsets else 0

    @property
    def exact(self) -> bool:
        """Whether nothing happens to the measurements."""
        return not (self.bits or self.noise or self.photons)

    @property
    def deviation(self) -> float | NDArray[np.float64]:
        """The standard deviation of a measurement's error, in pixel values, but for photons.

        A number, or (m, 1, 1) where rows of Φ differ.
        """
        rounding = self.unit**2 / 12 if self.bits else 0.0
        deviation: float | NDArray[np.float64] = (self.noise**2 + rounding) ** 0.5
        return deviation

    def deviation_at(self, light: Values) -> Values | float | NDArray[np.float64]:
        """Return the standard deviation of each measurement's error, shot noise included.

        Args:
            light: |Φ|x, the sum of the pixels that are on in either exposure; an estimate or an
                upper bound serves. A number, array or tensor that broadcasts to y.

        Returns:
            `deviation` without photons, otherwise of the kind of `light`.
        """
        if not self.photons:
            return self.deviation
        deviation: Values = (light / self.photons + _alike(self.deviation, light) ** 2) ** 0.5
        return deviation

    def scaled(self, factor: float) -> "Readout":
        """Return the same readout for measurements in other units, y·factor and light·factor."""
        return replace(
            self, step=self.step * factor, noise=self.noise * factor, photons=self.photons / factor,
            steps=tuple(step * factor for step in self.steps),
        )  # fmt: skip

    def ranged(self, y: NDArray[Any], measured: NDArray[np.bool_] | None = None) -> "Readout":
        """Return the readout whose whole steps and offsets suit y (…, m, h, w), row by row of Φ.

        Where the readout does not follow the image, it is returned as it is. A row that no window
        was measured with gets those of the one before: its error is that of rows like it.

        Args:
            y: Before the converter.
            measured: Which of them were measured, broadcasting to y; None for all.
        """
        if not (self.bits and self.percentile):
            return self
        wide = y.astype(np.int64) if y.dtype.kind in "iu" else y
        of_rows = np.moveaxis(wide, -3, 0).reshape(y.shape[-3], -1)
        # Always a value that was measured, so that no arithmetic rounds it.
        ends = (100 - self.percentile) / 2, (100 + self.percentile) / 2
        rule: Any = {"q": ends, "method": "inverted_cdf"}
        if measured is None:
            reached = np.percentile(of_rows, axis=1, **rule).T.tolist()
        else:
            there = np.moveaxis(np.broadcast_to(measured, y.shape), -3, 0).reshape(of_rows.shape)
            reached = []
            for row, of_row in zip(of_rows, there, strict=True):
                before = reached[-1] if reached else (0, 0)
                reached.append(np.percentile(row[of_row], **rule) if of_row.any() else before)
        steps, offsets = zip(*(self._range(*ends) for ends in reached), strict=True)
        return replace(self, steps=steps, offsets=offsets if any(offsets) else ())

    def _range(self, lowest: float, highest: float) -> tuple[float, int]:
        """Return the smallest whole step, and the offset, with which codes reach both ends."""
        step = _whole_step((highest - lowest) / 2, self.bits)
        if step == _whole_step(max(-lowest, highest), self.bits):
            return step, 0
        first, last = (int((2 * end + step) // (2 * step)) for end in (lowest, highest))
        return step, (first + last) // 2

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
        """Return the codes of y (…, m, h, w), clip(⌊y/step + 1/2⌋ − offset); y itself where exact.

        Integers in whole steps are divided as integers, as hardware does it. Arrays and tensors of
        real numbers give real numbers.
        """
        if not self.bits:
            return y
        codes: Any
        unit = _alike(self.unit, y)
        if isinstance(y, np.ndarray) and y.dtype.kind in "iu" and np.all(unit % 1 == 0):
            whole = np.asarray(unit).astype(np.int64)
            codes = (2 * y.astype(np.int64) + whole) // (2 * whole)
        else:
            shifted = y / unit + 0.5
            codes = shifted.floor() if hasattr(shifted, "floor") else np.floor(shifted)
        codes = codes - _alike(self.offset, codes)
        clipped: Values = codes.clip(-self.largest_code, self.largest_code)
        return clipped

    def values(self, codes: Values) -> Values:
        """Return what codes (…, m, h, w) stand for: (code + offset)·step, 1 where exact."""
        values: Values = (codes + _alike(self.offset, codes)) * _alike(self.unit, codes)
        return values

    def apply(self, y: NDArray[Any], light: NDArray[Any] | None = None) -> NDArray[np.int32]:
        """Return what the readout, with its steps, gives for exact measurements; see `disturb`."""
        codes: NDArray[np.int32] = np.asarray(self.quantize(self.disturb(y, light)))
        return codes.astype(np.int32)

    def __str__(self) -> str:
        return "; ".join(filter(None, (self._converter(), self._errors()))) or "exact"

    def _converter(self) -> str:
        if not self.bits:
            return ""
        steps = f"steps of {self.step:g}"
        if self.steps:
            steps = f"steps of {min(self.steps):g} to {max(self.steps):g}"
        if not self.percentile:
            return f"{self.bits} bits, {steps}"
        whole = self.percentile == WHOLE_RANGE
        followed = "all" if whole else f"{self.percentile:g} %"
        steps = f"{steps}, " if self.steps else ""
        return f"{self.bits} bits, {steps}each pattern ranged to {followed} of its y"

    def _errors(self) -> str:
        photons = f"{self.photons:g} photons per pixel value" if self.photons else ""
        noise = f"noise of deviation {self.noise:g}" if self.noise else ""
        found = " and ".join(filter(None, (photons, noise)))
        return f"{found}, seed {self.seed}" if found else ""


def _alike(values: float | NDArray[Any], like: Any) -> Any:
    """Return numbers ready to be combined with an array or a tensor."""
    if isinstance(values, np.ndarray) and hasattr(like, "new_tensor"):
        return like.new_tensor(values)
    return values


def _require_bits(bits: int) -> None:
    if not 2 <= bits <= MOST_BITS:
        raise ValueError(f"bits must be from 2 to {MOST_BITS}, got {bits}")


def _whole_step(full_scale: float, bits: int) -> float:
    """Return the smallest whole step with which codes of so many bits reach the full scale."""
    return float(max(1, math.ceil(full_scale / (2 ** (int(bits) - 1) - 1))))
