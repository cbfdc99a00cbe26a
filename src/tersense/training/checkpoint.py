"""Keep the state of a training run so that it can go on exactly where it stopped.

A checkpoint is a safetensors file: the weights and statistics of the network, the moments of the
optimizer, the state of the random numbers, and a JSON object with the counters. No pickle.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from tersense.errors import TersenseError, one_line
from tersense.io.files import require_file, written_whole

_NETWORK, _OPTIMIZER, _RANDOM = "network.", "optimizer.", "random."


def write_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, counters: dict[str, Any]
) -> None:
    """Write a checkpoint, whole or not at all."""
    tensors = {_NETWORK + key: value for key, value in network.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        for key, value in state.items():
            tensors[f"{_OPTIMIZER}{number}.{key}"] = value
    tensors[_RANDOM + "cpu"] = torch.get_rng_state()
    if next(network.parameters()).is_cuda:
        tensors[_RANDOM + "cuda"] = torch.cuda.get_rng_state()
    metadata = {"tersense": json.dumps(counters)}
    with written_whole(path) as partial:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, partial, metadata)


def read_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Put a checkpoint into the network and the optimizer; return the counters."""
    require_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            counters: dict[str, Any] = json.loads(file.metadata()["tersense"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        network.load_state_dict(
            {k.removeprefix(_NETWORK): v for k, v in tensors.items() if k.startswith(_NETWORK)}
        )
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith(_OPTIMIZER):
                number, key = name.removeprefix(_OPTIMIZER).split(".")
                state.setdefault(int(number), {})[key] = value
        groups = optimizer.state_dict()["param_groups"]
        learning_rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        for group, rate in zip(optimizer.param_groups, learning_rates, strict=True):
            group["lr"] = rate  # the very tensor that the schedule writes to
        if _RANDOM + "cpu" in tensors:  # old checkpoints have none
            torch.set_rng_state(tensors[_RANDOM + "cpu"])
        if _RANDOM + "cuda" in tensors and next(network.parameters()).is_cuda:
            torch.cuda.set_rng_state(tensors[_RANDOM + "cuda"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TersenseError(f"{path} is not a checkpoint of this run: {one_line(error)}") from error
    return counters
