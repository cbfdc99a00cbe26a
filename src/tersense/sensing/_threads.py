"""Share a loop among threads, for work of half a millisecond: no time to lose in waking them.

Helpers wait awake for a while before they go to sleep, and without Python's lock, which would have
to wake them too.  So the work is compiled, from the call of the leader to the last piece.  Its
arguments, a tuple, stay where the leader has them, and the helpers read them there::

    leader   offer -- take, work, finish -- take, work, finish -- wait_for_all
    helper   waits -- take, work, finish -- take: none left -- waits -- sleeps

Who comes late finds nothing left to take, and nobody waits for it.

Numba keeps compiled functions by the date of their own file: after a change here or in `vectors`,
touch those files whose functions call these.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic

PATIENCE = 3000  # looks of a helper for more work before it sleeps: about a millisecond
PIECES_A_THREAD = 4  # one that starts late leaves part of its share to the others
_LEFT, _DONE, _PIECES, _LENGTH, _TASK, _FAILED = range(0, 48, 8)  # each in its own cache line
_BOX = 48


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba, kept for the next process where there is a folder to keep it in."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return njit(nogil=True)(function)


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide from the type checker that Numba passes the first argument itself."""
    return numba_intrinsic(function)


def _atomic(operation: str) -> Callable[..., int]:
    """Make the intrinsic that changes a number in one go, for all threads to see in one order."""

    def change(_: Any, box: Any, place: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            place = builder.gep(data, [args[1]])
            return builder.atomic_rmw(operation, place, args[2], "seq_cst")

        return types.int64(box, types.int64, types.int64), emit

    return intrinsic(change)


_add, _swap = _atomic("add"), _atomic("xchg")  # both return what was there before


@intrinsic
def address_of(_: Any, task: Any) -> Any:
    """Lay a tuple down in the memory of the calling function and return where."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(cgutils.alloca_once_value(builder, args[0]), ir.IntType(64))  # type: ignore[no-untyped-call]

    return types.int64(task), emit


@intrinsic
def _tuple_at(_: Any, address: Any, like: Any) -> Any:
    """Read a tuple of the same types as ``like``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], args[1].type.as_pointer())
        value = builder.load(place)
        context.nrt.incref(builder, signature.return_type, value)  # the caller will drop it
        return value

    return like(types.int64, like), emit


@intrinsic
def pause(_: Any) -> Any:
    """Let other threads on this core go first."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            give_way = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")  # type: ignore[no-untyped-call]
            builder.call(give_way, [])
        return context.get_dummy_value()

    return types.void(), emit


@compiled
def take(box: Any, patience: int) -> tuple[int, int]:
    """Take a piece and return its bounds, (-1, -1) if there is none after that many looks."""
    for _ in range(patience):
        if _add(box, _LEFT, 0) > 0:  # look first: a change would take the line from other cores
            piece = _add(box, _LEFT, -1) - 1
            if piece >= 0:
                length, pieces = box[_LENGTH], box[_PIECES]
                return length * piece // pieces, length * (piece + 1) // pieces
        pause()
    return -1, -1


@compiled
def task_at(box: Any, like: Any) -> Any:
    """Return the arguments, of the same types as ``like``.  They are there until ``finish``."""
    return _tuple_at(box[_TASK], like)


@compiled
def finish(box: Any, well: bool) -> None:
    """Say that a piece is done, well or not, and that its arguments are no longer needed."""
    if not well:
        _add(box, _FAILED, 1)
    _add(box, _DONE, 1)


@compiled
def offer(box: Any, length: int, pieces: int, task: int) -> None:
    """Offer ``range(length)`` in pieces, to be worked on with the arguments at address ``task``."""
    box[_LENGTH], box[_PIECES], box[_TASK] = length, pieces, task
    _swap(box, _FAILED, 0)
    _swap(box, _DONE, 0)
    _swap(box, _LEFT, pieces)


@compiled
def wait_for_all(box: Any) -> bool:
    """Wait until every piece is done; return whether all were done well."""
    while _add(box, _DONE, 0) < box[_PIECES]:
        pause()
    return bool(_add(box, _FAILED, 0) == 0)


class Crew:
    """Threads that help one leader at a time.

    Args:
        helpers: How many there are.
        help_out: Compiled; called with the box, works off pieces until none have come for a while.
    """

    def __init__(self, helpers: int, help_out: Callable[[Any], Any]) -> None:
        self._free = threading.Lock()
        self._box = np.zeros(_BOX, np.int64)
        self._bells = [threading.Event() for _ in range(helpers)]
        self._help_out = help_out
        self._asleep: set[int] = set()
        help_out(self._box)  # compile it here, not in a thread that the end of the process cuts off
        for bell in self._bells:
            threading.Thread(target=self._stand_by, args=(bell,), daemon=True).start()

    def _stand_by(self, bell: threading.Event) -> None:
        own = threading.get_native_id()
        while True:
            self._asleep.add(own)
            bell.wait()
            self._asleep.discard(own)
            bell.clear()  # before looking, so that what is offered from now on rings again
            self._help_out(self._box)

    def share(self, lead: Callable[[Any, int], Any]) -> None:
        """Call `lead(box, pieces)` while the helpers are awake.

        If another thread leads them already, there is nobody to help: one piece, a box of its own.
        """
        if not self._free.acquire(blocking=False):
            lead(np.zeros(_BOX, np.int64), 1)
            return
        try:
            if self._asleep:
                _keep_apart(list(self._asleep))
            for bell in self._bells:
                bell.set()
            lead(self._box, PIECES_A_THREAD * (len(self._bells) + 1))
        finally:
            self._free.release()


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
