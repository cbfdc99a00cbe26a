"""Several processes at one task: they train one camera, or share the files of a folder.

`torchrun` starts the processes, on one machine or on many, and tells each its number. All do the
same, each with its part of a batch or of the files; the first one writes and speaks. Whatever they
decide by the clock, by a signal or by a file they decide together, or they would wait for each
other forever. A process that was started alone notices nothing of all this.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tersense.errors import AlreadyToldError, TersenseError, one_line
from tersense.runtime._rendezvous import meet
from tersense.runtime.progress import Track, quietly

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE = timedelta(hours=12)  # while others pack images; who died is noticed at once
_SIGNS_OF_LOSS = ("gloo", "nccl", "Connection", "Broken pipe", "peer", "Socket")


def count() -> int:
    """Return the number of processes, 1 without torchrun."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if count() > 1 else 0


@contextlib.contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that torchrun started; where there is only one, do nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    backend, local = "gloo", int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
        if torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
            backend = "cpu:gloo,cuda:nccl"  # NCCL wants a GPU for each process
    store, me, all_of_us = meet()
    dist.init_process_group(backend, timeout=_PATIENCE, store=store, rank=me, world_size=all_of_us)
    try:
        yield
    except RuntimeError as error:
        if not any(sign in str(error) for sign in _SIGNS_OF_LOSS):
            raise
        raise TersenseError(
            f"process {me} of {all_of_us} lost the others: one of them died or was killed; "
            "a training run goes on from its last checkpoint with --resume"
        ) from error
    finally:
        gc.collect()  # a network that still averages gradients would keep threads alive
        dist.destroy_process_group()


def gather(value: T) -> list[T]:
    """Return what every process gave, by rank."""
    if count() == 1:
        return [value]
    values: list[Any] = [None] * count()
    dist.all_gather_object(values, value)
    return values


def together(work: Callable[[], T]) -> T:
    """Do something in every process; if it fails in one it fails in all, and the first tells."""
    if count() == 1:
        return work()
    result, failure = None, None
    try:
        result = work()
    except Exception as error:
        failure = error
    told = gather(one_line(failure) if failure else "")
    number = next((n for n, text in enumerate(told) if text), None)
    if number is None:
        return result  # type: ignore[return-value]
    if rank() > 0:
        raise AlreadyToldError(told[number]) from failure
    if failure:
        raise failure
    raise TersenseError(f"process {number} of {count()}: {told[number]}")


def first(work: Callable[[], T]) -> T:
    """Do something in the first process alone; return its result in all."""
    result = together(work if rank() == 0 else lambda: None)
    return gather(result)[0]  # type: ignore[return-value]


def share_out(
    items: Sequence[T], work: Callable[[T], R], track: Track = quietly, label: str = ""
) -> list[R]:
    """Do the work forevery item, each process its part; return all results in order."""
    mine = items[rank() :: count()]
    parts = gather(together(lambda: [work(item) for item in track(mine, label, len(mine))]))
    results: list[Any] = [None] * len(items)
    for number, part in enumerate(parts):
        results[number :: count()] = part
    return results


def require_same(value: T, otherwise: str) -> T:
    """Return a value that must be the same in all processes."""

    def compare() -> T:
        if any(other != value for other in everyone):
            raise TersenseError(otherwise)
        return value

    everyone = gather(value)
    return together(compare)


def my_part(length: int) -> slice:
    """Return this process's part of a range; the parts differ by one at most."""
    return slice(length * rank() // count(), length * (rank() + 1) // count())


def averaging(network: nn.Module) -> nn.Module:
    """Let the gradients of all processes be averaged on the way back."""
    return DistributedDataParallel(network) if count() > 1 else network


def share_statistics(network: nn.Module) -> None:
    """Let batch normalization see the whole batch, not only this process's part."""
    for name, module in network.named_children() if count() > 1 else ():
        if type(module) is nn.BatchNorm1d:
            setattr(network, name, _SharedBatchNorm(module))
        else:
            share_statistics(module)


class _SharedBatchNorm(nn.BatchNorm1d):
    """Batch normalization whose mean and variance are those of all processes together.

    It is torch's SyncBatchNorm in plain operations, which run on a CPU too.
    """

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum)
        self.weight, self.bias = norm.weight, norm.bias
        self.running_mean, self.running_var = norm.running_mean, norm.running_var
        self.num_batches_tracked = norm.num_batches_tracked

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, features)."""
        if not self.training or count() == 1:
            return super().forward(input)
        values = input.float()
        rows = _sum_over_all(values.new_tensor([len(values)]))
        mean = _sum_over_all(values.sum(0)) / rows
        variance = _sum_over_all((values - mean).square().sum(0)) / rows
        self._follow(mean.detach(), (variance * rows / (rows - 1)).detach())
        result = (values - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias
        return result.to(input.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics, as torch does."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)


class _SumOverAll(torch.autograd.Function):
    """Add a tensor over all processes; gradients, too, are those of all."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def _sum_over_all(values: Tensor) -> Tensor:
    total: Tensor = _SumOverAll.apply(values)  # type: ignore[no-untyped-call]
    return total
