"""Run the notebooks and keep what they print and draw: `python tools/notebooks.py [NAME …]`.

Cells run in order, in a fresh interpreter and an empty folder, without Jupyter: what a cell prints,
the value of its last line and the figures of matplotlib become its outputs, as there. Of an image
the smaller of PNG and JPEG is kept. As a hook of MkDocs this file also turns each notebook into a
page of the site; nothing of that is kept.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_IMAGES = {"image/png": "png", "image/jpeg": "jpg"}
Cell = dict[str, Any]


def find_notebooks() -> list[Path]:
    """Return the notebooks, by name."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def execute(path: Path) -> list[list[Cell]]:
    """Run a notebook in a process of its own; return the outputs of each code cell."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "outputs.json"
        command = [sys.executable, __file__, "--cells", str(path.resolve()), str(result)]
        work = Path(folder) / "work"
        work.mkdir()
        environment = os.environ | {"MPLBACKEND": "Agg"}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{path.name}: {done.stderr[-3000:]}")
        outputs: list[list[Cell]] = json.loads(result.read_text(encoding="utf-8"))
        return outputs


def run_cells(sources: list[str]) -> list[list[Cell]]:
    """Run the code cells of a notebook here; return the outputs of each."""
    sys.path[0] = ""  # the folder that a notebook runs in, as in Jupyter
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell(source, number, namespace) for number, source in enumerate(sources, start=1)]


def _run_cell(source: str, number: int, namespace: dict[str, Any]) -> list[Cell]:
    name, tree, value = f"cell {number}", ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[Cell] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        shown = {"data": _show(value), "execution_count": number, "metadata": {}}
        outputs.append(shown | {"output_type": "execute_result"})
    return outputs + [
        {"data": data, "metadata": {}, "output_type": "display_data"} for data in _take_figures()
    ]


def _show(value: Any) -> dict[str, Any]:
    """Return a value as Jupyter would show it: as an image where it is one, and as text."""
    drawn = {
        kind: getattr(value, method)()
        for kind, method in (("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"))
        if hasattr(value, method)
    }
    drawn = {kind: content for kind, content in drawn.items() if content}
    text = [_ADDRESS.sub("", repr(value))]
    if not drawn:
        return {"text/plain": "".join(text).splitlines(keepends=True)}
    kind, content = min(drawn.items(), key=lambda pair: len(pair[1]))
    return {kind: base64.b64encode(content).decode(), "text/plain": text}


def _take_figures() -> list[dict[str, Any]]:
    """Return the open figures of matplotlib, if it was used, and close them."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    shown = []
    for number in pyplot.get_fignums() if pyplot else []:
        content = io.BytesIO()
        pyplot.figure(number).savefig(content, format="png", bbox_inches="tight")
        encoded = base64.b64encode(content.getvalue()).decode()
        shown.append({"image/png": encoded, "text/plain": ["<Figure>"]})
    if pyplot:
        pyplot.close("all")
    return shown


def read(path: Path) -> Cell:
    """Read a notebook."""
    notebook: Cell = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def code_cells(notebook: Cell) -> list[Cell]:
    """Return the cells that run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def update(path: Path) -> None:
    """Run a notebook and write it with its outputs, laid out as Jupyter does."""
    notebook = read(path)
    outputs = execute(path)
    for number, (cell, shown) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell["execution_count"], cell["outputs"] = number, shown
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def render(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown for the site, and its images by name."""
    parts: list[str] = []
    images: dict[str, bytes] = {}
    for cell in read(path)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            inside = source.replace("](../docs/", "](../").replace(".ipynb)", ".md)")
            parts.append(re.sub(r"\[([^\]]+)\]\(\.\./(?:src|examples)/[^)]*\)", r"\1", inside))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            drawn = next((kind for kind in _IMAGES if kind in data), None)
            if drawn:
                name = f"{path.stem}-{len(images) + 1}.{_IMAGES[drawn]}"
                images[name] = base64.b64decode(data[drawn])
                parts.append(f"![what this cell draws]({name})")
            else:
                text = "".join(output.get("text", data.get("text/plain", []))).rstrip()
                parts.append(f"```\n{text}\n```")
    return "\n\n".join(parts) + "\n", images


def on_files(files: Any, config: Any) -> Any:
    """Be a hook of MkDocs: add a page for each notebook, and its images."""
    from mkdocs.structure.files import File

    for path in find_notebooks():
        page, images = render(path)
        for name, content in ((f"{path.stem}.md", page), *images.items()):
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def main(arguments: list[str]) -> None:
    """Run all notebooks, or those that are named."""
    if arguments[:1] == ["--cells"]:
        sources = ["".join(cell["source"]) for cell in code_cells(read(Path(arguments[1])))]
        Path(arguments[2]).write_text(json.dumps(run_cells(sources)), encoding="utf-8")
        return
    for path in find_notebooks():
        if not arguments or path.stem in arguments:
            update(path)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
