"""What a training run has learned so far, and what a checkpoint keeps of it."""

from pathlib import Path
from typing import Any

import torch

from tersense.errors import TersenseError
from tersense.models.zoo import load
from tersense.runtime import distributed
from tersense.training.checkpoint import read_checkpoint, write_checkpoint
from tersense.training.config import Config
from tersense.training.network import JointNetwork
from tersense.training.optim import Muon, learning_rates


class TrainingState:
    """Network and optimizer, and how far they have come.

    Args:
        config: All settings.
        mean: μ of the training pixels.
        std: σ of the training pixels.
        device: Where to train.
    """

    def __init__(self, config: Config, mean: float, std: float, device: torch.device) -> None:
        self.config, self.device = config, device
        train = config.train
        torch.manual_seed(train.seed)
        teacher = load(config.teacher.model, device) if config.teacher.model else None
        self.network = JointNetwork(config, mean, std, teacher)
        distributed.share_statistics(self.network)
        if not any(w.requires_grad for w in self.network.reconstructor.parameters()):
            raise TersenseError(
                f"the reconstructor {config.reconstructor['name']} has no weights to train; "
                "use it with tersense.load, or set reconstructor.name to another"
            )
        if train.start:
            self.network.start_from(load(train.start))
        self.network.to(device).train()
        self.learning_rate = torch.tensor(train.lr, device=device)
        self.sensor_rate = self.learning_rate.clone()  # 0 once the patterns are frozen
        self.optimizer = self._build_optimizer()
        self._rates = (train.lr, train.lr)
        self.step = 0
        self.seconds = 0.0  # of steps alone, over all sessions of this run

    def _build_optimizer(self) -> torch.optim.Optimizer:
        learned = [w for w in self.network.sensor.parameters() if w.requires_grad]
        ours = list(self.network.reconstructor.parameters())
        if self.network.distillation is not None:
            ours += self.network.distillation.parameters()
        groups: list[dict[str, Any]] = [
            {"params": ours, "matrices": True},
            {"params": learned, "lr": self.sensor_rate},
        ]
        kind = {"adam": torch.optim.Adam, "muon": Muon}[self.config.train.optimizer]
        on_gpu = self.device.type == "cuda"
        return kind(groups, lr=self.learning_rate, fused=True, capturable=on_gpu)

    def set_learning_rates(self, epoch: float) -> None:
        """Set the learning rates for the next step, so many epochs into the run."""
        rates = learning_rates(self.config.train, self.step, epoch, self.seconds)
        if rates != self._rates:  # writing to the device takes time
            self.learning_rate.fill_(rates[0])
            self.sensor_rate.fill_(rates[1])
            self._rates = rates

    def save(self, path: Path) -> None:
        """Write everything that is needed to continue, unless it is beyond repair."""
        if not all(bool(w.isfinite().all()) for w in self.network.parameters()):
            raise TersenseError(
                f"weights became infinite or NaN by step {self.step}; train again with a lower "
                "train.lr"
            )
        counters = {"step": self.step, "seconds": self.seconds}
        try:
            write_checkpoint(path, self.network, self.optimizer, counters)
        except TersenseError as error:
            kept = "; the one before it stays" if path.exists() else ""
            raise TersenseError(f"{error}{kept}; --resume continues when it can be") from error

    def load(self, path: Path) -> None:
        """Continue from a checkpoint, if there is one."""
        if not path.exists():
            return
        given = self.network.sensor.theta.clone()
        counters = read_checkpoint(path, self.network, self.optimizer)
        fixed = self.config.teacher.model or self.config.sensing.patterns
        if fixed and not torch.equal(given, self.network.sensor.theta):
            raise TersenseError(
                f"{fixed} holds other patterns than when this run began; start a new one"
            )
        self.step, self.seconds = int(counters["step"]), float(counters["seconds"])
