"""When a training run looks at its loss, its clock and its signals, and what all processes saw.

To look makes the host wait for the GPU, so it is done now and then. Several processes look after
the same number of steps, about once a second, and go by what they saw together: one mean loss, one
clock, one request to stop.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

from tersense.runtime import distributed

_MAX_STEPS = 100  # between two looks
_SECONDS = 1.0  # of several processes, which can stop only where all look


class Looks:
    """The looks of one training."""

    def __init__(self) -> None:
        self._steps = 1  # of several processes; they do not know their speed yet

    def due(self, steps: int, asked: int) -> bool:
        """Tell whether to look after so many steps; one process also when it is asked to stop."""
        if distributed.count() == 1:
            return steps >= _MAX_STEPS or asked > 0
        return steps >= self._steps

    def agree(
        self, loss: float, seconds: float, steps: int, asked: int
    ) -> tuple[float, float, int]:
        """Return what all processes saw in the steps since the last look.

        Args:
            loss: The mean over the steps, of this process's part of the batches.
            seconds: What the steps took.
            steps: Their number.
            asked: The signal that asked to stop, or 0.

        Returns:
            The loss of whole batches, the time of the slowest, and a signal that any one had.
        """
        losses, times, signals = zip(*distributed.gather((loss, seconds, asked)), strict=True)
        self._steps = min(max(1, int(_SECONDS * steps / max(times))), _MAX_STEPS)
        return sum(losses) / len(losses), max(times), max(signals)


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], int]]:
    """Turn Ctrl-C and SIGTERM into a question that the loop asks between steps.

    The answer is the number of the signal, 0 if there was none.
    """
    requested = 0

    def remember(number: int, frame: Any) -> None:
        nonlocal requested
        if requested:  # asked twice: do not wait
            raise KeyboardInterrupt
        requested = number

    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may set handlers
        before = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
