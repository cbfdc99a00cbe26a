"""Run commands as if no extra were installed: `python core_only.py ALLOWED.json COMMANDS.json`.

Every module is refused that belongs to an installed distribution, but to none that the core of
tersense needs. What each command did is printed as JSON.
"""

import contextlib
import importlib.metadata
import io
import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PROJECT = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]


def core_distributions():
    """Return the names of what `pip install tersense` brings, however far down."""
    wanted, found = list(PROJECT["dependencies"]), set()
    while wanted:
        requirement = Requirement(wanted.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            wanted += distribution(name).requires or []
        except PackageNotFoundError:  # torch names GPU libraries that a CPU build does not need
            continue
    return sorted(found)


def refused_modules(allowed):
    """Return the top-level modules that come with other distributions only."""
    return {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {name.lower().replace("_", "-") for name in owners} & allowed
    }


class Blinkers:
    """A finder of modules that does not see some of them, as where they are not installed."""

    def __init__(self, finder, refused):
        self.finder, self.refused = finder, refused

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in self.refused
        return None if hidden else self.finder.find_spec(name, path, target)


def run(main, command):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    allowed, commands = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
    refused = refused_modules(set(allowed))
    sys.meta_path[:] = [Blinkers(finder, refused) for finder in sys.meta_path]
    from tersense.cli.program import main

    print(json.dumps([run(main, command) for command in commands]))
