"""Change the core in every small way there is, and see whether a test notices.

mutmut makes the mutants and finds which tests reach them. They are run here: a copy of a process
that has collected the tests is forked for each, because to collect takes longer than to test.

Example: python -m long.mutants [NAME…]
"""

import json
import os
import resource
import shutil
import signal
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from _pytest.nodes import Node
from _pytest.runner import runtestprotocol
from mutmut.__main__ import cli
from mutmut.mutation.diff_apply import get_diff_for_mutant

FOLDER = Path("mutants")
LOOKED_AT = tomllib.loads(Path(__file__).with_name("survivors.toml").read_text())["change"]
SEEN = {change["to"] for change in LOOKED_AT}
_CPU_SECONDS = 30  # a change may loop for ever
_FIRST = "tersense.sensing.ternary.x_top_k_select__mutmut_1"

# mutmut 3.8 asks tests for a name by which pytest 9 no longer knows them.
if not hasattr(Node, "_nodeid"):
    Node._nodeid = property(lambda node: node.nodeid)


class TestEveryMutant:
    """Takes the place of pytest's loop over tests."""

    __test__ = False  # pytest, this is none of yours

    def __init__(self, wanted: list[str]) -> None:
        stats = json.loads(Path("mutmut-stats.json").read_text())
        self.tests, self.durations = (
            stats["tests_by_mangled_function_name"], stats["duration_by_test"]
        )  # fmt: skip
        self.names = [
            name
            for path in sorted(Path("src").rglob("*.meta"))
            for name in json.loads(path.read_text())["exit_code_by_key"]
            if not wanted or name in wanted
        ]
        self.outcomes: dict[str, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for done, name in enumerate(self.names):
            reached = self.tests.get(name.rpartition("__mutmut_")[0], [])
            fastest_first = sorted(reached, key=lambda test: self.durations.get(test, 0))
            chosen = [items[test] for test in fastest_first if test in items]
            self.outcomes[name] = _try(name, chosen) if chosen else "untested"
            if done % 50 == 0:
                print(
                    f"{done}/{len(self.names)} {dict(Counter(self.outcomes.values()))}", flush=True
                )
        return True


def _try(name: str, items: list[pytest.Item]) -> str:
    child = os.fork()
    if not child:
        _run_and_exit(name, items)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "endless" if os.WTERMSIG(status) == signal.SIGXCPU else "crashed"
    return "survived" if os.WEXITSTATUS(status) == 0 else "noticed"


def _run_and_exit(name: str, items: list[pytest.Item]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 5))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.environ["MUTANT_UNDER_TEST"] = name
    failed = True
    try:
        following = [*items[1:], None]
        failed = any(
            report.failed
            for item, after in zip(items, following, strict=True)
            for report in runtestprotocol(item, log=False, nextitem=after)
        )
    finally:
        os._exit(int(failed))


def main() -> None:
    """Make the mutants, try each, and list those that no test noticed and nobody has looked at."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    cli(["run", "--max-children", "1", _FIRST], standalone_mode=False)
    settings = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["mutmut"]
    os.chdir(FOLDER)
    sys.path.insert(0, str(Path("src").resolve()))
    os.environ["MUTANT_UNDER_TEST"] = ""
    loop = TestEveryMutant(sys.argv[1:])
    words = settings["pytest_add_cli_args_test_selection"] + settings["pytest_add_cli_args"]
    pytest.main(["-q", "--rootdir=.", "-p", "no:cacheprovider", *words], plugins=[loop])
    os.chdir("..")
    print(dict(Counter(loop.outcomes.values())))
    left = [name for name, outcome in loop.outcomes.items() if outcome in ("survived", "untested")]
    wording, unseen = [], []
    for name in left:
        old, new = _change(name)
        if _says_the_same(old, new):
            wording.append(new)
        elif new not in SEEN:
            unseen.append(f"{loop.outcomes[name]}: {name}\n- {old}\n+ {new}")
    print(f"{len(wording)} change the wording of a message only:", *wording, sep="\n  ")
    print(f"{len(left) - len(wording) - len(unseen)} make no difference that matters")
    if unseen:
        raise SystemExit(
            "\n".join(["neither a test notices nor survivors.toml explains:", *unseen])
        )


def _change(name: str) -> tuple[str, str]:
    """Return what a mutant has changed: the old line and the new."""
    lines = get_diff_for_mutant(name).splitlines()
    old, new = (
        " ".join(line[1:].strip() for line in lines if line[0] == sign and line[:3] != 3 * sign)
        for sign in "-+"
    )
    return old, new


def _says_the_same(old: str, new: str) -> bool:
    """Tell whether a message differs in letter case only, or in the XX that mutmut puts around."""
    in_a_message = new.startswith(("raise ", '"', 'f"'))
    return in_a_message and old.casefold() == new.replace("XX", "").casefold()


if __name__ == "__main__":
    main()
