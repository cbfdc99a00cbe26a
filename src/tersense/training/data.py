"""The crops of a training run, batch by batch, on the device that trains."""

from collections.abc import Iterator

import torch
from torch import Tensor

from tersense.errors import TersenseError
from tersense.io.images import ImageArray, find_images, read_gray
from tersense.runtime import distributed
from tersense.runtime.progress import Track, quietly
from tersense.training.config import Config
from tersense.training.crops import CropSampler, PackedImages
from tersense.training.packing import open_images


class TrainingData:
    """Packed images and the order of their crops; several processes share every batch.

    Args:
        config: All settings.
        device: Where the crops are wanted.
        track: Wraps the files to show progress.
    """

    def __init__(self, config: Config, device: torch.device, track: Track = quietly) -> None:
        data, self.batch, self.device = config.data, config.train.batch, device
        self.crop = data.crop
        self.images = open_images(data.train, data.crop, data.cache, track, data.scales).to(device)
        self.held_out: PackedImages | None = None
        if data.held_out:
            self.images, self.held_out = _split(self.images, data.held_out)
        self.validation = _read_validation(data.validation)
        self.sampler = CropSampler(
            self.images, data.crop, data.samples, data.fresh, data.augment, config.train.seed,
            data.balanced,
        )  # fmt: skip
        self.steps_per_epoch = len(self.sampler) // self.batch
        if not self.steps_per_epoch:
            raise TersenseError(
                f"an epoch of {len(self.sampler)} crops is smaller than a batch of "
                f"{self.batch}; lower train.batch or raise data.samples"
            )
        if self.batch < distributed.count():
            raise TersenseError(
                f"train.batch = {self.batch} leaves some of {distributed.count()} processes "
                "without a crop; raise it, or start fewer"
            )

    def my_part(self, locations: Tensor, number: int) -> Tensor:
        """Return the locations in one batch of an epoch that this process trains on."""
        part = locations[number * self.batch : (number + 1) * self.batch]
        return part[distributed.my_part(self.batch)]

    def crops(self, locations: Tensor) -> Tensor:
        """Return the crops (N, c, c) uint8 at given locations, where the network is."""
        return self.images.crops(locations, self.crop).to(self.device)

    def first_batches(self) -> Iterator[Tensor]:
        """Yield this process's crops of the first epoch, batch by batch."""
        locations = self.sampler.epoch(0)
        for number in range(self.steps_per_epoch):
            yield self.crops(self.my_part(locations, number))

    def endless_batches(self) -> Iterator[Tensor]:
        """Yield whole batches of the first epoch, over and over."""
        locations = self.sampler.epoch(0)
        while True:
            for number in range(self.steps_per_epoch):
                yield self.crops(locations[number * self.batch : (number + 1) * self.batch])


def _split(images: PackedImages, every: int) -> tuple[PackedImages, PackedImages]:
    if not 2 <= every <= len(images):
        raise TersenseError(
            f"data.held_out must be 0 or from 2 to the number of images, {len(images)}, got {every}"
        )
    return images.split(every)


def _read_validation(folder: str) -> list[tuple[str, ImageArray]]:
    return [(path.stem, read_gray(path)) for path in find_images(folder)] if folder else []
