"""Grow a network from a smaller one that is trained: at first it computes just the same.

New phases change nothing until training finds something to do for them. New channels compute
something at random, but nobody who was there before listens yet.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def places(ours: int, given: int) -> dict[int, int]:
    """Say which of our phases takes over which of the given ones; new ones lie between."""
    if given > ours:
        raise RuntimeError(f"it has {given} phases")
    return {number * ours // given: number for number in range(given)}


@torch.no_grad()
def take_over(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy the weights of a module into one of the same kind that is at least as wide.

    What only ours has keeps its initial values.
    """
    smaller = dict(theirs.named_parameters())
    for name, layer in ours.named_modules():
        for part, weights in _own_parameters(layer):
            given = smaller.pop(f"{name}.{part}".lstrip("."), None)
            if given is not None:
                _take_over(layer, weights, given)
    if smaller:
        raise RuntimeError(f"it has {', '.join(smaller)}")


def _own_parameters(layer: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return layer.named_parameters(recurse=False)


def _take_over(layer: nn.Module, weights: Tensor, given: Tensor) -> None:
    if weights.ndim != given.ndim or any(
        new < old for new, old in zip(weights.shape, given.shape, strict=True)
    ):
        raise RuntimeError(f"weights of {tuple(given.shape)} do not fit {tuple(weights.shape)}")
    if weights.ndim > 1:
        # (outputs, inputs, …), or the other way round: old outputs do not listen to new inputs.
        turned = isinstance(layer, nn.ConvTranspose2d)
        old_outputs, old_inputs = given.shape[1 if turned else 0], given.shape[0 if turned else 1]
        matrix = weights.transpose(0, 1) if turned else weights
        matrix[:old_outputs, old_inputs:] = 0
    weights[tuple(slice(side) for side in given.shape)] = given.to(weights)
