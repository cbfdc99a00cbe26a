"""How measurements are read out: noise of the sensor, then a converter of few bits.

    y ──+ Gaussian noise──▶ ──÷ step, round, clip──▶ codes

A value v of a quantized readout stands for v·step. Reconstructors are given the readout, because a
network or an estimate that knows the error of its measurements need not believe them blindly.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tersense.io.schema import above, at_least, at_most, require, validate

LARGEST_NOISE = 1e7  # so that the noisiest measurement fits 32 bits
MOST_BITS = 32

Values = TypeVar("Values", bound=Any)  # arrays of numpy and tensors of torch alike


@dataclass(frozen=True)
class Readout:
    """The sensor's noise and converter; without arguments, exact integers.

    Args:
        bits: B of the converter; 0 for exact values. Codes lie within ±(2^(B−1) − 1).
        step: What one unit of a code stands for; 1 for exact values.
        noise: Standard deviation of Gaussian noise on each measurement, in pixel values.
        seed: Of that noise.

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

    def __post_init__(self) -> None:
        validate("readout", self)
        require(self.bits != 1, "readout.bits", self.bits, f"0 or from 2 to {MOST_BITS}")

    @classmethod
    def covering(
        cls, full_scale: float, bits: int | None = None, noise: float = 0.0, seed: int = 0
    ) -> "Readout":
        """Return the readout whose converter reaches ±`full_scale`.

        Args:
            full_scale: The largest magnitude to represent; what exceeds it is clipped.
            bits: At least 2; None for exact values.
            noise: As above.
            seed: As above.
        """
        if bits is None:
            return cls(noise=float(noise), seed=int(seed))
        if not 2 <= bits <= MOST_BITS:
            raise ValueError(f"bits must be from 2 to {MOST_BITS}, got {bits}")
        step = max(1.0, float(full_scale) / (2 ** (int(bits) - 1) - 1))
        return cls(int(bits), step, float(noise), int(seed))

    @property
    def deviation(self) -> float:
        """Return the standard deviation of a measurement's error, in pixel values."""
        rounding = self.step**2 / 12 if self.bits else 0.0
        return math.sqrt(self.noise**2 + rounding)

    def scaled(self, factor: float) -> "Readout":
        """Return the same readout for measurements in other units, y·factor."""
        return replace(self, step=self.step * factor, noise=self.noise * factor)

    def quantize(self, y: Values) -> Values:
        """Return the codes of y, as real numbers of the same kind; y itself where exact."""
        if not self.bits:
            return y
        largest = 2 ** (self.bits - 1) - 1
        codes: Values = (y / self.step).round().clip(-largest, largest)
        return codes

    def apply(self, y: NDArray[Any]) -> NDArray[np.int32]:
        """Return what the readout gives for exact measurements: integers, or codes of them."""
        if self.noise:
            noise = np.random.default_rng(self.seed).normal(0.0, self.noise, y.shape)
            y = np.rint(y + noise)
        codes: NDArray[np.int32] = np.asarray(self.quantize(y)).astype(np.int32)
        return codes

    def __str__(self) -> str:
        bits = f"{self.bits} bits, steps of {self.step:g}" if self.bits else ""
        noise = f"noise of deviation {self.noise:g}, seed {self.seed}" if self.noise else ""
        return "; ".join(filter(None, (bits, noise))) or "exact"
