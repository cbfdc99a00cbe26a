"""The documentation, run: every code block of every page, the examples, the built site.

Before a block, a comment may say how it is run:

    <!-- run with: --set train.epochs=1 -->   these words are added to its tersense commands
    <!-- not run: why -->                     it is only parsed

A block of TOML with `title="NAME"` is the file NAME of the blocks after it.
"""

import ast
import contextlib
import doctest
import json
import os
import re
import shlex
import string
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import tersense
from tersense.cli.program import app, main
from tersense.models.info import describe
from tersense.models.zoo import names
from tersense.reconstruction import base as recon
from tersense.training.config import build_config
from test_structure import LEVEL, MODULES, imports_of, room_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(
    r"(?:^ *<!-- (?P<how>run with|not run): (?P<words>.+?) -->\n\s*)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
ASSIGNMENT = re.compile(r'^(\w+)="([^"]*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block and how it is to be run."""

    line: int
    language: str
    title: str
    code: str
    how: str
    words: str


def read_blocks(page):
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', found["rest"])
        yield Block(
            text.count("\n", 0, found.start("code")) + 1,
            found["language"],
            title[1] if title else "",
            found["code"],
            found["how"] or "run",
            found["words"] or "",
        )


def commands(block):
    """Yield each command as a line and as words, lines joined and variables filled in."""
    variables = dict(ASSIGNMENT.findall(block.code))
    text = ASSIGNMENT.sub("", block.code.replace("\\\n", " "))
    for line in string.Template(text).substitute(variables).splitlines():
        if words := shlex.split(line, comments=True):
            yield line, words


def check_options(words):
    """Parse a tersense command as the program does, without running it."""
    command, context = typer.main.get_command(app), None
    words = list(words[1:])
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    with contextlib.suppress(typer.Exit):  # --version and --help
        context = command.make_context(command.name, words)
    return context


def parse_shell(block):
    subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
    for _, words in commands(block):
        if words[0] == "tersense":
            check_options(words)


def run_shell(block, namespace):
    for line, words in commands(block):
        if words[0] == "tersense":
            assert main([*words[1:], *shlex.split(block.words)]) == 0
        else:
            done = subprocess.run(["bash", "-c", line], text=True, capture_output=True, timeout=60)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def run_python(block, namespace):
    exec(compile(block.code, f"line {block.line}", "exec"), namespace)


def run_session(block, namespace):
    """Run what stands after >>> and compare what it prints."""
    session = parse_session(block, namespace)
    said = []
    failed = doctest.DocTestRunner().run(session, out=said.append).failed
    assert not failed, "".join(said)


def parse_session(block, namespace=()):
    return doctest.DocTestParser().get_doctest(block.code, dict(namespace), "session", None, 0)


def take_settings(block, namespace):
    parse_toml(block)
    if block.title:
        Path(block.title).write_text(block.code, encoding="utf-8")


def parse_toml(block):
    build_config(tomllib.loads(block.code))


def parse_json(block):
    code = block.code.strip()
    json.loads(code if code.startswith("{") else f"{{{code}}}")


def parse_c(block):
    """Compile a fragment against the header that the page exported before it."""
    head = '#include "firmware/sense.h"\nvoid f(const uint8_t *pixels, int pitch, uint8_t pixel)'
    command = ["gcc", "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "-I.", "-x", "c", "-"]
    code = f"{head};{head.splitlines()[1]}{{{block.code}}}"
    subprocess.run(command, input=code, text=True, check=True)


RUN = {"python": run_python, "pycon": run_session, "sh": run_shell, "toml": take_settings}
PARSE = {
    "python": lambda block: ast.parse(block.code),
    "pycon": parse_session,
    "sh": parse_shell,
    "toml": parse_toml,
    "json": parse_json,
    "c": parse_c,
}


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """Work in an empty folder that has the configurations, with a registry of its own."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    for name in recon._BUILT_IN:  # a module registers its classes only when first imported
        recon.find_reconstructor(name)
    monkeypatch.setattr(recon, "_registry", dict(recon._registry))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_runs(page, workplace, capsys):
    namespace = {"__name__": page.stem}
    for block in read_blocks(page):
        if not block.language:  # drawings and what programs print
            continue
        place = f"{page.name}, line {block.line}"
        assert block.language in PARSE, f"{place}: nothing here parses {block.language}"
        try:
            if block.how == "not run":
                PARSE[block.language](block)
            else:
                assert block.language in RUN, f"{place}: say why it is not run"
                RUN[block.language](block, namespace)
        except Exception as error:
            said = capsys.readouterr().err
            raise AssertionError(f"{place}: {error!r}\n{said}") from error


def test_no_block_escapes():
    """Count fences by lines: each opens or closes a block that was found."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = len(re.findall(r"^\s*```", text, re.MULTILINE))
        assert fences == 2 * len(list(read_blocks(page))), page.name
        markers = len(re.findall(r"<!-- (?:run with|not run)", text))
        assert markers == sum(block.how != "run" for block in read_blocks(page)), page.name


# The example with deepinv runs in test_interop_deepinv, where torchvision is made to import.
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - {ROOT / "examples/deepinv_solvers.py"})


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda s: s.stem)
def test_examples_run(script, tmp_path):
    reduced = {
        "train_small_camera": ["--epochs", "1", "--samples", "2000"],
        "sense_and_reconstruct": ["--model", "paper-r25"],
    }
    command = [sys.executable, str(script), *reduced.get(script.stem, [])]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, text=True,
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dB" in done.stdout
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
