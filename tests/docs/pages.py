"""Run the code blocks of one page of the documentation: `python pages.py PAGE.md`.

Every block runs in a process of its own, in the current folder: what it needs it imports itself, or
an earlier block has left it as a file. To be quick, the processes are forked from one that has
imported what takes long, but nothing of tersense. Before a block, a comment may say how it is run:

    <!-- run with: --set train.epochs=1 -->   these words are added to its tersense commands
    <!-- not run: why -->                     it is only parsed

A block with `title="NAME"` is the file NAME of the blocks after it.
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
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

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
    import typer

    from tersense.cli import app

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


def run_shell(block):
    from tersense.cli import main

    for line, words in commands(block):
        if words[0] == "tersense":
            assert main([*words[1:], *shlex.split(block.words)]) == 0
        else:
            done = subprocess.run(["bash", "-c", line], text=True, capture_output=True, timeout=60)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def run_python(block):
    exec(compile(block.code, f"line {block.line}", "exec"), {"__name__": Path(block.title).stem})


def run_session(block):
    """Run what stands after >>> and compare what it prints."""
    session = parse_session(block)
    said = []
    failed = doctest.DocTestRunner().run(session, out=said.append).failed
    assert not failed, "".join(said)


def parse_session(block):
    return doctest.DocTestParser().get_doctest(block.code, {}, "session", None, 0)


def parse_toml(block):
    from tersense.training.config import build_config

    build_config(tomllib.loads(block.code))


def parse_json(block):
    code = block.code.strip()
    json.loads(code if code.startswith("{") else f"{{{code}}}")


def parse_c(block):
    """Compile a fragment against the header that the page exported before it."""
    head = '#include "firmware/lines.h"\nvoid f(const uint8_t *pixels, int pitch, uint8_t pixel)'
    command = ["gcc", "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "-I.", "-x", "c", "-"]
    use = "void use(const tersense_value *y);"
    code = f"{head};{use}{head.splitlines()[1]}{{{block.code}}}"
    subprocess.run(command, input=code, text=True, check=True)


RUN = {"python": run_python, "pycon": run_session, "sh": run_shell, "toml": parse_toml}
PARSE = {
    "python": lambda block: ast.parse(block.code),
    "pycon": parse_session,
    "sh": parse_shell,
    "toml": parse_toml,
    "json": parse_json,
    "c": parse_c,
}


def import_what_takes_long():
    for module in ("torch", "safetensors.torch", "PIL.Image", "typer"):
        import_module(module)
    import_module("numba").njit(lambda x: x)(0)  # what loads kernels is built when first used


def in_process(function, *arguments):
    """Call a function in a forked process; return whether it did not fail there."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function(*arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def run_page(page):
    """Run every block of a page, in order, or parse it; fail with the place of the first bad one.

    What is only parsed comes last, and all of it in this process: it leaves nothing to anybody.
    """
    blocks = [block for block in read_blocks(page) if block.language]  # not drawings and output
    if any(block.how != "not run" for block in blocks):
        import_what_takes_long()
    for block in sorted(blocks, key=lambda block: block.how == "not run"):
        place = f"{page.name}, line {block.line}"
        assert block.language in PARSE, f"{place}: nothing here parses {block.language}"
        if block.how == "not run":
            PARSE[block.language](block)
            continue
        assert block.language in RUN, f"{place}: say why it is not run"
        if block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
        assert in_process(RUN[block.language], block), f"{place} fails, see above"


if __name__ == "__main__":
    sys.path[0] = ""  # as for whoever types `python` in this folder
    run_page(Path(sys.argv[1]))
