"""Choose codes by what the network makes of them, where it runs beside the encoder.

Sums that are measured and rounded are what the scene says; they are not what makes the network's
image closest to it. Whoever has the image, the network and some seconds can look: reconstruct,
follow the gradient of the squared error to the sums, move them a little against it, round again.
Files stay as they were, and so do decoders; the codes are no longer roundings of true sums, which
is why nobody else may call them measurements.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tersense.io.images import ImageArray
from tersense.measurements.codec import shape_codes
from tersense.measurements.color import FOLD, MODE, fourfold, raise_differences, to_raised
from tersense.measurements.measurements import Measurements
from tersense.models.imager import Imager
from tersense.sensing.geometry import cut_tiles

_PULL = 0.02  # of the way that a row of Φ alone would go; at 0.05, some images get worse
_TILE_PIXELS = 2**16  # what gradients need is some kilobytes per pixel


def shaped(imager: Imager, sums: NDArray[np.int64], y: Measurements) -> Measurements:
    """Return measurements with the codes of other sums, in the units of `sums_for`."""
    step = _fold(y) * int(y.header.readout.step)
    return replace(y, values=shape_codes(sums, step, y.header, y.counts, imager.patterns))


def sums_for(exact: Measurements, y: Measurements) -> NDArray[np.int64]:
    """Return what the codes y are rounded from: exact sums, in color fourfold."""
    return fourfold(exact.values) if y.header.mode == MODE else exact.values.astype(np.int64)


def refine(
    imager: Imager,
    image: ImageArray,
    y: Measurements,
    rounds: int,
    fits: Callable[[Measurements], bool],
) -> Measurements:
    """Return the codes that gave the best image, of those that fit; y where none did.

    Args:
        imager: With a network, which is told what it always is.
        image: (H, W) or (H, W, 3).
        y: Its measurements, as `shaped` gives them.
        rounds: How often they are moved.
        fits: Whether codes may be taken.
    """
    scale = 255 / y.header.largest_pixel
    planes = to_raised(image * scale) if y.header.mode == MODE else image[None] * scale
    wanted = torch.from_numpy(planes.astype(np.float32))
    lit = np.abs(imager.phi).sum(axis=(1, 2), dtype=np.int64)[:, None, None]
    sums = sums_for(imager.sense(image, depth=y.header.depth), y).astype(np.float64)
    best, least = y, np.inf
    for made in range(rounds + 1):
        error, slopes = _look(imager, y, wanted)
        if error < least and (made == 0 or fits(y)):
            best, least = y, error
        if made < rounds:
            sums -= _PULL * _fold(y) / scale * lit * slopes.reshape(sums.shape)
            y = shaped(imager, np.rint(sums).astype(np.int64), y)
    return best


def _fold(y: Measurements) -> int:
    return FOLD if y.header.mode == MODE else 1


def _look(imager: Imager, y: Measurements, wanted: Tensor) -> tuple[float, NDArray[np.float32]]:
    """Return the squared error of an image's planes (c, H, W) and its gradient by y, tile by tile.

    Both are in the units of pixels from 0 to 255.
    """
    header, camera = y.header, imager.camera
    readout, size = header.readout.scaled(255 / header.largest_pixel), wanted.shape[-2:]
    values = y.values.reshape(-1, *header.shape[-3:]) * readout.unit
    sums, counts = torch.from_numpy(values.astype(np.float32)).to(imager.device), None
    if y.counts is not None:
        of_planes = np.broadcast_to(y.counts, sums[:, 0].shape).astype(np.int32)
        counts = torch.from_numpy(of_planes).to(imager.device)
    slopes, error = torch.zeros_like(sums), 0.0
    for tile in cut_tiles(
        imager.geometry, (size[0], size[1]), imager.reconstructor.halo, _TILE_PIXELS
    ):
        windows, inside, place = (..., *tile.windows), (..., *tile.inside), (..., *tile.place)
        part = sums[windows].clone().requires_grad_()
        ones = imager.operator.sense_ones((size[0], size[1]), *tile.windows)
        seen = raise_differences(part, ones.to(part)) if header.mode == MODE else part
        of_part = None if counts is None else counts[windows]
        planes = camera.reconstruct_part(seen, ones, tile.size, readout, of_part)
        off = (planes[inside] - wanted[place].to(planes)).square().sum()
        slopes[windows] += torch.autograd.grad(off, part)[0]
        error += off.item()
    return error, slopes.cpu().numpy()
