"""One training run from its settings to its model: `train`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tersense import __version__
from tersense.errors import Interrupted
from tersense.models.camera import Camera
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.models.zoo import load
from tersense.runtime import distributed
from tersense.runtime.device import choose_device, device_name
from tersense.runtime.progress import Quiet, Watcher
from tersense.training.allocation import train_allocation
from tersense.training.config import Config
from tersense.training.crops import PackedImages
from tersense.training.data import TrainingData
from tersense.training.loop import Loop
from tersense.training.packing import open_images
from tersense.training.run_folder import RunFolder
from tersense.training.state import TrainingState


def train(config: Config, resume: bool = False, watcher: Watcher | None = None) -> Imager | Camera:
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
        if config.train.epochs == 0:
            return _add_allocation(config, resume, watcher)
        run = open_run(config, resume, watcher)
        try:
            return _train(run, watcher)
        finally:
            run.folder.release()


def _train(run: "Run", watcher: Watcher) -> Imager | Camera:
    why = run.loop.run()
    camera = run.finish()
    if isinstance(camera, Imager):
        watcher.line(f"the model: {run.folder.model}")
    later = "; --resume continues it" if run.state.step < run.loop.total_steps else ""
    watcher.line(f"{why}: step {run.state.step}, {run.state.seconds:.1f} s of steps{later}")
    if run.loop.stopped_by:
        raise Interrupted(run.loop.stopped_by)
    return camera


def _add_allocation(config: Config, resume: bool, watcher: Watcher) -> Imager:
    """Train what adaptive sensing decides by, for a model that stays as it is otherwise."""
    device, folder = choose_device(config.train.device), RunFolder(config.train.out)
    imager = load(config.train.start, device)
    images = _allocation_images(config).to(device)
    watcher.line(f"{len(images)} images; {imager} stays as it is; on {device}")

    def work() -> None:
        _enter(folder, config, resume)
        try:
            _allocate(config, imager, images, watcher)
            imager.name = folder.name
            write_model(folder.model, imager)
        finally:
            folder.release()

    distributed.first(work)
    watcher.line(f"the model: {folder.model}")
    return imager


def _allocate(config: Config, imager: Imager, images: PackedImages, watcher: Watcher) -> None:
    train_allocation(
        imager, images, config.allocation, config.readout, config.train.seed, watcher,
        config.data.balanced,
    )  # fmt: skip
    imager.about = {**imager.about, "allocation": asdict(config.allocation)}


def _allocation_images(config: Config) -> PackedImages:
    data = config.data
    return open_images(data.train, config.allocation.crop, data.cache, scales=data.scales)


class Run:
    """The parts of one training run: its folder, its data, its state and its loop.

    Args:
        config: All settings.
        watcher: Who is told how it goes.
    """

    def __init__(self, config: Config, watcher: Watcher) -> None:
        self.config, self.folder, self.watcher = config, RunFolder(config.train.out), watcher
        device = choose_device(config.train.device)
        self.data = TrainingData(config, device, watcher.track)
        self.state = TrainingState(config, *self.data.images.mean_and_std(), device)
        self.loop = Loop(config, self.data, self.state, self.folder, watcher)

    def describe(self) -> str:
        """Say in one line what is trained on what."""
        images, sensor = self.data.images, self.state.network.sensor
        skipped = ", ".join(f"{count} {why}" for why, count in images.skipped.items())
        weights = sum(w.numel() for w in self.state.network.reconstructor.parameters())
        return (
            f"{len(images)} images, {images.pixels.numel() / 1e6:.1f} megapixels"
            + (f" (left out: {skipped})" if skipped else "")
            + f"; {len(sensor.theta)} patterns of {sensor.window}×{sensor.window}, "
            f"{weights:,} weights; {self.loop.total_steps} steps on {self.state.device}"
            + (f", {distributed.count()} processes" if distributed.count() > 1 else "")
        )

    def finish(self) -> Imager | Camera:
        """Settle statistics and return the camera as it is now; write a ternary one's model."""
        self.loop.settle()
        network = self.state.network.eval()
        camera = network.to_camera(self.folder.name, self._about())
        if isinstance(camera, Imager):
            distributed.first(lambda: self._write(camera))
        return camera

    def _write(self, camera: Imager) -> None:
        write_model(self.folder.model, camera)
        ended = not self.loop.stopped_by and self.state.step == self.loop.total_steps
        if self.config.train.allocation and ended:
            images = _allocation_images(self.config).to(self.state.device)
            _allocate(self.config, camera, images, self.watcher)
            write_model(self.folder.model, camera)

    def _about(self) -> dict[str, Any]:
        """Return where the model comes from, without the paths of this machine."""
        recipe = asdict(self.config)
        data = recipe.pop("data") | {"cache": ""}
        for table, keys in (
            (recipe["sensing"], ["patterns"]),
            (recipe["train"], ["out", "start"]),
            (recipe["teacher"], ["model"]),
            (data, ["train", "validation"]),
        ):
            for key in keys:
                table[key] = Path(table[key]).name
        return {
            "recipe": recipe,
            "data": data,
            "pictures": len(self.data.images),
            "steps": self.state.step,
            "step_seconds": round(self.state.seconds, 1),
            "machine": device_name(self.state.device),
            "tersense": __version__,
        }


def _enter(folder: RunFolder, config: Config, resume: bool) -> None:
    """Take the folder for this run; another may have begun in it since it was looked at."""
    folder.claim()
    try:
        folder.check(config, resume)
        folder.prepare(config)
    except BaseException:
        folder.release()
        raise


def open_run(config: Config, resume: bool, watcher: Watcher) -> Run:
    """Set up a run and its folder, at its last checkpoint if it is resumed."""
    folder = RunFolder(config.train.out)
    distributed.first(lambda: folder.check(config, resume))  # before hours of packing, too
    run = distributed.together(lambda: Run(config, watcher))
    watcher.line(run.describe())
    learned = config.sensing.kind in ("ternary", "float")
    if learned and config.train.freeze_epochs >= config.train.epochs:
        watcher.line(
            f"the patterns will not be frozen: train.freeze_epochs = {config.train.freeze_epochs} "
            f"is not below train.epochs = {config.train.epochs}"
        )
    distributed.first(lambda: _enter(run.folder, config, resume))
    if resume:
        distributed.together(lambda: run.state.load(folder.checkpoint))
        distributed.require_same(
            run.state.step,
            f"the processes see different checkpoints; {folder.path} must be on a shared disk",
        )
    data = distributed.require_same(
        run.data.images.describe(), "the processes see different images in data.train"
    )
    facts = {"step": run.state.step, "machine": device_name(run.state.device),
             "processes": distributed.count()}  # fmt: skip
    warning = distributed.first(lambda: folder.record_session(data, **facts))
    if resume:
        distributed.first(lambda: folder.forget_after(run.state.step))
        watcher.line(f"continuing at step {run.state.step} of {run.loop.total_steps}")
    if warning:
        watcher.line(warning)
    return run
