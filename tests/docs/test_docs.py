"""The documentation, run: every code block of every page, the examples, the built site."""

import os
import re
import subprocess
import sys

import pytest

import tersense
from docs.pages import DOCS, PAGES, ROOT, read_blocks
from tersense.io.images import PHOTOGRAPH
from tersense.models.info import describe
from tersense.models.zoo import names
from test_structure import LEVEL, MODULES, imports_of, room_of


def run_fresh(command, folder):
    """Run a program as a user does, in an interpreter that has imported nothing yet."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, env=os.environ | {"PYTHONPATH": paths},
        text=True, capture_output=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_runs(page, tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    run_fresh([ROOT / "tests/docs/pages.py", page], tmp_path)


def test_no_block_escapes():
    """Count fences by lines: each opens or closes a block that was found."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = len(re.findall(r"^\s*```", text, re.MULTILINE))
        assert fences == 2 * len(list(read_blocks(page))), page.name
        markers = len(re.findall(r"<!-- (?:run with|not run)", text))
        assert markers == sum(block.how != "run" for block in read_blocks(page)), page.name


# The training loop has a test of its own, tests/training/test_own_loop.py.
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - {ROOT / "examples/own_loop.py"})


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda s: s.stem)
def test_examples_run(script, tmp_path):
    reduced = {
        "train_small_camera": ["--epochs", "1", "--samples", "2000"],
        "sense_and_reconstruct": ["--model", "paper-r25"],
        "real_camera": ["--side", "64"],
        "light_budget": [PHOTOGRAPH, "--side", "64", "--photons", "1000", "--dark", "0"],
    }
    printed = run_fresh([script, *reduced.get(script.stem, [])], tmp_path)
    assert "dB" in printed
    assert list(tmp_path.rglob("*.png"))


def test_the_zoo_page_states_each_models_figures():
    rows = (DOCS / "models.md").read_text(encoding="utf-8").splitlines()
    for name in names():
        imager = tersense.load(name)
        row = next((row for row in rows if row.startswith(f"| `{name}`")), "")
        patterns = imager.patterns
        csc = describe(imager)["Φ as CSC"]
        for figure in (f"{patterns.rate:.4g}", str(len(patterns)), f"{patterns.nonzeros:,}",
                       f"{imager.parameters:,}", csc,
                       imager.reconstructor.registered_name):  # fmt: skip
            assert f"| {figure} |" in row, f"{name}: {figure}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_builds_without_warnings_and_has_every_page(site):
    for page in DOCS.glob("*.md"):
        where = site if page.stem == "index" else site / page.stem
        assert (where / "index.html").is_file()


def test_the_site_shows_every_notebook_with_its_images(site):
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / path.stem / "index.html").read_text(encoding="utf-8")
        images = re.findall(r'<img[^>]*src="([^"]+)"', page)
        assert images
        for image in images:
            assert (site / "notebooks" / path.stem / image).is_file()
        assert f"notebooks/{path.stem}/" in (site / "index.html").read_text(encoding="utf-8")


def test_the_site_asks_no_other_host(site):
    """Nothing that a browser fetches by itself has an address elsewhere; links may."""
    fetched = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^ >]+"
        r"|<link\b[^>]*\bhref=[\"']?(?:https?:)?//[^ >]+"
    )
    for page in site.rglob("*.html"):
        assert not fetched.findall(page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?https?://", sheet.read_text("utf-8"))


def read_walks():
    """Return the modules of each walk on the architecture page, in order."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    walks = re.split(r"^## The way of ", page, flags=re.MULTILINE)[1:]
    row = re.compile(r"^\| \[`([\w/]+)\.py`\]\(\.\./src/tersense/\1\.py\) \|", re.MULTILINE)
    return [[f"tersense.{path.replace('/', '.')}" for path in row.findall(walk)] for walk in walks]


@pytest.mark.parametrize("walk", read_walks(), ids=["image", "training step"])
def test_the_walks_go_down_and_visit_a_module_once(walk):
    assert len(walk) > 20
    assert set(walk) <= set(MODULES)
    assert len(walk) == len(set(walk))
    floors = [LEVEL[room_of(module)] for module in walk]
    assert floors == sorted(floors, reverse=True)
    for number, module in enumerate(walk):
        source = MODULES[module].read_text(encoding="utf-8")
        assert not imports_of(source) & set(walk[:number]), f"{module} looks back up"


def test_the_architecture_page_names_every_package():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    drawing = (DOCS / "images" / "architecture.svg").read_text(encoding="utf-8")
    for package in LEVEL:
        assert f"| `{package}` |" in page
        assert f">{package}<" in drawing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_into_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"
