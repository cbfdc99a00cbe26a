"""Run the code blocks of one page of the documentation: `python pages.py PAGE.md`.

It runs in the current folder, in a process of its own: what a page needs, it imports itself. Before
a block, a comment may say how it is run:

    <!-- run with: --set train.epochs=1 -->   these words are added to its tersense commands
    <!-- not run: why -->                     it is only parsed

A block of TOML with `title="NAME"` is the file NAME of the blocks after it.
"""

import ast
import contextlib
import doctest
import json
import re
import shlex
import string
import subprocess
import sys
import tomllib
from dataclasses import dataclass
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


def run_shell(block, namespace):
    from tersense.cli import main

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


RUN = {"python": run_python, "pycon": run_session, "sh": run_shell, "toml": take_settings}
PARSE = {
    "python": lambda block: ast.parse(block.code),
    "pycon": parse_session,
    "sh": parse_shell,
    "toml": parse_toml,
    "json": parse_json,
    "c": parse_c,
}


def run_page(page):
    """Run or parse every block of a page, in order; fail with the place of the first bad one."""
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
            raise AssertionError(f"{place}: {error!r}") from error


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
