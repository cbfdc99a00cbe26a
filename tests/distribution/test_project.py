"""What the project says about itself in several places is the same in all of them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import tersense
from test_structure import FLOORS

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
TARGETS = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())


def test_version_and_date_are_the_same_everywhere():
    version, date = re.search(r"^## (\S+) — (.*)$", CHANGELOG, re.MULTILINE).groups()
    assert version == tersense.__version__ == str(CITATION["version"])
    assert str(CITATION.get("date-released", "unreleased")) == date


def test_what_the_source_distribution_takes_along_exists():
    for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / name).exists(), name


def test_what_mutants_are_made_of_and_tried_with_exists():
    mutmut = PYPROJECT["tool"]["mutmut"]
    for name in mutmut["only_mutate"] + mutmut["pytest_add_cli_args_test_selection"]:
        assert (ROOT / name).is_file(), name


def test_every_target_is_explained():
    explained = set(re.findall(r"^# make (\S+)", MAKEFILE, re.MULTILINE))
    assert explained | {"fuzz-guided"} == TARGETS
    assert set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) == TARGETS


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_call_the_makefile(name):
    path = ROOT / ".github" / "workflows" / f"{name}.yml"
    called = re.findall(r"run: make (\S+)", path.read_text(encoding="utf-8"))
    assert called
    assert set(called) <= TARGETS


def test_the_floors_are_told_as_they_are_checked():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("From the top down:")[2].partition("\n\nA module")[0]
    told = [set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in table.splitlines()[4:]]
    assert told == FLOORS[::-1]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "tools/README.md"])
def test_files_that_are_named_exist(page):
    """Paths from the root, as in `tests/cli/test_catalog.py`; names in capitals are yours."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"[(`/ ]((?:src|tests|docs|tools|configs)/[\w./-]*\w)", text)
    assert named
    for name in named:
        if not re.search(r"NAME", name):
            assert (ROOT / name).exists(), name


def test_every_tool_is_listed():
    listed = set(re.findall(r"`(\w+\.\w+)`", (ROOT / "tools/README.md").read_text("utf-8")))
    assert {path.name for path in (ROOT / "tools").glob("*.*")} - listed == {"README.md"}
