"""How the package hangs together: no module needs, in the end, itself."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tersense

ROOT = Path(tersense.__file__).parent
# `tersense/__init__.py` looks up its names only when somebody asks for them (PEP 562), and packages
# that register their parts import them by name: neither is an import statement, and neither runs
# while a module is being imported.
LATE = {
    # Sharing a model is a method of the imager, and a file of its own: `imager.push_to_hub` calls
    # `hub`, which writes model files, which hold imagers.
    ("tersense.models.imager", "tersense.models.hub"),
}


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in ROOT.rglob("*.py")}


def is_for_types_only(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node, inside_functions):
    """Yield every statement below a node, except those for types only."""
    for child in ast.iter_child_nodes(node):
        if not is_for_types_only(child):
            yield child
            if inside_functions or not isinstance(child, ast.FunctionDef):
                yield from statements(child, inside_functions)


def imports_of(source, inside_functions=True):
    """Return the modules of this package that a source text imports, anywhere in it."""
    found = set()
    for node in statements(ast.parse(source), inside_functions):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from tersense import hub` may name a module or something inside one.
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [*(name for name in inner if name in MODULES)] or [node.module]
        else:
            continue
        found.update(name for name in names if name in MODULES)
    return found


def find_cycle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def read_graph(inside_functions):
    return {name: imports_of(path.read_text(), inside_functions) for name, path in MODULES.items()}


def test_no_module_imports_itself_in_the_end():
    assert find_cycle(read_graph(inside_functions=False)) is None


def test_nor_does_it_when_its_functions_run():
    graph = read_graph(inside_functions=True)
    assert len(graph) > 70
    assert find_cycle(graph), "no exception is needed any more"
    for importer, imported in LATE:
        graph[importer].remove(imported)
    assert find_cycle(graph) is None


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tersense.sensing.operator import Geometry", {"tersense.sensing.operator"}),
        ("def f():\n    if x:\n        from tersense import hub", {"tersense.models.hub"}),
        ("import tersense.io.files, json", {"tersense.io.files"}),
        ("from tersense import __version__", {"tersense"}),
        ("if TYPE_CHECKING:\n    from tersense.models.imager import Imager", set()),
    ],
)
def test_imports_are_found_wherever_they_are(source, found):
    assert imports_of(source) == found


def test_a_cycle_is_found():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert find_cycle({"a": {"b", "c"}, "b": {"c"}}) is None
