"""Attacks through files, names and signals: each with its reproduction."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from catalog import walk
from desk import lay_out
from tersense.cli.program import main
from tersense.io.files import written_whole
from tersense.io.images import write_image

COMMANDS = {command.name: command for command in walk()}


PAUSE = """
import signal, sys
from tersense.io.files import written_whole
with written_whole(sys.argv[1]) as partial:
    partial.write_text("half")
    print(partial.parent.name, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_and_nothing_that_a_living_one_writes(tmp_path):
    """Every kill left a file that nobody ever removed."""
    mine = tmp_path / ".partial-of-mine"
    mine.mkdir()
    command = [sys.executable, "-c", PAUSE]
    with (
        subprocess.Popen([*command, str(tmp_path / "a")], stdin=-1, stdout=-1, text=True) as living,
        subprocess.Popen([*command, str(tmp_path / "b")], stdin=-1, stdout=-1, text=True) as killed,
    ):
        places = [tmp_path / program.stdout.readline().strip() for program in (living, killed)]
        killed.kill()
        killed.wait()
        assert all(place.is_dir() for place in places)
        (tmp_path / "new").mkdir()
        write_image(tmp_path / "c.png", np.zeros((4, 4), np.uint8))
        assert [place.exists() for place in places] == [True, False]
        living.communicate("go on")
    assert living.returncode == 0
    names = [".partial-of-mine", "a", "c.png", "new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_folder_without_locks_is_written_too(tmp_path, monkeypatch):
    """There, nobody can tell what is alive: what a killed process left stays."""

    def no_locks(*arguments):
        raise OSError(95, "Operation not supported")

    left = tmp_path / ".partial-0123456789abcdef"
    left.mkdir()
    monkeypatch.setattr("fcntl.flock", no_locks)
    with written_whole(tmp_path / "a.txt") as partial:
        partial.write_text("all of it")
        assert partial.parent.name.startswith(".partial-unlocked-")
    assert sorted(path.name for path in tmp_path.iterdir()) == [left.name, "a.txt"]


# Those that measure or train for long, and one export of five that is as slow as all others.
SLOW = ("bench", "reproduce", "app", "export onnx")
WRITING = [name for name, command in COMMANDS.items() if not name.startswith(SLOW)
           and any(parameter.written for parameter in command.parameters)]  # fmt: skip


@pytest.mark.parametrize("command", WRITING)
def test_a_signal_at_the_worst_moment_leaves_nothing_half_written(
    command, tmp_path, monkeypatch, capfd
):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr("os.fsync", lambda descriptor: signal.raise_signal(signal.SIGTERM))
    more = ["other.json"] if command == "plot psnr" else []
    outputs = {p.name: p.good for p in COMMANDS[command].parameters if p.written}
    assert main([*COMMANDS[command].line(**outputs), *more]) == 128 + signal.SIGTERM
    assert "interrupted" in capfd.readouterr().err
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert not new
    assert not list(tmp_path.rglob(".partial-*"))
