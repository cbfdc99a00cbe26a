"""The floors of the house: imports point downwards only.

Every import statement counts: those inside functions, and those for type checkers. There is no list
of exceptions.
"""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tersense

ROOT = Path(tersense.__file__).parent
# From the ground up; packages on one floor do not import each other.
FLOORS = [
    {"errors"},
    {"io"},
    {"runtime"},
    {"sensing"},
    {"measurements"},
    {"reconstruction"},
    {"evaluation"},
    {"models"},
    {"training"},
    {"experiments", "export", "interop"},
    {"app"},
    {"cli"},
]
LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor}
MOST_LINES, FEWEST_LINES = 400, 40
SHORT = {"errors", "__main__"}  # what every floor needs, and the way in


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in ROOT.rglob("*.py")}


@cache  # one module changes at a time
def imports_of(source, inside_functions=True):
    """Return the modules of this package that a source text imports, anywhere in it."""
    found = set()
    for node in walk(ast.parse(source), inside_functions):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from tersense.models import hub` may name a module or something inside one.
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in inner if name in MODULES] or [node.module]
        else:
            continue
        found.update(name for name in names if name.split(".")[0] == "tersense")
    return frozenset(found)


def walk(node, inside_functions):
    for child in ast.iter_child_nodes(node):
        yield child
        if inside_functions or not isinstance(child, ast.FunctionDef):
            yield from walk(child, inside_functions)


def room_of(module):
    return module.split(".")[1] if "." in module else ""


def faults_of(importer, imported):
    """Say what is wrong with one import; the top of the package offers names, and is everywhere."""
    here, there = room_of(importer), room_of(imported)
    if here in ("", "__main__") or there == "":
        return []
    faults = []
    if LEVEL[there] > LEVEL[here]:
        faults.append(f"{importer} imports {imported}, which lies above it")
    if LEVEL[there] == LEVEL[here] and there != here:
        faults.append(f"{importer} imports {imported}, its sibling")
    private = any(part.startswith("_") for part in imported.split(".")[2:])
    if private and there != here:
        faults.append(f"{importer} imports {imported}, which is private to {there}")
    return faults


def all_faults(sources):
    return [
        fault
        for importer, source in sorted(sources.items())
        for imported in sorted(imports_of(source))
        for fault in faults_of(importer, imported)
    ]


def read_sources():
    return {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}


def test_every_package_has_a_floor():
    rooms = {room_of(name) for name in MODULES} - {"", "__main__"}
    assert rooms == set(LEVEL)


def test_imports_point_downwards_only():
    assert all_faults(read_sources()) == []


@pytest.mark.parametrize("importer", sorted(set(MODULES) - {"tersense", "tersense.__main__"}))
def test_an_import_upwards_is_found_in_any_module(importer):
    """Put one import of every floor above into a module, in each way to write it."""
    sources = read_sources()
    for level in range(LEVEL[room_of(importer)] + 1, len(FLOORS)):
        room = sorted(FLOORS[level])[0]
        for line in (
            f"import tersense.{room}",
            f"from tersense.{room} import anything",
            f"def f():\n    from tersense.{room} import anything",
            f"if TYPE_CHECKING:\n    from tersense.{room} import anything",
            f"class A:\n    async def f(self):\n        import tersense.{room}",
        ):
            changed = sources | {importer: f"{sources[importer]}\n{line}\n"}
            assert len(all_faults(changed)) == 1, line


def test_siblings_and_private_modules_are_guarded():
    assert faults_of("tersense.export.c", "tersense.interop.scipy")
    assert faults_of("tersense.models.imager", "tersense.sensing._simd")
    assert not faults_of("tersense.sensing.additions", "tersense.sensing._simd")


def test_no_module_imports_itself_in_the_end():
    graph = {name: set(imports_of(source, False)) for name, source in read_sources().items()}
    # A package imports what its modules offer; they import each other by their own names.
    for name, imported in graph.items():
        imported -= {other for other in imported if name.startswith(f"{other}.")}
    TopologicalSorter(graph).prepare()


def test_a_cycle_is_found():
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}}).prepare()


def test_modules_have_a_readable_size():
    for name, source in read_sources().items():
        lines = source.count("\n")
        assert lines <= MOST_LINES, f"{name} has {lines} lines"
        if MODULES[name].name != "__init__.py" and name.split(".")[-1] not in SHORT:
            assert lines >= FEWEST_LINES, f"{name} has {lines} lines"


def test_every_package_says_what_it_is_for_and_what_it_offers():
    for name, source in read_sources().items():
        if MODULES[name].name != "__init__.py":
            continue
        tree = ast.parse(source)
        assert len(ast.get_docstring(tree) or "") > 30, name
        targets = [t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
        assert "__all__" in targets, name


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["errors", "io", "io.images", "io.schema", "runtime", "cli"])
def test_the_ground_floors_and_the_top_do_not_reach_torch(module):
    run_python(f"import sys, tersense.{module}; assert 'torch' not in sys.modules")


def test_importing_changes_no_global_state():
    """Import everything that needs no extra; filters, loggers, the umask, signals stay."""
    extras = ["interop", "app", "experiments.plots", "export.onnx", "export.matrix", "export.web"]
    needs_extra = tuple(extras)
    modules = [
        name for name in MODULES
        if not name.removeprefix("tersense.").startswith(needs_extra) and "__main__" not in name
    ]  # fmt: skip
    run_python(f"""
import logging, os, signal, sys, warnings
import torch, numba, numpy, PIL.Image, typer, rich, safetensors, filelock  # these have their own

def state():
    levels = {{name: logger.level for name, logger in logging.Logger.manager.loggerDict.items()
              if isinstance(logger, logging.Logger)}}
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    flags = torch.get_num_threads(), torch.backends.cudnn.benchmark, torch.is_grad_enabled()
    return (list(warnings.filters), levels, handlers, flags, dict(os.environ), sys.excepthook,
            torch.get_rng_state().tolist())

asked = []
os.umask, umask = lambda mask: asked.append(mask) or umask(mask), os.umask
before = state()
for name in {modules!r}:
    __import__(name)
after = state()
assert after[1].items() >= before[1].items()  # new loggers of other libraries may appear
assert after[0] == before[0], "warning filters"
assert after[2:] == before[2:]
assert not asked, "umask"
""")
