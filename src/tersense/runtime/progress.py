"""Go through items: with progress shown, and with the next ones being worked on already."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

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
