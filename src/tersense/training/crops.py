"""Training images in one run of bytes, cropped on the device that trains.

    one uint8 store + index (see `packing`) ──locations──▶ crops (N, c, c)

A crop is described by three numbers: where its first pixel lies in the store, and how far the next
pixel lies down and across. Turned and mirrored crops differ in these numbers only.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tersense.io.images import ImageArray


@dataclass
class PackedImages:
    """Gray images of any sizes in one run of bytes.

    Args:
        pixels: (total,) uint8, image after image, row by row.
        starts: (P,) int64, where each image begins.
        heights: (P,) int64.
        widths: (P,) int64.
        skipped: How many files were left out, by reason.
    """

    pixels: Tensor
    starts: Tensor
    heights: Tensor
    widths: Tensor
    skipped: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts)

    def to(self, device: torch.device) -> "PackedImages":
        """Move the store to a GPU if it takes at most half of the free memory; else leave it."""
        if device.type != "cuda" or self.pixels.numel() > torch.cuda.mem_get_info(device)[0] / 2:
            return self
        return PackedImages(
            self.pixels.to(device),
            self.starts.to(device),
            self.heights.to(device),
            self.widths.to(device),
            self.skipped,
        )

    def split(self, every: int) -> tuple["PackedImages", "PackedImages"]:
        """Return all but every so many-th image, and those; both share the store."""
        chosen = torch.arange(len(self), device=self.starts.device) % every == every - 1
        rest, kept_out = (
            PackedImages(self.pixels, self.starts[those], self.heights[those], self.widths[those],
                         self.skipped)
            for those in (~chosen, chosen)
        )  # fmt: skip
        return rest, kept_out

    def image(self, number: int) -> ImageArray:
        """Return one whole image, (H, W) uint8."""
        height, width = int(self.heights[number]), int(self.widths[number])
        start = int(self.starts[number])
        whole = self.pixels[start : start + height * width].view(height, width)
        pixels: ImageArray = whole.cpu().numpy()
        return pixels

    def mean_and_std(self) -> tuple[float, float]:
        """Return μ and σ of the pixels; of an even selection where there are very many."""
        histogram = torch.zeros(256, dtype=torch.int64, device=self.pixels.device)
        for block in self._some_blocks():
            histogram += torch.bincount(block.long(), minlength=256)
        share = histogram.double().cpu() / histogram.sum().item()
        level = torch.arange(256, dtype=torch.float64)
        mean = (share * level).sum().item()
        variance = (share * (level - mean) ** 2).sum().item()
        return mean, math.sqrt(variance) or 1.0

    def describe(self) -> dict[str, Any]:
        """Return what tells these images from others: numbers, and a hash.

        The hash is of all sizes and of the pixels; of an even selection of them where there are
        very many.
        """
        digest = hashlib.sha256()
        for part in (self.heights, self.widths, *self._some_blocks()):
            digest.update(part.cpu().numpy().tobytes())
        return {
            "pictures": len(self),
            "pixels": self.pixels.numel(),
            "sha256": digest.hexdigest(),
            "left_out": self.skipped,
        }

    def _some_blocks(self) -> Iterator[Tensor]:
        """Yield the pixels, or where there are very many an even selection, a megabyte a time."""
        begins = range(0, self.pixels.numel(), 2**20)
        for begin in begins[:: max(1, len(begins) // 512)]:
            yield self.pixels[begin : begin + 2**20]

    def crops(self, locations: Tensor, size: int) -> Tensor:
        """Gather crops (N, size, size) uint8 at locations (N, 3)."""
        start, down, across = (part[:, None, None] for part in locations.unbind(1))
        steps = torch.arange(size, device=locations.device)
        return self.pixels[start + down * steps[:, None] + across * steps]


class CropSampler:
    """Choose crops; the same ones for the same seed and epoch.

    Args:
        images: Where to crop.
        crop: Side of a crop in pixels.
        samples: Crops in an epoch; 0 takes one from every image.
        fresh: Draw anew every epoch; otherwise the crops of epoch 0 come in a new order.
        augment: Turn and mirror at random.
        seed: Of the choice.
        balanced: All images are equally likely, whatever their size; otherwise all crops are.
    """

    def __init__(
        self,
        images: PackedImages,
        crop: int,
        samples: int,
        fresh: bool = False,
        augment: bool = False,
        seed: int = 0,
        balanced: bool = False,
    ) -> None:
        self.images, self.crop, self.samples = images, crop, samples
        self.fresh, self.augment, self.seed = fresh, augment, seed
        self.balanced = balanced

    def __len__(self) -> int:
        return self.samples or len(self.images)

    def epoch(self, number: int) -> Tensor:
        """Return the locations (len(self), 3) of an epoch, in the order to train on."""
        if self.fresh:
            return self._draw(self._generator(number))
        same = self._draw(self._generator(0))
        generator = self._generator(number + 1)
        return same[torch.randperm(len(same), generator=generator, device=same.device)]

    def _generator(self, number: int) -> torch.Generator:
        generator = torch.Generator(self.images.starts.device)
        return generator.manual_seed(self.seed * 1_000_003 + number)

    def _draw(self, generator: torch.Generator) -> Tensor:
        images, crop, device = self.images, self.crop, self.images.starts.device
        columns = images.widths - crop + 1
        choices = (images.heights - crop + 1) * columns  # crops in each image

        def below(limit: Any, count: int) -> Tensor:
            real = torch.rand(count, generator=generator, device=device, dtype=torch.float64)
            return torch.mul(real, limit).long()

        if self.samples and self.balanced:
            which = below(len(images), self.samples)
            place = below(choices[which], self.samples)
        elif self.samples:
            ends = choices.cumsum(0)
            drawn = below(ends[-1], self.samples)
            which = torch.searchsorted(ends, drawn, right=True)
            place = drawn - (ends - choices)[which]
        else:
            which = torch.arange(len(images), device=device)
            place = below(choices, len(images))
        width, across = images.widths[which], columns[which]
        start = images.starts[which] + place // across * width + place % across
        locations = torch.stack([start, width, torch.ones_like(width)], dim=1)
        return _turn(locations, crop, below(8, len(locations))) if self.augment else locations


def _turn(locations: Tensor, crop: int, symmetry: Tensor) -> Tensor:
    """Apply one of the 8 symmetries of the square to each crop."""
    start, down, across = locations.unbind(1)
    for bit in (1, 2):  # mirror up-down, then left-right: begin at the other end, step back
        flip = (symmetry & bit) > 0
        start = torch.where(flip, start + (crop - 1) * down, start)
        down = torch.where(flip, -down, down)
        start, down, across = start, across, down
    swap = (symmetry & 4) > 0
    down, across = torch.where(swap, across, down), torch.where(swap, down, across)
    return torch.stack([start, down, across], dim=1)
