"""The Dockerfile names what is there; `make container` runs its steps."""

import re
import shlex
import tomllib

import pytest

from dockerfile import ROOT, Stage, read_instructions
from tersense.cli.program import main

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COPIED = [
    name for word, rest in read_instructions() if word == "COPY" for name in rest.split()[:-1]
]


def test_what_is_copied_is_there_and_not_ignored():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert kept == set(COPIED)
    for name in COPIED:
        assert (ROOT / name).exists(), name


def test_what_the_build_of_the_package_reads_is_copied():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    read = [project["project"]["readme"], *project["project"]["license-files"]]
    for name in [*read, *wheel["packages"], *wheel["sbom-files"], "pyproject.toml"]:
        assert any(name == copied or name.startswith(f"{copied}/") for copied in COPIED), name


def test_every_lock_is_there_and_holds_the_page():
    named = re.findall(r"\$LOCKED ([\w./]+)", TEXT)
    assert named == ["locks/cpu.txt", "locks/app.txt", "locks/cuda.txt"]
    assert re.search("^gradio==", (ROOT / "locks/app.txt").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", re.findall("^#  +docker run (.*)$", TEXT, re.MULTILINE))
def test_its_head_shows_commands_that_exist(line, capsys):
    command = shlex.split(line.partition(" tersense ")[2])
    assert main([command[0], "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in command if word.startswith("-"))


def test_steps_happen_in_the_folder(tmp_path, monkeypatch):
    """What `make container` stands on: folders, variables and copies are those of the stage."""
    stage = Stage.__new__(Stage)
    stage.root = stage.folder = tmp_path
    stage.variables = {"PATH": "/usr/bin:/bin"}
    for word, rest in [
        ("ARG", "GREETING=hello"), ("ENV", "PLACE=/place HOME=/tmp"), ("WORKDIR", "/a/b"),
        ("COPY", "LICENSE src/tersense/py.typed ./"), ("EXPOSE", "1"),
        ("RUN", 'mkdir "$PLACE" && echo $GREETING > "$PLACE/file"'),
    ]:  # fmt: skip
        stage.do(word, rest)
    assert (tmp_path / "place/file").read_text() == "hello\n"
    assert (tmp_path / "a/b/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
