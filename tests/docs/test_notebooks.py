"""The notebooks: each runs in a fresh process and still says and draws what it shows."""

import base64
import io
import json
import re

import numpy as np
import pytest
import yaml
from PIL import Image

from docs.pages import ROOT
from docs.test_reference import load_tool

tool = load_tool("notebooks")
NOTEBOOKS = tool.find_notebooks()
NUMBER = re.compile(r"\d+(?:\.\d+)?")
MOST_BYTES = 150_000


def texts_of(outputs):
    return ["".join(o.get("text", o.get("data", {}).get("text/plain", []))) for o in outputs]


def images_of(outputs):
    drawn = [o["data"][kind] for o in outputs for kind in tool._IMAGES if kind in o.get("data", {})]
    opened = [Image.open(io.BytesIO(base64.b64decode(content))) for content in drawn]
    return [np.asarray(image.convert("RGB"), np.float64) for image in opened]


def assert_alike(shown, fresh):
    """Words are equal, numbers nearly: processors round differently, and training adds that up."""
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", fresh)
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (shown, fresh)]
    np.testing.assert_allclose(*numbers, rtol=0.05, err_msg=fresh)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_says_and_draws_what_it_shows(path):
    cells = tool.code_cells(tool.read(path))
    for cell, fresh in zip(cells, tool.execute(path), strict=True):
        shown = cell["outputs"]
        for before, after in zip(texts_of(shown), texts_of(fresh), strict=True):
            assert_alike(before, after)
        for before, after in zip(images_of(shown), images_of(fresh), strict=True):
            assert before.shape == after.shape
            assert np.abs(before - after).mean() < 6  # gray levels


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_can_open_it_and_it_is_short(path):
    notebook = tool.read(path)
    cells, code = notebook["cells"], tool.code_cells(notebook)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(re.fullmatch(r"[\w-]{1,64}", cell["id"]) for cell in cells)
    assert cells[0]["source"][0].startswith("# ")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert 5 <= len(code) <= 10
    assert any(images_of(cell["outputs"]) for cell in code)
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_links_lead_somewhere(path):
    text = "".join("".join(cell["source"]) for cell in tool.read(path)["cells"])
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_menu_and_the_readme_name_every_notebook():
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    (listed,) = (entry["Notebooks"] for entry in menu if "Notebooks" in entry)
    named = [page.removeprefix("notebooks/").removesuffix(".md") for page in listed]
    assert sorted(named) == [path.stem for path in NOTEBOOKS]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"(notebooks/{name}.ipynb)" in readme for name in named)


def notebook_of(*sources):
    cells = [{"cell_type": "code", "source": [source], "outputs": []} for source in sources]
    return json.dumps({"cells": cells})


def test_a_cell_shows_what_jupyter_shows(tmp_path):
    path = tmp_path / "small.ipynb"
    path.write_text(
        notebook_of(
            "x = 1\nprint('one')\nx + 1",
            "x = 2",
            "x",
            "None",
            "from PIL import Image\nImage.new('L', (7, 5))",
            "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')",
        )
    )
    printed, nothing, value, none, image, figure = tool.execute(path)
    assert texts_of(printed) == ["one\n", "2"]
    assert (nothing, none) == ([], [])
    assert texts_of(value) == ["2"]
    assert images_of(image)[0].shape == (5, 7, 3)
    assert [output["output_type"] for output in figure] == ["stream", "display_data"]
    assert images_of(figure)[0].min() < 100


def test_a_cell_that_fails_is_named(tmp_path):
    path = tmp_path / "bad.ipynb"
    path.write_text(notebook_of("x = 1", "1 / 0"))
    with pytest.raises(RuntimeError, match=r"bad\.ipynb(.|\n)*cell 2(.|\n)*ZeroDivisionError"):
        tool.execute(path)
