"""Dataclasses as schemas: build one from a mapping, checking names, types and bounds.

The bounds stand beside the fields, as `Annotated[float, above(0), at_most(1)]` and
`Literal["adam", "muon"]`. The same check serves configurations (TOML), headers of files and
manifests (JSON), and `describe_fields` turns them into documentation.
"""

import dataclasses
import difflib
import json
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tersense.errors import TersenseError

T = typing.TypeVar("T")

_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text",
               dict: "a table"}  # fmt: skip
_ARGUMENT = re.compile(r"^ {4,8}(\w+): (.*(?:\n {9,}\S.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Bound:
    """One limit of a number: `at_least(1)`, `above(0)`, `at_most(64)`, `below(2**32)`."""

    relation: str
    limit: float

    def admits(self, value: float) -> bool:
        """Tell whether a value keeps to the limit; NaN never does."""
        return {
            "at least": value >= self.limit,
            "above": value > self.limit,
            "at most": value <= self.limit,
            "below": value < self.limit,
        }[self.relation]

    def __str__(self) -> str:
        number = f"{self.limit:,}" if isinstance(self.limit, int) else f"{self.limit:g}"
        return f"{self.relation} {number}"


def at_least(limit: float) -> Bound:
    """Admit values from the limit on."""
    return Bound("at least", limit)


def above(limit: float) -> Bound:
    """Admit values above the limit."""
    return Bound("above", limit)


def at_most(limit: float) -> Bound:
    """Admit values up to the limit."""
    return Bound("at most", limit)


def below(limit: float) -> Bound:
    """Admit values below the limit."""
    return Bound("below", limit)


def build(
    name: str, cls: type[T], values: Mapping[str, Any], keys: Mapping[str, str] | None = None
) -> T:
    """Build a dataclass from a mapping; refuse unknown keys, wrong types and values out of bounds.

    Args:
        name: Of the section, for messages: `train` in `train.lr must be above 0, got -1.0`.
        cls: The dataclass.
        values: By field; fields that are not named keep their defaults.
        keys: What a file calls a field, where it is another name.
    """
    if not isinstance(values, Mapping):
        raise TersenseError(f"[{name}] must be a table of settings by name, got {values!r}")
    hints = typing.get_type_hints(cls, include_extras=True)

    def called(field: str) -> str:
        return (keys or {}).get(field, field)

    refuse_unknown(f"setting in [{name}]", values, list(hints))
    missing = [field.name for field in dataclasses.fields(cls)  # type: ignore[arg-type]
               if field.name not in values and _is_required(field)]  # fmt: skip
    if missing:
        raise TersenseError(f"[{name}] must have {', '.join(called(key) for key in missing)}")
    checked = {
        key: _check(f"{name}.{called(key)}", value, hints[key]) for key, value in values.items()
    }
    return cls(**checked)


def validate(name: str, instance: Any) -> None:
    """Check the fields of a dataclass that was built directly, as `build` does."""
    hints = typing.get_type_hints(type(instance), include_extras=True)
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if value is field.default:  # such as (), which no file may say
            continue
        if not dataclasses.is_dataclass(hints[field.name]):  # which has checked itself
            _check(f"{name}.{field.name}", value, hints[field.name])


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    nothing = dataclasses.MISSING
    return field.default is nothing and field.default_factory is nothing


def refuse_unknown(what: str, given: Iterable[str], known: list[str]) -> None:
    """Refuse a name that is not known, with the nearest one that is."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
            raise TersenseError(f"unknown {what}: {key}; {hint}")


def require(holds: bool, key: str, value: Any, allowed: str) -> None:
    """Refuse a value, saying what it must be."""
    if not holds:
        raise TersenseError(f"{key} must be {allowed}, got {value!r}")


def _check(key: str, value: Any, hint: Any) -> Any:
    """Return the value if it has the right type and keeps to its bounds."""
    inner, bounds = _split(hint)
    if typing.get_origin(inner) is typing.Literal:
        choices = typing.get_args(inner)
        require(value in choices, key, value, " or ".join(map(str, choices)))
        return value
    if typing.get_origin(inner) is tuple:
        require(isinstance(value, (list, tuple)) and len(value) > 0, key, value, "a list")
        items = tuple(_check(key, item, typing.get_args(inner)[0]) for item in value)
        return items
    if inner is float and type(value) in (int, float):
        require(abs(value) <= sys.float_info.max, key, value, "finite")  # nor NaN
        value = float(value)
    wanted = typing.get_origin(inner) or inner
    require(type(value) is wanted, key, value, _TYPE_NAMES.get(wanted, str(wanted)))
    require(all(bound.admits(value) for bound in bounds), key, value, _join(bounds))
    return value


def _split(hint: Any) -> tuple[Any, tuple[Bound, ...]]:
    """Return the type that is meant and its bounds."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *extras = typing.get_args(hint)
        return inner, tuple(extra for extra in extras if isinstance(extra, Bound))
    return hint, ()


def _join(bounds: Iterable[Bound]) -> str:
    return " and ".join(map(str, bounds))


def describe_fields(cls: type[Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type with bounds, default and meaning of every field of a dataclass.

    The meaning is that of the class docstring's `Args` section.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    texts = dict(_ARGUMENT.findall(cls.__doc__ or ""))
    for field in dataclasses.fields(cls):
        inner, bounds = _split(hints[field.name])
        kind = _describe_type(inner, bounds)
        made = field.default_factory is not dataclasses.MISSING
        default = "" if _is_required(field) or made else toml_value(field.default)
        yield field.name, kind, default, " ".join(texts.get(field.name, "").split())


def _describe_type(inner: Any, bounds: tuple[Bound, ...]) -> str:
    if typing.get_origin(inner) is typing.Literal:
        return " | ".join(f'"{choice}"' for choice in typing.get_args(inner))
    if typing.get_origin(inner) is tuple:
        item, item_bounds = _split(typing.get_args(inner)[0])
        return f"list of {_describe_type(item, item_bounds)}"
    name = {int: "integer", float: "number", bool: "boolean", str: "text"}.get(inner, "table")
    return f"{name}, {_join(bounds)}" if bounds else name


def toml_table(name: str, table: Mapping[str, Any]) -> str:
    """Return one section as TOML."""
    lines = [f"{key} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def toml_value(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
