"""What a person sees while waiting: a bar on a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

import tersense.cli.console
from tersense.cli.console import ProgressDisplay


@pytest.fixture
def screen(monkeypatch):
    """Return where errors are shown; `screen(terminal)` says what it is."""

    def build(terminal):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=80, color_system=None)
        monkeypatch.setattr(tersense.cli.console, "errors", console)
        return file

    return build


def test_a_terminal_shows_a_bar_that_goes_away(screen, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one shows none
    shown = screen(terminal=True)
    with ProgressDisplay() as display:
        taken = []
        for item in display.track("abc", "sensing", 3):
            taken.append(item)
            display._bar.refresh()
            assert shown.getvalue().splitlines()[-1].startswith("\x1b[2Ksensing ")
            assert f" {len(taken) - 1}/3 " in shown.getvalue()
        assert taken == ["a", "b", "c"]
        assert not display._bar.tasks
        for _ in display.track("x", "reconstructing", 1):
            assert [task.description for task in display._bar.tasks] == ["reconstructing"]
    *_, left = shown.getvalue().split("\x1b[2K")  # which wipes the line
    assert left == "\x1b[?25h\r"  # the cursor is back


def test_elsewhere_a_line_comes_now_and_then(screen, monkeypatch):
    said = screen(terminal=False)
    clock = iter([0.0, 1.0, 1000.0, 1000.0, 1001.0])
    monkeypatch.setattr(tersense.cli.console.time, "monotonic", lambda: next(clock))
    with ProgressDisplay() as display:
        for step in (1, 2, 3):
            display.progress(step, 3, "[epoch]")
    assert said.getvalue() == "2/3 [epoch]\n"
