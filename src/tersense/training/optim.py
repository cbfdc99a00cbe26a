"""The optimizer and its learning rates, step by step.

*Muon* is an optimizer for weight matrices: steps of equal length in every direction.
Gradients of a matrix are mostly of low rank: a few directions carry nearly all of them, and a step
along the gradient leaves the others where they are. Muon (Jordan and others, 2024) replaces the
averaged gradient G = UΣVᵀ by UVᵀ. For the unrolled network it saves a good part of the steps that
Adam takes to the same loss; biases, scales and patterns remain with Adam.
"""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from tersense.training.config import TrainConfig

_MOMENTUM = 0.95
_ROOT_MEAN_SQUARE = 0.2  # of a step's entries, as a share of the learning rate: about Adam's
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # a·s + b·s³ + c·s⁵ takes every s in (0, 1] to about 1
_ROUNDS = 5


class Muon(torch.optim.Adam):
    """Adam, except for weight matrices in groups with `matrices=True`: orthogonal steps."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Adam would look for its own counters in the state of the matrices.
        torch.optim.Optimizer.__setstate__(self, state)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step; gradients of matrices are used up."""
        for group in self.param_groups:
            if group.get("matrices"):
                for weights in _by_shape(group["params"]):
                    self._step_matrices(weights, group["lr"])
        super().step(closure)

    def _step_matrices(self, weights: list[Tensor], rate: Tensor) -> None:
        """Move matrices of one shape, all in one batch."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
            weight.grad = None  # so that Adam leaves it alone
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)
        torch._foreach_lerp_(gradients, momenta, _MOMENTUM)
        steps = orthogonalized(torch.stack(gradients).flatten(2))
        steps *= _ROOT_MEAN_SQUARE * max(steps.shape[1:]) ** 0.5 * rate
        torch._foreach_sub_(weights, list(steps.reshape(-1, *weights[0].shape)))


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return UVᵀ, roughly, for matrices UΣVᵀ (N, rows, columns): all singular values near 1."""
    tall = matrices.shape[1] > matrices.shape[2]
    if tall:  # the smaller product is cheaper
        matrices = matrices.transpose(1, 2)
    a, b, c = _POLYNOMIAL
    x: Tensor = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    if x.is_cuda:
        x = x.bfloat16()  # "near 1" needs no more, and takes a tenth of the time
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    x = x.to(matrices.dtype)
    return x.transpose(1, 2) if tall else x


def _by_shape(weights: list[Tensor]) -> list[list[Tensor]]:
    groups = defaultdict(list)
    for weight in weights:
        if weight.grad is not None and weight.ndim >= 2:
            groups[weight.shape].append(weight)
    return list(groups.values())


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
