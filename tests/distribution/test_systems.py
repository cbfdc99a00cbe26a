"""Nothing that only Linux has is needed to import the package, to sense or to reconstruct."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from skimage import data

from tersense.cli.program import main
from tersense.io.images import write_image

ROOT = Path(__file__).parents[2]
COMMANDS = [
    ["demo", "-o", "{}/demo", "-m", "paper-r25"],
    ["sense", "{}/photos", "-m", "flex", "--rate", "0.1", "-o", "{}/y"],
    ["sense", "{}/photos", "-m", "flex", "--rate", "0.1", "-o", "{}/y"],  # replaces these files
    ["reconstruct", "{}/y", "-o", "{}/again"],
    ["export", "c", "-m", "paper-r25", "-o", "{}/empty"],  # takes the place of an empty folder
]


def prepare(folder):
    """Make the inputs in a folder; return the commands there."""
    (folder / "photos").mkdir(parents=True)
    (folder / "empty").mkdir()
    write_image(folder / "photos/moon.png", data.moon()[:64, :70])
    write_image(folder / "photos/cat.png", data.chelsea()[100:150, 150:210])
    return [[word.replace("{}", str(folder)) for word in command] for command in COMMANDS]


def results(folder):
    """Return every file below a folder by its name there, as bytes."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    for command in prepare(folder):
        assert main(command) == 0
    return results(folder)


@pytest.mark.parametrize("system", ["windows", "mac"])
def test_another_system_gives_the_same_bytes(here, tmp_path, system):
    commands = tmp_path / "commands.json"
    commands.write_text(json.dumps(prepare(tmp_path / "there")))
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", str(ROOT / "tests/foreign.py"), system,
         str(commands)], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for outcome in json.loads(done.stdout):
        assert (outcome["code"], outcome["err"]) == (0, "")
    there = results(tmp_path / "there")
    assert there.keys() == here.keys()
    assert [name for name in here if here[name] != there[name]] == []
