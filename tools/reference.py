"""Write docs/python.md and docs/settings.md from the source: `python tools/reference.py`.

The Python page is made from docstrings and signatures as they stand in the source text; nothing is
imported for it, so packages that only an extra brings need not be there. The settings come from the
dataclasses that check them.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PYTHON, SETTINGS = ROOT / "docs" / "python.md", ROOT / "docs" / "settings.md"
# Headings, and what stands below them: names in modules, then all that packages offer besides.
GROUPS = {
    "A camera": (
        "tersense.models.zoo.load",
        "tersense.models.imager.Imager",
        "tersense.models.camera.Camera",
        "tersense.models.capture.Capture",
        "tersense.models.capture.Request",
        "tersense.models.adaptive.AdaptiveCamera",
        "tersense.measurements.measurements.Measurements",
        "tersense.measurements.tsm.Header",
        "tersense.measurements.readout.Readout",
        "tersense.models.zoo.read",
        "tersense.models.bits.BitsCamera",
        "tersense.measurements.tables.read_measured",
        "tersense.measurements",
        "tersense.models.files.write_model",
        "tersense.errors.TersenseError",
    ),
    "Patterns and sensing": (
        "tersense.sensing.patterns.Patterns",
        "tersense.sensing.patterns.random_patterns",
        "tersense.sensing.patterns.read_patterns",
        "tersense.sensing.ternary.TernarySensor",
        "tersense.sensing.ternary.ternarize",
        "tersense.sensing.ternary.top_k_select",
        "tersense.sensing.ternary.scale_factors",
        "tersense.sensing.geometry.Geometry",
        "tersense.sensing.operator.SensingOperator",
        "tersense.sensing",
    ),
    "Reconstructors": (
        "tersense.reconstruction.base.Reconstructor",
        "tersense.reconstruction.base.register",
        "tersense.reconstruction",
    ),
    "Images and metrics": (
        "tersense.io.images.read_image",
        "tersense.io.images.read_gray",
        "tersense.io.images.write_image",
        "tersense.io.images.find_images",
        "tersense.io.figures.draw_error",
        "tersense.evaluation.metrics.psnr",
        "tersense.evaluation.metrics.ssim",
        "tersense.evaluation",
    ),
    "Training": (
        "tersense.training.run.train",
        "tersense.training.config.read_config",
        "tersense.training",
        "tersense.training.losses.squared",
        "tersense.training.losses.charbonnier",
        "tersense.training.losses.log_charbonnier",
        "tersense.training.config.SensingConfig",
        "tersense.training.config.DataConfig",
        "tersense.training.config.TrainConfig",
    ),
    "Hardware": ("tersense.export",),
    "Other libraries": (
        "tersense.models",
        "tersense.interop.deepinv.TernaryPhysics",
        "tersense.interop.deepinv.TernaryReconstructor",
        "tersense.interop.deepinv.ReadoutModel",
        "tersense.interop.deepinv.ReadoutNoise",
        "tersense.interop.scipy.TernaryOperator",
    ),
    "Experiments": ("tersense.experiments",),
    "Files, devices and progress": ("tersense.io", "tersense.runtime", "tersense.cli"),
}
_NOTES = {
    "Training": "Every setting, with its bounds and its default: [settings](settings.md).",
    "Reconstructors": "How to write one: [add a reconstructor](reconstructor.md).",
    "Hardware": "What each kind holds: [hardware](hardware.md).",
}
_PYTHON_HEAD = """\
# Python

`import tersense` is all that most programs need. It costs next to nothing: torch is imported when
the first name is used.

```python
import tersense
from tersense.io.images import PHOTOGRAPH, read_image, write_image

imager = tersense.load("paper-r25")
y = imager.sense(read_image(PHOTOGRAPH))
y.save("cat.tsm")

write_image("cat.png", imager.reconstruct(tersense.Measurements.load("cat.tsm")))
```

Wrong files and settings raise `TersenseError`; wrong arguments (an image of floats, say) raise
`TypeError` or `ValueError`. Each message says what was given, what is allowed and what to do:

```python
import numpy as np
import tersense

imager = tersense.load("paper-r25")
try:
    imager.sense(np.zeros((8, 8)))
except TypeError as error:
    assert "uint8" in str(error)
```

*What follows is written by `make docs` from the docstrings.*
"""
_SETTINGS_HEAD = """\
# Settings

*Written by `make docs` from the types, bounds and defaults that the program checks.*

A training run is described by a TOML file with the sections below; what it leaves out has its
default. The [tutorial](tutorial.md) writes one, `configs/` holds those of the models, and
`tersense train FILE --set train.epochs=60` changes one setting of a file. A setting that does not
exist or has an impossible value is refused before anything starts. In Python,
[`read_config`](python.md#read_config) reads such a file.

```toml
[sensing]
window = 32
stride = 32
rate = 0.25

[reconstructor]
name = "mlp"
hidden = [2048, 2048]

[data]
train = "photos"

[train]
out = "runs/mine"
```
"""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Examples?):\n((?:(?: .*)?(?:\n|\Z))*)", re.M)
_ITEM = re.compile(r"^(\*{0,2}\w+): (.*(?:\n .*)*)", re.MULTILINE)
_LABELS = {"Args": "Arguments", "Raises": "Raises"}
_WIDTH = 88


@dataclass(frozen=True)
class Entry:
    """A class or function: its module, the name it is imported by, and its syntax tree."""

    module: str
    public: str
    node: ast.ClassDef | ast.FunctionDef

    @property
    def name(self) -> str:
        """What it is called."""
        return self.node.name


def describe_python() -> str:
    """Return the page of classes and functions."""
    parts, seen = [_PYTHON_HEAD.rstrip()], set()
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}")
        if heading in _NOTES:
            parts.append(_NOTES[heading])
        for entry in (entry for name in names for entry in _find(name)):
            if (entry.module, entry.name) not in seen:
                seen.add((entry.module, entry.name))
                parts += _describe(entry)
    return "\n\n".join(parts) + "\n"


def _path(module: str) -> Path:
    """Return the file of a module, or of a package's `__init__`."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _tree(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text(encoding="utf-8"))


def _offered(package: str) -> dict[str, str]:
    """Return the names in a package's `__all__` with the modules that they come from."""
    tree = _tree(package)
    homes = {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return {name: homes[name] for name in names if name in homes}
    return {}


def _find(name: str) -> Iterator[Entry]:
    """Yield what a dotted name means: one class or function, or all that a package offers."""
    if SOURCE.joinpath(*name.split(".")).is_dir():
        for offered, module in _offered(name).items():
            yield from _find(f"{module}.{offered}")
        return
    module, _, short = name.rpartition(".")
    package = ".".join(module.split(".")[:2])
    for home in ("tersense", package, module):
        if home == module or _offered(home).get(short) == module:
            break
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == short:
            yield Entry(module, f"{home}.{short}", node)


def _describe(entry: Entry) -> Iterator[str]:
    """Yield the paragraphs of one class or function."""
    path = _path(entry.module).relative_to(SOURCE / "tersense")
    yield f"### {entry.name}"
    yield f"`{entry.public}`, in [`{path}`](../src/tersense/{path})"
    optional = "deepinv" if entry.module == "tersense.interop.deepinv" else ""
    if isinstance(entry.node, ast.FunctionDef):
        yield _fence(_signature(entry.node))
        yield from _render(ast.get_docstring(entry.node) or "", optional)
        return
    yield _fence(_class_signature(entry.node))
    yield from _render(ast.get_docstring(entry.node) or "", optional)
    methods = [
        node for node in entry.node.body
        if isinstance(node, ast.FunctionDef)
        and (not node.name.startswith("_") or node.name == "__call__")
        and ast.get_docstring(node)
    ]  # fmt: skip
    properties = [node for node in methods if _decorators(node) & {"property", "cached_property"}]
    if properties:
        yield "**Attributes**"
        yield "\n".join(map(_attribute, properties))
    for node in methods:
        if node not in properties:
            yield f"#### {entry.name}.{node.name}".replace("__", r"\_\_")  # which would be bold
            yield _fence(_signature(node))
            yield from _render(ast.get_docstring(node) or "", optional)


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator).split("(")[0] for decorator in node.decorator_list}


def _attribute(node: ast.FunctionDef) -> str:
    text = " ".join((ast.get_docstring(node) or "").split())
    text = re.sub(r"^Return (.)", lambda found: found[1].upper(), text)
    return f"- `{node.name}` (`{_code(node.returns)}`): {text}"


def _fence(code: str) -> str:
    return f"<!-- not run: a signature -->\n\n```python\n{code}\n```"


def _code(node: ast.AST | None) -> str:
    """Return source text as this project writes it, types without quotes and bounds."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value  # a type that is only known later
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        assert isinstance(node.slice, ast.Tuple)
        return _code(node.slice.elts[0])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        inner = ", ".join(_code(item) for item in node.slice.elts)
        quoted = ast.unparse(node.value) == "Literal"
        return ast.unparse(node).replace("'", '"') if quoted else f"{_code(node.value)}[{inner}]"
    return ast.unparse(node).replace("'", '"')


def _default(node: ast.expr) -> str:
    """Return a default; those that are made anew for each object are left open."""
    text = ast.unparse(node)
    return "..." if text.startswith("field(") else text.replace("'", '"')


def _signature(node: ast.FunctionDef) -> str:
    """Return the head of a function, on one line or with one argument per line."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    words = [_argument(*pair) for pair in zip(plain, defaults, strict=True)]
    if given.vararg:
        words.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        words.append("*")
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    words += [_argument(*pair) for pair in pairs]
    if given.kwarg:
        words.append("**" + _argument(given.kwarg, None))
    shown = sorted(_decorators(node) & {"classmethod", "staticmethod"})
    head = "".join(f"@{name}\n" for name in shown) + f"def {node.name}("
    tail = f") -> {_code(node.returns)}: ..." if node.returns else "): ..."
    line = head + ", ".join(words) + tail
    if len(line.splitlines()[-1]) <= _WIDTH:
        return line
    return head + "".join(f"\n    {word}," for word in words) + "\n" + tail


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {_code(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return f"{text} = {_default(default)}" if argument.annotation else f"{text}={_default(default)}"


def _class_signature(node: ast.ClassDef) -> str:
    """Return the head of a class with its fields or its `__init__`."""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = f"class {node.name}({bases}):" if bases else f"class {node.name}:"
    lines = []
    if any(ast.unparse(d).split("(")[0] == "dataclass" for d in node.decorator_list):
        head = f"@dataclass\n{head}"
        for field in node.body:
            if isinstance(field, ast.AnnAssign):
                value = f" = {_default(field.value)}" if field.value else ""
                lines.append(f"{ast.unparse(field.target)}: {_code(field.annotation)}{value}")
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            lines += _signature(method).splitlines()
    return "\n    ".join([head, *lines]) if lines else f"{head} ..."


def _render(docstring: str, needs: str) -> Iterator[str]:
    """Yield a docstring in Google's style as paragraphs of Markdown."""
    position = 0
    for section in _SECTION.finditer(docstring):
        if text := docstring[position : section.start()].strip():
            yield text
        position = section.end()
        title, body = section[1], inspect.cleandoc("\n" + section[2])
        if title in _LABELS:
            items = [f"- `{name}`: {meaning}" for name, meaning in _items(body).items()]
            yield "\n".join([f"**{_LABELS[title]}**\n", *items])
        elif title.startswith("Example"):
            code = re.sub(r" +# doctest: .*", "", body)
            marker = f"<!-- not run: needs {needs} -->\n\n" if needs else ""
            yield f"{marker}```pycon\n{code}\n```"
        else:
            yield f"**{title}** {' '.join(body.split())}"
    if text := docstring[position:].strip():
        yield text


def _items(body: str) -> dict[str, str]:
    """Return the names in a section of arguments, with what is said of them."""
    found = _ITEM.findall(inspect.cleandoc("\n" + body))
    return {name: " ".join(text.split()) for name, text in found}


def describe_settings() -> str:
    """Return the page of settings."""
    from tersense.reconstruction.base import _BUILT_IN, find_reconstructor
    from tersense.training.config import (
        AllocationConfig,
        DataConfig,
        ReadoutConfig,
        SensingConfig,
        TeacherConfig,
        TrainConfig,
    )

    parts = [_SETTINGS_HEAD.rstrip()]
    parts += ["## sensing", *_section(SensingConfig), "## reconstructor"]
    parts.append(
        '`name` says which one (default `"mlp"`); the other settings are its own. `bp`, `linear`, '
        "`spgl1` and `tv` have no weights to train; "
        "[`Imager.untrained`](python.md#imageruntrained) takes them."
    )
    for name in sorted(_BUILT_IN):
        cls = find_reconstructor(name)
        parts += [f"### {name}", _summary(cls), *_table(cls.Options)]
    parts.append("Reconstructors of your own bring their own: [how](reconstructor.md).")
    parts += ["## readout", *_section(ReadoutConfig), "## data", *_section(DataConfig)]
    parts += ["## train", *_section(TrainConfig), "## allocation", *_section(AllocationConfig)]
    parts += ["## teacher", *_section(TeacherConfig)]
    return "\n\n".join(parts) + "\n"


def _section(cls: type[Any]) -> Iterator[str]:
    yield _summary(cls)
    yield from _table(cls)


def _summary(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n\n")[0]


def _table(cls: type[Any]) -> Iterator[str]:
    from tersense.io.schema import describe_fields

    sections = {found[1]: found[2] for found in _SECTION.finditer(inspect.getdoc(cls) or "")}
    meanings = _items(sections.get("Args", ""))
    rows = [
        f"| `{name}` | {_choices(kind)} | `{default}` | {meanings[name]} |"
        for name, kind, default, _ in describe_fields(cls)
    ]
    if rows:
        yield "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows])
    else:
        yield "No settings."


def _choices(kind: str) -> str:
    """Write choices without the bar, which would end a cell of the table."""
    return " or ".join(f"`{choice}`" for choice in kind.split(" | ")) if "|" in kind else kind


if __name__ == "__main__":
    PYTHON.write_text(describe_python(), encoding="utf-8")
    SETTINGS.write_text(describe_settings(), encoding="utf-8")
