"""What is installed and shipped: every file by its hash, every asset by its license."""

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tersense

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
BILL = json.loads((ROOT / "locks/tersense.cdx.json").read_text(encoding="utf-8"))
OPEN = {"MIT", "CC0-1.0"}  # of what comes with the package
OTHERS = {"docs/images/real-camera.png": "CC-BY-SA-4.0"}


def read_lock(path):
    """Return name → (version, marker, hashes)."""
    text = path.read_text(encoding="utf-8")
    entries = re.split(r"^(?=[a-z0-9])", text.replace("\\\n", ""), flags=re.MULTILINE)[1:]
    found = {}
    for entry in entries:
        requirement = Requirement(entry.split(" --hash")[0])
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?=\s)", entry)
        found[canonicalize_name(requirement.name)] = requirement, hashes
    return found


def versions():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_file_of_a_lock_has_a_hash_and_the_version_that_is_tested(path):
    pins, lock = versions(), read_lock(path)
    assert lock
    for name, (requirement, hashes) in lock.items():
        assert hashes, name
        (only,) = requirement.specifier
        assert only.operator == "==", name
        if path.stem != "cuda":
            assert only.version.split("+")[0] == pins[name], name


def test_locks_name_no_host():
    for path in (*LOCKS, ROOT / "constraints.txt"):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text
        assert "index" not in text


@pytest.mark.parametrize(
    ("name", "extras"), [("core", ()), ("test", ("test",)), ("app", ("app",)), ("docs", ("docs",))]
)
def test_a_lock_is_complete(name, extras):
    """Nothing that is needed here is left out: pip is told to look for nothing else."""
    lock, seen = read_lock(ROOT / f"locks/{name}.txt"), set()
    texts = [*PROJECT["dependencies"]]
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    todo = [Requirement(text) for text in texts]
    while todo:
        wanted = todo.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        marks = [{"extra": extra} for extra in (*wanted.extras, "")]
        if key in seen or (wanted.marker and not any(map(wanted.marker.evaluate, marks))):
            continue
        seen.add(key)
        assert key[0] in lock or re.match(r"(nvidia|cuda)-|triton$", key[0]), key[0]
        try:
            inside = [Requirement(text) for text in metadata.requires(wanted.name) or []]
        except metadata.PackageNotFoundError:  # of torch for GPUs
            continue
        todo += [r for r in inside if not r.marker or any(map(r.marker.evaluate, marks))]


def test_make_installs_by_locks_only():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    locked = re.search(r"^LOCKED := (.*)$", text, re.MULTILINE)[1]
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(locked.split())
    lines = re.findall(r"pip install (?:--quiet )?(.*)", text)
    others = [line for line in lines if line not in locked]
    ours = "--no-deps --no-build-isolation --editable ."
    assert others == ["atheris", ours]  # the first is for guided fuzzing, by hand


def assets():
    """Return every file that comes with the package and is no Python."""
    package = ROOT / "src/tersense"
    return {path.relative_to(ROOT).as_posix() for path in package.rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc", ".nbi", ".nbc")}  # fmt: skip


def test_every_asset_has_a_license():
    listed = {}
    for entry in tomllib.loads((ROOT / "REUSE.toml").read_text("utf-8"))["annotations"]:
        paths = entry["path"] if isinstance(entry["path"], list) else [entry["path"]]
        assert entry["SPDX-FileCopyrightText"]
        for pattern in paths:
            files = [path for path in ROOT.glob(pattern) if path.is_file()]
            found = [path.relative_to(ROOT).as_posix() for path in files]
            assert found, f"{pattern} is listed and not there"
            listed |= dict.fromkeys(found, entry["SPDX-License-Identifier"])
    assert assets() == set(listed) - set(OTHERS)
    assert {name: listed[name] for name in OTHERS} == OTHERS
    assert {listed[name] for name in assets()} <= OPEN


def test_the_bill_of_materials_is_that_of_the_lock():
    lock = read_lock(ROOT / "locks/core.txt")
    for part in BILL["components"]:
        requirement, hashes = lock[part["name"]]
        assert f"=={part['version']}" == str(requirement.specifier)
        assert sorted(found["content"] for found in part["hashes"]) == sorted(hashes)
        assert part["licenses"], part["name"]
    named = {part["name"] for part in BILL["components"]}
    assert {canonicalize_name(Requirement(r).name) for r in PROJECT["dependencies"]} <= named
    assert BILL["bomFormat"] == "CycloneDX"


def test_the_bill_of_materials_names_every_asset():
    package = BILL["metadata"]["component"]
    assert (package["name"], package["version"]) == ("tersense", tersense.__version__)
    assert {f"src/{part['name']}" for part in package["components"]} == assets()
