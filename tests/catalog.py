"""Walk the command line: every command, every parameter, every kind of bad value for it.

Nothing here names a command or an option that has nothing special about it: a new one is found by
its type, its metavar and whether its name is that of an output.
"""

import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo, DefaultPlaceholder, OptionInfo

from tersense.cli.program import app

OUTPUTS = {"out", "json", "plot"}

# Good values, by metavar; each is a file or folder that `lay_out` of desk.py makes.
GOOD = {
    "IMAGE": "photo.png",
    "REFERENCE": "photo.png",
    "IMAGE|Y.tsm": "y.tsm",
    "MAP.png": "new.png",
    "IMAGE…": "photo.png",
    "Y.tsm…": "y.tsm",
    "CONFIG.toml": "config.toml",
    "RUN…": "metrics.jsonl",
    "RESULT.json…": "result.json",
    "MODEL": "small.safetensors",
    "FILE.json": "manifest.json",
    "TABLE": "rates",
    "KEY=VALUE": "train.epochs=1",
    "Y.tsm": "new.tsm",
    "STEPS.tsm": "steps.tsm",
    "OUT.png": "new.png",
    "FILE.png": "new.png",
    "FILE": "new.png",
    "COUNTS.npy": "counts.npy",
    "WEIGHTS.png": "photo.png",
    "VALUES.csv": "values.csv",
    "[ROUND]": "round",
}
FILE_OR_FOLDER = {"Y.tsm", "OUT.png"}  # outputs that may be either
GOOD_BY_NAME = {"json": "new.json", "plot": "new.png"}

# What else must be said before a parameter means anything.
CONTEXT = {
    ("sense", "importance"): {"rate": "0.25"},
    ("reconstruct", "manifest"): {"measured": "table.csv", "size": "20x12"},
    ("plan", "source"): {"size": None, "values": "values.csv", "rate": None},
    ("plan", "values"): {"source": "round", "size": None, "rate": None},
    ("reconstruct", "size"): {"measured": "table.csv", "manifest": "manifest.json"},
}

# What a command needs besides what is required, and where the usual model cannot serve.
NEEDED = {"plan": {"size": "20x12", "rate": "0.2", "model": "adaptive.safetensors"}}

# Options with a default that most uses of their command give all the same.
ASKED_FOR = {"model", "models", "quick", "train_folder", "test_folders"}

# A folder of inputs goes with a folder for results.
FOR_FOLDERS = {"sense": {"out": "new"}, "reconstruct": {"out": "new"}}

# Values that look bad and are not: 0 switches something off, some numbers may be any size, and
# some names nobody knows.
FINE = {
    "zero": {"noise", "photons", "refine", "seed", "seconds"},
    "huge": {"seed", "seconds", "count", "most", "max_pixels", "epochs", "columns"},
    "unknown": {"names"},
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a command.

    Args:
        name: In the function.
        flag: As in `--rate`; empty for an argument.
        metavar: What help shows for its value.
        kind: Path, str, int, float, bool or tuple.
        required: Whether it has no default.
    """

    name: str
    flag: str
    metavar: str
    kind: type
    required: bool

    @property
    def written(self) -> bool:
        return self.name in OUTPUTS

    @property
    def good(self) -> str:
        if self.metavar == "DIR":
            return "new" if self.written else "pictures"
        return GOOD_BY_NAME.get(self.name, GOOD.get(self.metavar, ""))

    def words(self, value: str) -> list[str]:
        """Return the words of a command line that give the value."""
        return [self.flag, *value.split("|")] if self.flag else [value]


@dataclass(frozen=True)
class Command:
    """One command: its words, as in `export verilog`, and its parameters."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def an_input(self) -> str:
        """A file that the command reads: of its own kind, or at least a model."""
        read = (p.good for p in self.parameters if p.kind is Path and not p.written and p.good)
        return next(read, "small.safetensors").replace("pictures", "pictures/a.png")

    def line(self, **values: str | None) -> list[str]:
        """Return a command line: good values for what is required, and those that are given."""
        words = self.name.split()
        for parameter in self.parameters:
            needed = parameter.required or parameter.name in ASKED_FOR
            usual = NEEDED.get(self.name, {}).get(
                parameter.name, parameter.good if needed else None
            )
            value = values.get(parameter.name, usual)
            if parameter.kind is bool and parameter.name == "quick":
                words.append(parameter.flag)
            elif value is not None:
                words += parameter.words(value)
        return words


def walk(typer_app: Any = app, prefix: str = "") -> Iterator[Command]:
    """Yield every command of the program."""
    for entry in typer_app.registered_commands:
        name = entry.name or entry.callback.__name__.replace("_", "-")
        yield Command(f"{prefix}{name}", tuple(_parameters(entry.callback)))
    for group in typer_app.registered_groups:
        assert not isinstance(group.name, DefaultPlaceholder)
        yield from walk(group.typer_instance, f"{prefix}{group.name} ")


def _parameters(function: Any) -> Iterator[Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *about = typing.get_args(hints[name])
        info = next(i for i in about if isinstance(i, (ArgumentInfo, OptionInfo)))
        # In an annotation, typer keeps the first name of an option where a default would be.
        declared = (info.default, *(info.param_decls or ()))
        flag = next((text for text in declared if str(text).startswith("--")), "")
        required = parameter.default is inspect.Parameter.empty
        yield Parameter(name, flag, info.metavar or "", _plain(kind), required)


def _plain(kind: Any) -> type:
    """Return the type of one value: Path for list[Path] | None."""
    if isinstance(kind, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    origin = typing.get_origin(kind)
    return tuple if origin is tuple else typing.get_args(kind)[0] if origin is list else kind


def bad_values(command: Command, parameter: Parameter) -> dict[str, str]:
    """Return what is wrong → a value, for all kinds of wrong that this parameter can meet."""
    if parameter.kind is Path and parameter.written:
        return _bad_targets(command, parameter)
    if parameter.kind is Path or parameter.metavar == "MODEL":
        return _bad_sources(parameter)
    if parameter.kind in (int, float):
        return _bad_numbers(parameter)
    if parameter.kind is tuple:
        return {"too few": "1|2", "words": "a|b|c|d", "negative": "-1|-1|2|2", "zero": "0|0|0|0",
                "huge": f"0|0|{10**30}|{10**30}", "not whole": "0|0|1.5|2"}  # fmt: skip
    return _without_fine(parameter, {
        "unknown": "no-such-thing", "empty": "", "control characters": "a\nb\x1b[31m",
        "long": "x" * 5000, "a number": "-1",
    })  # fmt: skip


def _bad_numbers(parameter: Parameter) -> dict[str, str]:
    values = {"a word": "many", "empty": "", "negative": "-1", "zero": "0", "huge": f"{10**30}",
              "not a number": "nan", "several": "1,2"}  # fmt: skip
    if parameter.kind is float:
        values |= {"infinite": "inf", "minus infinite": "-inf", "overflowing": "1e999"}
    else:
        values |= {"not whole": "1.5", "longer than Python converts": "9" * 5000}
    return _without_fine(parameter, values)


def _without_fine(parameter: Parameter, values: dict[str, str]) -> dict[str, str]:
    return {what: value for what, value in values.items()
            if parameter.name not in FINE.get(what, ())}  # fmt: skip


def _bad_sources(parameter: Parameter) -> dict[str, str]:
    suffix = Path(parameter.good).suffix
    files = {
        "missing": "none", "empty file": "empty", "cut in half": "cut", "text": "text",
        "noise": "noise", "link to nothing": "dangling", "link to itself": "loop",
        "a pipe": "pipe",
    }  # fmt: skip
    if suffix == ".toml":
        del files["empty file"]  # a configuration that says nothing: the defaults
    if suffix == ".jsonl":
        del files["cut in half"]  # the log of a training that was killed
    values = {what: f"bad/{stem}{suffix}" for what, stem in files.items()}
    return values | {
        "empty folder": "bad/folder", "below a file": f"photo.png/x{suffix}", "empty": "",
        "name too long": "x" * 300 + suffix, "endless": "/dev/zero", "no name": f"a\0b{suffix}",
    }  # fmt: skip


def _bad_targets(command: Command, parameter: Parameter) -> dict[str, str]:
    suffix = Path(parameter.good).suffix
    values = {"below a file": f"photo.png/x{suffix}", "name too long": "x" * 300 + suffix,
              "a pipe": f"bad/pipe{suffix}", "no name": f"a\0b{suffix}", "empty": "",
              "in the system": f"/proc/x{suffix}"}  # fmt: skip
    if not suffix:
        return values | {"a file": "photo.png"}
    values |= {"in a missing folder": f"none/x{suffix}", "over an input": command.an_input,
               "other ending": "new.xyz"}  # fmt: skip
    if parameter.metavar not in FILE_OR_FOLDER:
        values["a folder"] = f"bad/folder{suffix}"
    return values
