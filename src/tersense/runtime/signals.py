"""Signals that end a program in good order: what is half-written is removed on the way out.

Training runs have handlers of their own (`training.stopping`): they finish a step and leave a
checkpoint to go on from.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN = 0.01  # seconds
_IMPORTS = "<frozen importlib"  # files of frames of the import system


@contextlib.contextmanager
def ending_in_good_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does: it removes what is half-written."""
    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may set handlers
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", None)):
            if number and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(number: int, frame: FrameType | None) -> None:
    """Handle a signal by SystemExit, as a shell counts it: 128 and the signal.

    Not by KeyboardInterrupt, which typer would take for Ctrl-C. Python prints and forgets what is
    raised in the callback of a weak reference, which the import system has: there the signal comes
    again a moment later.
    """
    if frame is not None and frame.f_code.co_filename.startswith(_IMPORTS):
        threading.Timer(_AGAIN, signal.raise_signal, [number]).start()
        return
    raise SystemExit(128 + number)
