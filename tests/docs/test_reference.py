"""The reference pages are what the tools write, and leave out nothing."""

import dataclasses
import importlib.util
import inspect
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tersense
from tersense.reconstruction.base import _BUILT_IN, find_reconstructor
from tersense.training.config import DataConfig, SensingConfig, TrainConfig

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = ["tersense"] + [
    f"tersense.{module.name}" for module in pkgutil.iter_modules(tersense.__path__) if module.ispkg
]


def load_tool(name):
    spec = importlib.util.spec_from_file_location(f"tool_{name}", ROOT / "tools" / f"{name}.py")
    tool = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


reference = load_tool("reference")


def test_the_pages_are_what_the_tools_write():
    commands = load_tool("commands")
    for page, described in (
        (commands.PAGE, commands.describe_commands()),
        (reference.PYTHON, reference.describe_python()),
        (reference.SETTINGS, reference.describe_settings()),
    ):
        current = page.read_text(encoding="utf-8")
        assert current == described, f"{page.name} is out of date: make docs"


def section(page, heading):
    """Return what stands below a heading, up to the next one of its level."""
    level = heading.split()[0]
    found = re.search(rf"^{heading}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", page, re.M | re.S)
    assert found, f"there is no {heading}"
    return found[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_python_page_has_every_public_class_and_function(package):
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    module = import_module(package)
    for name in module.__all__:
        thing = getattr(module, name, None)  # None for modules that need their extras
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert len(re.findall(rf"^### {name}$", page, re.MULTILINE)) == 1, name
            assert f".{name}`, in " in section(page, f"### {name}")


def test_every_name_on_the_page_can_be_imported_from_where_it_says():
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    stated = re.findall(r"^`([\w.]+)\.(\w+)`, in \[`([\w/.]+)`\]", page, re.MULTILINE)
    assert len(stated) == len(re.findall(r"^### ", page, re.MULTILINE))
    for module, name, path in stated:
        if module == "tersense.interop.deepinv":  # test_interop_deepinv imports it
            continue
        thing = getattr(import_module(module), name)
        home = Path(import_module(thing.__module__).__file__)
        assert home.relative_to(Path(tersense.__file__).parent) == Path(path)


def test_arguments_of_docstrings_become_lists_and_examples_sessions():
    text = section((DOCS / "python.md").read_text(encoding="utf-8"), "### Readout")
    assert "\n\n**Arguments**\n\n- `bits`: " in text
    assert "```pycon\n>>> import numpy as np\n" in text
    assert "Args:" not in text
    assert "Example:" not in text


@pytest.mark.parametrize(
    ("heading", "cls"),
    [
        ("## sensing", SensingConfig),
        ("## data", DataConfig),
        ("## train", TrainConfig),
        *((f"### {name}", find_reconstructor(name).Options) for name in sorted(_BUILT_IN)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_settings_page_has_every_setting_with_default_and_meaning(heading, cls):
    text = section((DOCS / "settings.md").read_text(encoding="utf-8"), heading)
    fields = dataclasses.fields(cls)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+ \| `.+` \| .{5,}) \|$", text, re.MULTILINE))
    assert list(rows) == [field.name for field in fields]


def test_the_settings_page_states_bounds_and_choices():
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert "| `density` | number, above 0 and at most 1 | `0.05` |" in text
    assert '| `optimizer` | `"adam"` or `"muon"` | `"adam"` |' in text
