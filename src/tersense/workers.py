"""Share a loop among threads, for work of a millisecond: no time to lose in starting them."""

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_PIECES_A_THREAD = 2  # one that starts late leaves part of its share to the others


def share(work: Callable[[int, int], Any], length: int, threads: int) -> None:
    """Call `work(begin, end)` for pieces of `range(length)`, on several threads at once.

    Args:
        work: Must release Python's lock while it works, or the threads only take turns.
        length: Of the range.
        threads: How many work, the calling one among them.
    """
    if threads <= 1:
        work(0, length)
        return
    pieces = _PIECES_A_THREAD * threads
    queue = deque(itertools.pairwise(length * k // pieces for k in range(pieces + 1)))

    def work_off() -> None:
        while True:
            try:
                piece = queue.popleft()
            except IndexError:  # all are taken
                return
            work(*piece)

    pool, identities = _helpers(threads - 1)
    _keep_apart(identities)
    others = [pool.submit(work_off) for _ in identities]
    work_off()
    for other in others:
        other.result()


@functools.cache
def _helpers(count: int) -> tuple[ThreadPoolExecutor, list[int]]:
    """Keep threads for the next call: to start them takes as long as to sense a megapixel."""
    pool, all_there = ThreadPoolExecutor(count), threading.Barrier(count)

    def identify() -> int:
        all_there.wait()  # so that no thread answers twice
        return threading.get_native_id()

    return pool, [job.result() for job in [pool.submit(identify) for _ in range(count)]]


if hasattr(os, "register_at_fork"):  # a forked process has the pool but not its threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def _keep_apart(identities: list[int]) -> None:
    """Keep the helpers off the caller's core.

    Linux likes to wake a thread on the core of the one that woke it, where the two then take
    turns for longer than the work lasts.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    with contextlib.suppress(OSError, AttributeError):
        elsewhere = os.sched_getaffinity(0) - {ctypes.CDLL(None).sched_getcpu()}
        for identity in identities if elsewhere else ():
            os.sched_setaffinity(identity, elsewhere)
