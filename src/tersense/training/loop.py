"""Train patterns and reconstructor together: Algorithm 1.

The network and its loss are in `joint`; the loop is the same for every reconstructor. Everything
random is a function of the seed and the epoch, so a run that was stopped continues as if it never
had been. Several processes (`distributed`) train as one does: each takes its part of every batch.
"""

import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tersense import __version__
from tersense.errors import Interrupted, TersenseError
from tersense.evaluation.protocols import score_picture
from tersense.io.images import Picture, find_images, read_gray
from tersense.models.camera import NetworkCamera
from tersense.models.files import load, write_model
from tersense.models.imager import Imager
from tersense.runtime import distributed
from tersense.runtime.device import choose_device
from tersense.runtime.watcher import Quiet, Watcher
from tersense.training.checkpoint import read_checkpoint, stop_requests, write_checkpoint
from tersense.training.config import Config
from tersense.training.cuda_graph import fastest_convolutions, replayed
from tersense.training.data import CropSampler
from tersense.training.looks import Looks
from tersense.training.network import JointNetwork
from tersense.training.optim import Muon
from tersense.training.packing import open_pictures
from tersense.training.run_folder import (
    append_metrics,
    check_folder,
    forget_metrics_after,
    prepare_folder,
    record_session,
)
from tersense.training.schedule import learning_rates
from tersense.training.settling import settle


class Run:
    """One training: its parts, its state, its folder.

    Args:
        config: All settings.
        watcher: Who is told how it goes.
    """

    def __init__(self, config: Config, watcher: Watcher) -> None:
        self.config, self.watcher = config, watcher
        self.device = choose_device(config.train.device)
        self.folder = Path(config.train.out)
        self.checkpoint = self.folder / "checkpoint.safetensors"
        data, train = config.data, config.train
        self.pictures = open_pictures(data.train, data.crop, data.cache, watcher.track).to(
            self.device
        )
        self.validation = _read_validation(data.validation)
        self.sampler = CropSampler(
            self.pictures, data.crop, data.samples, data.fresh, data.augment, train.seed
        )
        self.steps_per_epoch = len(self.sampler) // train.batch
        if not self.steps_per_epoch:
            raise TersenseError(
                f"an epoch of {len(self.sampler)} crops is smaller than a batch of "
                f"{train.batch}; lower train.batch or raise data.samples"
            )
        if train.batch < distributed.count():
            raise TersenseError(
                f"train.batch = {train.batch} leaves some of {distributed.count()} processes "
                "without a crop; raise it, or start fewer"
            )
        torch.manual_seed(train.seed)
        self.network = JointNetwork(config, *self.pictures.mean_and_std())
        distributed.share_statistics(self.network)
        if not any(w.requires_grad for w in self.network.reconstructor.parameters()):
            raise TersenseError(
                f"the reconstructor {config.reconstructor['name']} has no weights to train; "
                "use it with tersense.load, or set reconstructor.name to another"
            )
        if train.start:
            self.network.start_from(load(train.start))
        self.network.to(self.device).train()
        self.learning_rate = torch.tensor(train.lr, device=self.device)
        self.sensor_rate = self.learning_rate.clone()  # 0 once the patterns are frozen
        self.optimizer = self._build_optimizer()
        self._rates = (train.lr, train.lr)
        self.step = 0
        self.stopped_by = 0  # the number of a signal
        self.looks = Looks()
        self.seconds = 0.0  # of steps alone, over all sessions of this run

    def _build_optimizer(self) -> torch.optim.Optimizer:
        learned = [w for w in self.network.sensor.parameters() if w.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": list(self.network.reconstructor.parameters()), "matrices": True},
            {"params": learned, "lr": self.sensor_rate},
        ]
        kind = {"adam": torch.optim.Adam, "muon": Muon}[self.config.train.optimizer]
        on_gpu = self.device.type == "cuda"
        return kind(groups, lr=self.learning_rate, fused=True, capturable=on_gpu)

    @property
    def total_steps(self) -> int:
        """Return the steps of the whole run."""
        return self.steps_per_epoch * self.config.train.epochs

    def describe(self) -> str:
        """Say in one line what is trained on what."""
        skipped = ", ".join(f"{count} {why}" for why, count in self.pictures.skipped.items())
        sensor = self.network.sensor
        weights = sum(w.numel() for w in self.network.reconstructor.parameters())
        return (
            f"{len(self.pictures)} pictures, {self.pictures.pixels.numel() / 1e6:.1f} megapixels"
            + (f" (left out: {skipped})" if skipped else "")
            + f"; {len(sensor.theta)} patterns of {sensor.window}×{sensor.window}, "
            f"{weights:,} weights; {self.total_steps} steps on {self.device}"
            + (f", {distributed.count()} processes" if distributed.count() > 1 else "")
        )

    def train(self) -> str:
        """Train to the end, the time limit or a request to stop; return why it ended."""
        if self.step == 0:
            self.network.reconstructor.prepare(self.network.sensor.theta, self._normalised())
        train_step = self.make_step()
        limit = self.config.train.seconds or math.inf
        if self.seconds >= limit:
            return f"the time limit of {limit:g} s was reached before"
        with stop_requests() as stop, fastest_convolutions():
            while self.step < self.total_steps:
                epoch, done = divmod(self.step, self.steps_per_epoch)
                why = self._train_epoch(train_step, epoch, done, limit, stop)
                if why:
                    self.save_checkpoint()
                    return why
                last = self.step == self.total_steps
                if last or (epoch + 1) % self.config.train.validate_epochs == 0:
                    self.validate()
                if last or (epoch + 1) % self.config.train.checkpoint_epochs == 0:
                    self.save_checkpoint()
        return "all epochs are done"

    def _train_epoch(
        self,
        train_step: Callable[[Tensor], Tensor],
        epoch: int,
        done: int,
        limit: float,
        stop: Callable[[], int],
    ) -> str:
        """Train from step `done` of an epoch to its end; return why it stopped before, or ""."""
        locations = self.sampler.epoch(epoch)
        losses = torch.zeros((), device=self.device)
        epoch_loss, seen, began = 0.0, 0, time.perf_counter()
        for number in range(done, self.steps_per_epoch):
            self._set_learning_rates()
            losses += train_step(self._my_part(locations, number))
            self.step += 1
            seen += 1
            ended = number + 1 == self.steps_per_epoch
            if not (ended or self.looks.due(seen, stop())):
                continue
            loss = losses.item() / seen
            now = time.perf_counter()
            loss, seconds, asked = self.looks.agree(loss, now - began, seen, stop())
            self.seconds += seconds
            distributed.together(partial(self._require_finite, loss))
            epoch_loss += loss * seen
            self.watcher.progress(self.step, self.total_steps, f"loss {loss:.3f}")
            if ended:
                mean = epoch_loss / (self.steps_per_epoch - done)
                self._log(epoch=epoch + 1, loss=mean, lr=self.learning_rate.item())
            if asked and self.step < self.total_steps:
                self.stopped_by = asked
                return "it was asked to stop"
            if self.seconds >= limit and self.step < self.total_steps:
                return f"the time limit of {limit:g} s is reached"
            losses.zero_()
            seen, began = 0, now
        return ""

    def _my_part(self, locations: Tensor, number: int) -> Tensor:
        """Return the locations in one batch of an epoch that this process trains on."""
        batch = self.config.train.batch
        return locations[number * batch : (number + 1) * batch][distributed.my_part(batch)]

    def _require_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            kept = f"; the last good checkpoint stays in {self.folder}"
            raise TersenseError(
                f"the loss became {loss} near step {self.step}"
                + (kept if self.checkpoint.exists() else "")
                + "; train again with a lower train.lr"
            )

    def _set_learning_rates(self) -> None:
        epoch = self.step / self.steps_per_epoch
        rates = learning_rates(self.config.train, self.step, epoch, self.seconds)
        if rates != self._rates:  # writing to the device takes time
            self.learning_rate.fill_(rates[0])
            self.sensor_rate.fill_(rates[1])
            self._rates = rates

    def make_step(self) -> Callable[[Tensor], Tensor]:
        """Return the function that trains on the crops at given locations and gives the loss."""
        network: Callable[[Tensor], Tensor] = distributed.averaging(self.network)
        if self.config.train.compile and not self.network.reconstructor.compile_parts():
            network = torch.compile(network, dynamic=False)
        batch, part = self.config.train.batch, distributed.my_part(self.config.train.batch)
        # The mean over processes is the mean over the batch only where all have as many crops.
        weight = (part.stop - part.start) * distributed.count() / batch
        half = self.config.train.precision == "bfloat16" or (
            self.config.train.precision == "auto" and self.device.type == "cuda"
        )
        clip = self.config.train.clip

        def step(locations: Tensor) -> Tensor:
            crops = self.crops(locations)
            # Weights are cast anew in every step: a graph cannot keep a cache outside itself.
            with torch.autocast(self.device.type, torch.bfloat16, half, cache_enabled=False):
                loss = network(crops)
            if weight != 1:
                loss = loss * weight
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if clip:
                nn.utils.clip_grad_norm_(self.network.parameters(), clip)
            self.optimizer.step()
            return loss.detach()

        on_device = self.device.type == "cuda" and self.pictures.pixels.is_cuda
        return replayed(step) if on_device and distributed.count() == 1 else step

    def crops(self, locations: Tensor) -> Tensor:
        """Return the crops (N, c, c) uint8 at given locations, where the network is."""
        return self.pictures.crops(locations, self.config.data.crop).to(self.device)

    def _normalised(self) -> Iterator[Tensor]:
        """Yield normalised batches of the first epoch, over and over."""
        batch, locations = self.config.train.batch, self.sampler.epoch(0)
        while True:
            for number in range(self.steps_per_epoch):
                pixels = self.crops(locations[number * batch : (number + 1) * batch])
                yield (pixels.float() - self.network.mean) / self.network.std

    def settle(self) -> None:
        """Take the statistics of batch normalisation anew, on the first batches of epoch 0."""
        settle(self.network, self._my_batches())

    def _my_batches(self) -> Iterator[Tensor]:
        locations = self.sampler.epoch(0)
        for number in range(self.steps_per_epoch):
            yield self.crops(self._my_part(locations, number))

    def validate(self) -> None:
        """Measure PSNR on the validation pictures and log it."""
        if not self.validation:
            return
        self.settle()
        self.network.eval()
        camera = self.network.to_camera("validation", {})
        scores = distributed.share_out(self.validation, lambda named: score_picture(camera, *named))
        self.network.train()
        psnr = float(np.mean([score.psnr for score in scores]))
        self._log(validation_psnr=psnr)
        self.watcher.line(f"step {self.step}: validation {psnr:.2f} dB, {self.seconds:.0f} s")

    def save_checkpoint(self) -> None:
        """Write everything that is needed to continue, unless it is beyond repair."""
        distributed.first(self._write_checkpoint)

    def _write_checkpoint(self) -> None:
        if not all(bool(w.isfinite().all()) for w in self.network.parameters()):
            raise TersenseError(
                f"weights became infinite or NaN by step {self.step}; train again with a lower "
                "train.lr"
            )
        counters = {"step": self.step, "seconds": self.seconds}
        try:
            write_checkpoint(self.checkpoint, self.network, self.optimizer, counters)
        except TersenseError as error:
            kept = "; the one before it stays" if self.checkpoint.exists() else ""
            raise TersenseError(f"{error}{kept}; --resume continues when it can be") from error

    def load_checkpoint(self) -> None:
        """Continue from the last checkpoint of the run folder, if there is one."""
        if not self.checkpoint.exists():
            return
        given = self.network.sensor.theta.clone()
        state = read_checkpoint(self.checkpoint, self.network, self.optimizer)
        if self.config.sensing.patterns and not torch.equal(given, self.network.sensor.theta):
            raise TersenseError(
                f"{self.config.sensing.patterns} holds other patterns than when this run began; "
                "start a new one"
            )
        self.step, self.seconds = int(state["step"]), float(state["seconds"])

    def finish(self) -> NetworkCamera:
        """Settle and return the camera as it is now; write the model file of a ternary one."""
        self.settle()
        recipe = {k: v for k, v in asdict(self.config).items() if k != "data"}
        recipe["sensing"]["patterns"] = Path(self.config.sensing.patterns).name
        for key in ("out", "start"):  # where things lie on this machine is nobody's business
            recipe["train"][key] = Path(recipe["train"][key]).name
        about = {
            "recipe": recipe,
            "data": {**asdict(self.config.data), "train": Path(self.config.data.train).name,
                     "validation": Path(self.config.data.validation).name, "cache": ""},
            "pictures": len(self.pictures),
            "steps": self.step,
            "step_seconds": round(self.seconds, 1),
            "machine": _machine(self.device),
            "tersense": __version__,
        }  # fmt: skip
        self.network.eval()
        camera = self.network.to_camera(self.folder.name, about)
        if isinstance(camera, Imager):
            distributed.first(lambda: write_model(self.folder / "model.safetensors", camera))
        return camera

    def _log(self, **values: float) -> None:
        entry = {"step": self.step, "seconds": round(self.seconds, 3), **values}
        distributed.first(lambda: append_metrics(self.folder, entry))


def train(config: Config, resume: bool = False, watcher: Watcher | None = None) -> NetworkCamera:
    """Train a camera; a ternary one is also written to `model.safetensors` in the run folder.

    Args:
        config: All settings; results go to `config.train.out`.
        resume: Continue the run that this folder holds.
        watcher: Who is told how it goes.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came; a checkpoint and the model so far are written.
    """
    with distributed.process_group():
        watcher = watcher if watcher and distributed.rank() == 0 else Quiet()
        return _train(open_run(config, resume, watcher), watcher)


def _train(run: Run, watcher: Watcher) -> NetworkCamera:
    why = run.train()
    camera = run.finish()
    if isinstance(camera, Imager):
        watcher.line(f"the model: {run.folder / 'model.safetensors'}")
    later = "; --resume continues it" if run.step < run.total_steps else ""
    watcher.line(f"{why}: step {run.step}, {run.seconds:.1f} s of steps{later}")
    if run.stopped_by:
        raise Interrupted(run.stopped_by)
    return camera


def open_run(config: Config, resume: bool, watcher: Watcher) -> Run:
    """Set up a run and its folder, at its last checkpoint if it is resumed."""
    folder = Path(config.train.out)
    distributed.first(lambda: check_folder(folder, config, resume))
    run = distributed.together(lambda: Run(config, watcher))
    watcher.line(run.describe())
    if config.train.freeze_epochs >= config.train.epochs:
        watcher.line(
            f"the patterns will not be frozen: train.freeze_epochs = {config.train.freeze_epochs} "
            f"is not below train.epochs = {config.train.epochs}"
        )
    distributed.first(lambda: prepare_folder(folder, config))
    if resume:
        distributed.together(run.load_checkpoint)
        distributed.require_same(
            run.step, f"the processes see different checkpoints; {folder} must be on a shared disk"
        )
    data = distributed.require_same(
        run.pictures.describe(), "the processes see different pictures in data.train"
    )
    facts = {"step": run.step, "machine": _machine(run.device), "processes": distributed.count()}
    warning = distributed.first(lambda: record_session(folder, data, **facts))
    if resume:
        distributed.first(lambda: forget_metrics_after(folder, run.step))
        watcher.line(f"continuing at step {run.step} of {run.total_steps}")
    if warning:
        watcher.line(warning)
    return run


def _machine(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def _read_validation(folder: str) -> list[tuple[str, Picture]]:
    return [(path.stem, read_gray(path)) for path in find_images(folder)] if folder else []
