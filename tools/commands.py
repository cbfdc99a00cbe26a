"""Write docs/commands.md from the program's own help: `python tools/commands.py`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tersense.cli.program import app

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
_HEAD = """\
# Commands

*Written by `make docs` from the program's own help; `tersense COMMAND --help` says the same.*

MODEL is a built-in name (see the [model zoo](models.md)), a model file, or the folder of a
training. A mistake gets one line on stderr and exit code 2; when some of many files fail, the
others are done and the exit code is 1. `tersense --install-completion` teaches your shell the
commands.

"""
_EXAMPLE = re.compile(r"^Example: (.*)$", re.MULTILINE)
_HIDDEN = {"help", "install_completion", "show_completion"}


def describe_commands() -> str:
    """Return the whole page."""
    commands = list(_walk(typer.main.get_command(app), ""))
    return _HEAD + "\n\n".join(_describe(name, command) for name, command in commands) + "\n"


def _walk(command: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, with its full name."""
    for name, child in command.commands.items():
        if hasattr(child, "commands"):
            yield from _walk(child, f"{prefix}{name} ")
        else:
            yield prefix + name, child


def _describe(name: str, command: Any) -> str:
    help_text = command.help.replace("\f", "")
    examples = _EXAMPLE.findall(help_text)
    label = "Example" if len(examples) == 1 else "Examples"
    words = re.sub(r"\n{3,}", "\n\n", _EXAMPLE.sub("", help_text)).strip()
    parameters = [p for p in command.params if p.name not in _HIDDEN]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    usage = " ".join(["tersense", name, *(p.metavar for p in arguments)])
    usage += " [OPTIONS]" if len(parameters) > len(arguments) else ""
    parts = [f"## {name}", words, f"`{usage}`"]
    if parameters:
        rows = "\n".join(_row(p) for p in parameters)
        parts.append(f"| option | meaning | default |\n|---|---|---|\n{rows}")
    if examples:
        lines = "\n".join(examples)
        parts.append(f"{label}:\n\n<!-- not run: made-up files -->\n\n```sh\n{lines}\n```")
    return "\n\n".join(parts)


def _row(parameter: Any) -> str:
    """Return a line of the table: how it is written, what it means, what it is if left out."""
    if parameter.param_type_name == "argument":
        written = parameter.metavar
    else:
        written = ", ".join(sorted(parameter.opts, key=len))
        written += "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    meaning = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    if parameter.required:
        default = "*needed*"
    elif default is None or parameter.is_flag:
        default = ""
    else:
        default = f"`{default}`"
    return f"| `{written}` | {meaning} | {default} |"


if __name__ == "__main__":
    PAGE.write_text(describe_commands(), encoding="utf-8")
