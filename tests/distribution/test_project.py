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


def read_workflow(name):
    text = (ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["jobs"]


def steps_of(jobs):
    return [step for job in jobs.values() for step in job.get("steps", ())]


def test_the_workflow_calls_the_makefile_and_tools_that_exist():
    commands = [step["run"] for step in steps_of(read_workflow("ci")) if "run" in step]
    called = {line.split()[1] for line in commands if line.startswith("make ")}
    assert called == {"test", "dist"} <= TARGETS
    (tool,) = [line.split()[1] for line in commands if line.startswith("python ")]
    assert (ROOT / tool).is_file()


def test_the_workflow_installs_on_every_system_and_python_that_we_name():
    matrix = read_workflow("ci")["install"]["strategy"]["matrix"]
    named = "\n".join(PYPROJECT["project"]["classifiers"])
    assert re.findall(r"Python :: (3\.\d+)", named) == matrix["python"]
    systems = {"ubuntu": "Linux", "macos": "MacOS", "windows": "Windows"}
    assert {systems[name.split("-")[0]] for name in matrix["system"]} == set(systems.values())
    assert all(f":: {system}\n" in named for system in systems.values())
    assert any(name.endswith("-arm") for name in matrix["system"])


def test_a_release_publishes_what_was_tried():
    jobs = read_workflow("release")
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert jobs["publish"]["needs"] == "test"
    uses = [step.get("uses", "") for step in steps_of(jobs)]
    assert not any(name.startswith("actions/upload-artifact") for name in uses)
    names = [
        step["with"]["name"]
        for step in steps_of(jobs) + steps_of(read_workflow("ci"))
        if "artifact@" in step.get("uses", "")
    ]
    assert set(names) == {"dist"}


def test_a_tag_is_compared_with_the_version_where_it_stands():
    for name in ("src/tersense/__init__.py", "CHANGELOG.md", "CITATION.cff"):
        assert name in read_workflow("release")["version"]["steps"][1]["run"]
    text = (ROOT / "src/tersense/__init__.py").read_text(encoding="utf-8")
    assert f'\n__version__ = "{tersense.__version__}"\n' in text


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
