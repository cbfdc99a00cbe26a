"""How far long work has come: one protocol for progress bars, plain lines and silence.

`ahead` works on the next items already while one is being used.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Track = Callable[[Iterable[Any], str, int], Iterable[Any]]


def quietly(items: Iterable[Any], label: str, total: int) -> Iterable[Any]:
    """Go through items without showing progress."""
    return items


def ahead(
    work: Callable[[Item], Result], items: Iterable[Item], depth: int = 16
) -> Iterator[Result]:
    """Yield `work(item)` in order while threads work on the next `depth` items."""
    with ThreadPoolExecutor() as pool:
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class Watcher(Protocol):
    """Who is told how the training goes."""

    def track(self, items: Iterable[Any], label: str, total: int) -> Iterable[Any]:
        """Go through items, hearing how far it is."""

    def line(self, text: str) -> None:
        """Hear something worth a line."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Hear how many steps are done, and the state in a few words."""


class Quiet:
    """A watcher that says nothing."""

    def track(self, items: Iterable[Any], label: str, total: int) -> Iterable[Any]:
        """Go through items."""
        return quietly(items, label, total)

    def line(self, text: str) -> None:
        """Say nothing."""

    def progress(self, done: int, total: int, text: str) -> None:
        """Say nothing."""
