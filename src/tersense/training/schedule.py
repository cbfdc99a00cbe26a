"""How fast to learn, step by step."""

import math

from tersense.training.config import TrainConfig


def learning_rates(
    train: TrainConfig, step: int, epoch: float, seconds: float
) -> tuple[float, float]:
    """Return the learning rates of the reconstructor and of the patterns.

    Args:
        train: The settings.
        step: Steps done.
        epoch: Epochs done, with their fraction.
        seconds: Time that the steps took.
    """
    if train.schedule == "steps":
        progress = epoch / train.epochs
        rate = train.lr * train.lr_decay ** (int(epoch) // train.lr_decay_epochs)
    else:
        spent = seconds / train.seconds if train.seconds else 0.0
        progress = min(1.0, max(epoch / train.epochs, spent))
        rate = train.lr * (1 + math.cos(math.pi * progress)) / 2
    rate *= min(1.0, (step + 1) / train.warmup) if train.warmup else 1.0
    frozen = train.freeze_epochs and progress >= train.freeze_epochs / train.epochs
    of_patterns = rate * (train.lr_patterns or train.lr) / train.lr
    return rate, 0.0 if frozen else of_patterns
