"""Brightness and two color differences instead of red, green and blue.

The eye and most photographs have their detail in brightness. Sensing is linear, so a camera that
has the sums of the three channels has those of

    Y = (R + 2G + B)/4,   O = (R − B)/2,   V = (2G − R − B)/4

too, without another exposure, and the image comes back as R = Y − V + O, G = Y + V, B = Y − V − O.
Only adding, subtracting and shifting: this is YCoCg with its differences halved, so that all three
have the range of pixels, and one quantizer serves all. Networks know pixels from 0 to 255, so that
differences, which have either sign, are raised by 128 for them.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tersense.io.images import ImageArray
from tersense.measurements.counts import Counts, which_measured
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.tsm import PACKED

MODE: Final = "YCC"  # of a header
FOLD: Final = 4  # of `fourfold`
_MIDDLE = 128.0


def brightness(image: ImageArray) -> ImageArray:
    """Return Y (H, W), rounded, of an image (H, W, 3)."""
    wide = image.astype(np.uint32)
    luma = (wide[..., 0] + 2 * wide[..., 1] + wide[..., 2] + 2) >> 2
    return luma.astype(image.dtype)


def to_differences(measurements: Measurements, readout: Readout, counts: Counts) -> Measurements:
    """Turn exact measurements of R, G and B into codes of Y, O and V.

    Args:
        measurements: Exact, of a color image.
        readout: Bits and step; what it stands for is the same in all three.
        counts: (3, h, w), with how many rows each window keeps of each.
    """
    codes = replace(readout, step=FOLD * readout.step).quantize(fourfold(measurements.values))
    codes = np.where(which_measured(counts, measurements.header.rows), codes, 0).astype(np.int32)
    header = replace(measurements.header, mode=MODE, readout=readout, version=PACKED)
    return Measurements(codes, header, counts)


def fourfold(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return 4Y, 4O and 4V, whole numbers, of R, G and B (3, …)."""
    red, green, blue = values.astype(np.int64)
    return np.stack([red + 2 * green + blue, 2 * (red - blue), 2 * green - red - blue])


def raise_differences(y: Any, ones: Any) -> Any:
    """Return y (3, m, h, w) of Y, O and V as that of pixels, given Φ⋆1."""
    raised = y.clone()
    raised[1:] += _MIDDLE * ones
    return raised


def to_raised(image: NDArray[Any]) -> NDArray[Any]:
    """Return Y, and O and V raised to pixels, (3, H, W) of an image (H, W, 3) from 0 to 255."""
    red, green, blue = np.moveaxis(image, -1, 0)
    orange, greenness = (red - blue) / 2, (2 * green - red - blue) / 4
    return np.stack([(red + 2 * green + blue) / 4, orange + _MIDDLE, greenness + _MIDDLE])


def to_channels(planes: NDArray[Any]) -> NDArray[Any]:
    """Return red, green and blue (3, H, W) of Y and of O and V raised to pixels."""
    luma, orange, green = planes[0], planes[1] - _MIDDLE, planes[2] - _MIDDLE
    return np.stack([luma - green + orange, luma + green, luma - green - orange])
