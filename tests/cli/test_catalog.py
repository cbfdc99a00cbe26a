"""Every command × every kind of bad argument: one line, exit code 2, nothing left or changed."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from catalog import CONTEXT, FOR_FOLDERS, bad_values, walk
from desk import lay_out
from tersense.cli.program import main

COMMANDS = {command.name: command for command in walk()}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder of inputs to work in; temporary files go there too, so that none stays unseen."""
    folder, before, temporary = tmp_path_factory.mktemp("desk"), Path.cwd(), tempfile.tempdir
    lay_out(folder)
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    yield folder
    os.chdir(before)
    tempfile.tempdir = temporary


def contents(folder):
    """Return everything below a folder, with a hash of every file."""
    return {
        path: hashlib.sha256(path.read_bytes()).digest() if path.is_file() else path.lstat().st_mode
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def within(seconds):
    """Fail if the block takes longer: it waits for something that never comes."""

    def give_up(number, frame):
        raise AssertionError(f"still at work after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Mistake(NamedTuple):
    """What to call it, the command line, and words of which the message must have one."""

    name: str
    line: list[str]
    said: tuple[str, ...]


def mistakes_of(command):
    """Yield every kind of mistake that can be made with a command."""
    words = [*command.line(), "--no-such-option"]
    yield Mistake(f"{command.name}: unknown option", words, ("--no-such-option",))
    if not any(p.metavar.endswith("…") for p in command.parameters):
        words = [*command.line(), "one", "more"]
        yield Mistake(f"{command.name}: an argument too many", words, ("more", "one"))
    for parameter in command.parameters:
        yield from mistakes_with(command, parameter)


def mistakes_with(command, parameter):
    """Yield every kind of mistake that can be made with a parameter."""
    flag, name = parameter.flag, parameter.name
    place, said = f"{command.name} {flag or parameter.metavar}", (flag or parameter.metavar,)
    if parameter.required:  # of several arguments, the last is the one that is missing then
        positional = tuple(p.metavar for p in command.parameters if not flag and not p.flag)
        yield Mistake(f"{place}: left out", command.line(**{name: None}), (*said, *positional))
    if parameter.kind is bool:
        yield Mistake(f"{place}: a value", [*command.line(), f"{flag}=maybe"], said)
        return
    if flag:
        yield Mistake(f"{place}: without its value", [*command.line(), flag], said)
    for what, value in bad_values(command, parameter).items():
        context = CONTEXT.get((command.name, name), {})
        if what == "empty folder" and not flag:
            context = context | FOR_FOLDERS.get(command.name, {})
        line = command.line(**(context | {name: value}))
        shown = value.split("\n")[0].replace("|", " ").replace("\0", r"\x00")[:40] or "empty"
        word = flag.strip("-") or parameter.metavar
        yield Mistake(f"{place}: {what}", line, (shown, word))


MISTAKES = {m.name: m for command in COMMANDS.values() for m in mistakes_of(command)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_line_exit_code_2_nothing_left_nothing_changed(desk, capfd, mistake):
    before = contents(desk)
    with within(60):
        code = main(MISTAKES[mistake].line)
    said = capfd.readouterr()
    assert (code, said.err.count("\n")) == (2, 1), said.err
    assert any(word in said.err for word in MISTAKES[mistake].said), said.err
    assert said.err.startswith("tersense: ")
    assert said.err.removesuffix("\n").isprintable()
    assert len(said.err) < 1000
    assert said.out == ""
    assert contents(desk) == before


# Those that only measure, take long or run until they are stopped have tests of their own.
ELSEWHERE = ("bench", "app", "reproduce", "models", "export web")


@pytest.mark.parametrize(
    "command",
    [
        n
        for n in COMMANDS
        if not n.startswith(("bench", "app", "reproduce", "models", "export web"))
    ],
)
def test_the_same_command_without_a_mistake_works(tmp_path, capfd, monkeypatch, command):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    more = ["other.json"] if command == "plot psnr" else []
    assert main([*COMMANDS[command].line(), *more]) == 0, capfd.readouterr().err


def test_every_command_is_walked(capfd):
    main(["--help"])
    offered = capfd.readouterr().out
    for name in COMMANDS:
        assert f" {name.split()[0]} " in offered
    assert len(MISTAKES) > 800


@pytest.mark.parametrize(
    "words",
    [
        ["sense", "bad/cut.png", "-o", "new.tsm"],
        ["reconstruct", "bad/pipe.tsm", "-o", "new.png"],
        ["train", "/dev/zero"],
    ],
    ids=" ".join,
)
def test_the_program_itself_behaves_the_same(desk, words):
    before = contents(desk)
    command = [sys.executable, "-m", "tersense", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("tersense: ")
    assert done.stdout == ""
    assert contents(desk) == before


def test_a_folder_with_a_bad_file_gives_exit_code_1_and_the_other_results(desk, capfd, tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "good.png").write_bytes((desk / "photo.png").read_bytes())
    (folder / "cut.png").write_bytes((desk / "bad/cut.png").read_bytes())
    os.mkfifo(folder / "pipe.png")
    words = ["sense", str(folder), "-o", str(tmp_path / "new"), "-m", "small.safetensors"]
    before = contents(folder)
    with within(60):
        assert main(words) == 1
    assert "1 of 2 files failed" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["good.tsm"]
    assert contents(folder) == before
