"""The training loop (Algorithm 1): epochs of steps, the same for every reconstructor.

Everything random is a function of the seed and the epoch, so a run that was stopped continues as if
it never had been. Several processes (`distributed`) train as one does: each takes its part of every
batch.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from tersense.errors import TersenseError
from tersense.evaluation.protocols import score_image
from tersense.runtime import distributed
from tersense.runtime.progress import Watcher
from tersense.training.config import Config
from tersense.training.crops import CropSampler, PackedImages
from tersense.training.cuda_graph import fastest_convolutions, replayed
from tersense.training.data import TrainingData
from tersense.training.run_folder import RunFolder
from tersense.training.state import TrainingState
from tersense.training.stopping import Looks, stop_requests

_STATISTICS_BATCHES = 20
_REFRESH_STEPS = 100
_LOSS_CROPS = 20_000  # that tell the loss on some images


class Loop:
    """Train step by step, validate, log and keep checkpoints.

    Args:
        config: All settings.
        data: The crops.
        state: Network and optimizer, which are trained.
        folder: Where metrics and checkpoints go.
        watcher: Who is told how it goes.

    `stopped_by` is the number of the signal that ended it, 0 for none.
    """

    def __init__(
        self,
        config: Config,
        data: TrainingData,
        state: TrainingState,
        folder: RunFolder,
        watcher: Watcher,
    ) -> None:
        self.config, self.data, self.state = config, data, state
        self.folder, self.watcher = folder, watcher
        self.stopped_by = 0
        self._looks = Looks()

    @property
    def total_steps(self) -> int:
        """Return the steps of the whole run."""
        return self.data.steps_per_epoch * self.config.train.epochs

    def run(self) -> str:
        """Train to the end, the time limit or a request to stop; return why it ended."""
        state, train = self.state, self.config.train
        if state.step == 0:
            pixels = state.network.normalization.pixels
            batches = (pixels(crops.float()) for crops in self.data.endless_batches())
            state.network.reconstructor.prepare(state.network.sensor.theta, batches)
        train_step = self.make_step()
        limit = train.seconds or math.inf
        if state.seconds >= limit:
            return f"the time limit of {limit:g} s was reached before"
        with stop_requests() as stop, fastest_convolutions():
            while state.step < self.total_steps:
                epoch, done = divmod(state.step, self.data.steps_per_epoch)
                why = self._run_epoch(train_step, epoch, done, limit, stop)
                if why:
                    self.save_checkpoint()
                    return why
                self._compare_losses()
                last = state.step == self.total_steps
                if last or (epoch + 1) % train.validate_epochs == 0:
                    self.validate()
                if last or (epoch + 1) % train.checkpoint_epochs == 0:
                    self.save_checkpoint()
        return "all epochs are done"

    def _run_epoch(
        self,
        train_step: Callable[[Tensor], Tensor],
        epoch: int,
        done: int,
        limit: float,
        stop: Callable[[], int],
    ) -> str:
        """Train from step `done` of an epoch to its end; return why it stopped before, or ""."""
        state, steps_per_epoch = self.state, self.data.steps_per_epoch
        locations = self.data.sampler.epoch(epoch)
        losses = torch.zeros((), device=state.device)
        epoch_loss, seen, began = 0.0, 0, time.perf_counter()
        for number in range(done, steps_per_epoch):
            state.set_learning_rates(state.step / steps_per_epoch)
            if state.step % _REFRESH_STEPS == 0:
                state.network.refresh()
            losses += train_step(self.data.my_part(locations, number))
            state.step += 1
            seen += 1
            ended = number + 1 == steps_per_epoch
            if not (ended or self._looks.due(seen, stop())):
                continue
            loss = losses.item() / seen
            now = time.perf_counter()
            loss, seconds, asked = self._looks.agree(loss, now - began, seen, stop())
            state.seconds += seconds
            distributed.together(partial(self._require_finite, loss))
            epoch_loss += loss * seen
            self.watcher.progress(state.step, self.total_steps, f"loss {loss:.3f}")
            if ended:
                mean = epoch_loss / (steps_per_epoch - done)
                self._log(epoch=epoch + 1, loss=mean, lr=state.learning_rate.item())
            if asked and state.step < self.total_steps:
                self.stopped_by = asked
                return "it was asked to stop"
            if state.seconds >= limit and state.step < self.total_steps:
                return f"the time limit of {limit:g} s is reached"
            losses.zero_()
            seen, began = 0, now
        return ""

    def _require_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            kept = f"; the last good checkpoint stays in {self.folder.path}"
            raise TersenseError(
                f"the loss became {loss} near step {self.state.step}"
                + (kept if self.folder.checkpoint.exists() else "")
                + "; train again with a lower train.lr"
            )

    def make_step(self) -> Callable[[Tensor], Tensor]:
        """Return the function that trains on the crops at given locations and gives the loss."""
        state, train = self.state, self.config.train
        network: Callable[[Tensor], Tensor] = distributed.averaging(state.network)
        if train.compile and not state.network.reconstructor.compile_parts():
            network = torch.compile(network, dynamic=False)
        part = distributed.my_part(train.batch)
        # The mean over processes is the mean over the batch only where all have as many crops.
        weight = (part.stop - part.start) * distributed.count() / train.batch
        on_gpu = state.device.type == "cuda"
        half = train.precision == "bfloat16" or (train.precision == "auto" and on_gpu)

        def step(locations: Tensor) -> Tensor:
            crops = self.data.crops(locations)
            # Weights are cast anew in every step: a graph cannot keep a cache outside itself.
            with torch.autocast(state.device.type, torch.bfloat16, half, cache_enabled=False):
                loss = network(crops)
            if weight != 1:
                loss = loss * weight
            state.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if train.clip:
                nn.utils.clip_grad_norm_(state.network.parameters(), train.clip)
            state.optimizer.step()
            return loss.detach()

        alone = distributed.count() == 1
        return replayed(step) if on_gpu and alone and self.data.images.pixels.is_cuda else step

    def settle(self) -> None:
        """Recompute BatchNorm statistics for the frozen Φ, unless the settings say otherwise."""
        if self.config.train.settle:
            self.recompute_statistics()

    def recompute_statistics(self) -> None:
        """Recompute BatchNorm statistics for the frozen Φ, on some batches of the first epoch.

        Φ flips entries from step to step until the end of training, so that running averages over
        the last steps describe other patterns than those that are kept. For the paper's network
        this alone is worth more than 2 dB.
        """
        network = self.state.network
        if any(isinstance(module, nn.BatchNorm1d) for module in network.modules()):
            update_bn(islice(self.data.first_batches(), _STATISTICS_BATCHES), network)

    def validate(self) -> None:
        """Measure PSNR on the validation images and log it."""
        if not self.data.validation:
            return
        self.settle()
        network = self.state.network.eval()
        camera = network.to_camera("validation", {})
        scores = distributed.share_out(
            self.data.validation, lambda named: score_image(camera, *named)
        )
        network.train()
        psnr = float(np.mean([score.psnr for score in scores]))
        self._log(validation_psnr=psnr)
        self.watcher.line(
            f"step {self.state.step}: validation {psnr:.2f} dB, {self.state.seconds:.0f} s"
        )

    def _compare_losses(self) -> None:
        """Log the loss on crops trained on and on those of held-out images.

        Both with statistics recomputed for Φ as it is now, and with the running averages, which a
        network that is trained further goes on with.
        """
        held_out = self.data.held_out
        if held_out is None:
            return
        averages = [buffer.clone() for buffer in self.state.network.buffers()]
        running = self.trained_loss(), self.mean_loss(held_out)
        self.recompute_statistics()
        settled = self.trained_loss(), self.mean_loss(held_out)
        for buffer, before in zip(self.state.network.buffers(), averages, strict=True):
            buffer.copy_(before)
        self._log(
            trained=settled[0],
            held_out=settled[1],
            trained_running=running[0],
            held_out_running=running[1],
        )

    def trained_loss(self) -> float:
        """Return the loss on crops of the first epoch, which all others repeat unless fresh."""
        return self.mean_loss(self.data.images, self.data.sampler.epoch(0)[:_LOSS_CROPS])

    @torch.no_grad()
    def mean_loss(self, images: PackedImages, locations: Tensor | None = None) -> float:
        """Return the loss, as at inference and without ℓ2, on crops of some images.

        Args:
            images: Where they are.
            locations: Of the crops; random ones where not given.
        """
        network, crop, device = self.state.network, self.config.data.crop, self.state.device
        if locations is None:
            locations = CropSampler(images, crop, _LOSS_CROPS, seed=1).epoch(0)
        was_training, l2 = network.training, network.l2
        network.eval().l2 = 0.0
        total = sum(
            network(images.crops(part, crop).to(device)) * len(part)
            for part in torch.split(locations, self.config.train.batch)
        )
        network.train(was_training).l2 = l2
        return float(total / len(locations))

    def save_checkpoint(self) -> None:
        """Write everything that is needed to continue."""
        distributed.first(lambda: self.state.save(self.folder.checkpoint))

    def _log(self, **values: float) -> None:
        entry = {"step": self.state.step, "seconds": round(self.state.seconds, 3), **values}
        distributed.first(lambda: self.folder.log(entry))
