"""Make the most of steps that are all alike: replay one as a CUDA graph."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

_EAGER_STEPS = 3  # before a graph is captured, libraries must have set themselves up


@contextlib.contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try which convolution is fastest, which pays where all steps have one shape.

    Products of single precision may round as its convolutions do (TF32, 10 bits).
    """
    before = torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32 = before


def replayed(step: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Run a few steps as they are, then record one as a CUDA graph and replay it.

    A step of this size is hundreds of small kernels; launching them one by one takes the host
    longer than the GPU needs to run them.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph: torch.cuda.CUDAGraph | None = None
    inputs = result = torch.empty(0)
    calls = 0

    def replay(locations: Tensor) -> Tensor:
        nonlocal graph, inputs, result, calls
        calls += 1
        if calls <= _EAGER_STEPS:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = step(locations)
            torch.cuda.current_stream().wait_stream(stream)
            return loss
        if graph is None:
            inputs = locations.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = step(inputs)
        inputs.copy_(locations)
        graph.replay()
        return result

    return replay
