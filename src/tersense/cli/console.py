"""What a person sees in the terminal: progress, tables, one-line errors.

All that commands print goes through here, because names may hold what a terminal would obey.
"""

import os
import re
import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from tersense.errors import visible

output = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
_SECONDS_BETWEEN_LINES = 10.0
_LONGEST_LINE = 600  # of an error


def say(line: object) -> None:
    """Print one line of results."""
    output.print(Text(visible(line)))


def complain(message: str) -> None:
    """Print one line of bearable length that says what went wrong."""
    line = visible(re.sub(r"\s*\n\s*", " ", message.strip()))  # libraries say some in several
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}"
    number = os.environ.get("RANK", "0")  # of a process that torchrun started
    who = "tersense" if number == "0" else f"tersense, process {number}"
    errors.print(Text(f"{who}: {line}"))


def complain_of_each(title: str, reasons: list[str]) -> None:
    """Print what went wrong with several files, one line each."""
    complain(title)
    for reason in reasons:
        errors.print(Text(f"  {visible(reason)}"))


class ProgressDisplay:
    """Show progress as a bar on a terminal and as plain lines, now and then, elsewhere.

    It is also a watcher of training runs (`tersense.runtime.progress.Watcher`).

    Args:
        quiet: Show nothing: another process does.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._spoke = time.monotonic()

    def __enter__(self) -> "ProgressDisplay":
        if errors.is_terminal and not self._quiet:
            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=errors, transient=True)
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def line(self, text: str) -> None:
        """Print a line that stays."""
        errors.print(Text(visible(text)))

    def progress(self, done: int, total: int, text: str) -> None:
        """Show that `done` of `total` steps are done."""
        text = visible(text)
        if self._bar:
            if self._task is None:
                self._task = self._bar.add_task(text, total=total)
            self._bar.update(self._task, completed=done, total=total, description=text)
        elif not self._quiet and time.monotonic() - self._spoke > _SECONDS_BETWEEN_LINES:
            self._spoke = time.monotonic()
            self.line(f"{done}/{total} {text}")

    def track(self, items: Iterable[Any], label: str, total: int) -> Iterable[Any]:
        """Go through items, showing how far it is."""
        for done, item in enumerate(items):
            self.progress(done, total, label)
            yield item
        if self._bar and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


def show_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table; the first column is text, the others are figures."""
    table = Table(title=Text(visible(title)), title_justify="left", title_style="bold")
    for number, name in enumerate(head):
        table.add_column(Text(visible(name)), justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    output.print(table)


def show_facts(title: str, facts: dict[str, str]) -> None:
    """Print names and values in two columns."""
    heading = Text(visible(title))
    table = Table(title=heading, title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(visible(name)), Text(visible(value)))
    output.print(table)
