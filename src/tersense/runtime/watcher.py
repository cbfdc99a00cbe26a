"""Who is told how a training goes."""

from collections.abc import Iterable
from typing import Any, Protocol

from tersense.runtime.progress import quietly


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
