"""Write the locks: what is installed for each purpose, with the hash of every file of it.

    python tools/lock.py      (make locks)

The versions are those of `constraints.txt`; new packages get the newest version, which is to be
added there. The hashes are those that the package index gives for all files of a version, so that a
lock holds for every platform. A build of torch for GPUs needs libraries that the one for CPUs does
not; they have a lock of their own.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Extras for each purpose; `build` is what builds the package itself.
LOCKS = {
    "core": ["build"],
    "test": ["build", "test"],
    "app": ["build", "app"],
    "docs": ["build", "docs"],
    "dist": ["build", "dist"],
    "mutants": ["build", "test", "mutants"],
    "upkeep": ["upkeep"],
}
OLDEST_PYTHON = "3.11.5"  # that pymdown-extensions, of the documentation, supports
GPU = re.compile(r"(nvidia|cuda)-|triton$")
NOWHERE = re.compile(r"sys_platform == 'emscripten'")  # torch does not run in a browser
# The build for CPUs is not on the package index, so its hashes stand here: for Linux on x86-64 with
# Python 3.11, on which everything was tested.
CPU_BUILD = """\
torch==2.13.0+cpu \\
    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
"""
HEAD = """\
# {}. Written by `make locks`; do not edit.
# Install with: pip install --no-deps --require-hashes --only-binary :all: -r {}
"""


def resolve(extras: list[str]) -> dict[str, str]:
    """Return the entry of every package that is needed for some extras."""
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal",
        "--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header", "--no-annotate",
        "--constraint", "constraints.txt", *(f"--extra={extra}" for extra in extras),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    entries = re.findall(r"^\S.*\\\n(?: .*\n)+", done.stdout, re.MULTILINE)
    return {re.split("[= ]", entry)[0]: entry for entry in entries}


def write(name: str, purpose: str, entries: list[str]) -> None:
    """Write one lock."""
    path = ROOT / "locks" / f"{name}.txt"
    head = HEAD.format(purpose, path.relative_to(ROOT).as_posix())
    path.write_text(head + "".join(entries), encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(entries)} packages")


def main() -> None:
    """Write all locks."""
    (ROOT / "locks").mkdir(exist_ok=True)
    for name, extras in LOCKS.items():
        found = resolve(extras)
        plain = [text for package, text in found.items()
                 if not GPU.match(package) and not NOWHERE.search(text)]  # fmt: skip
        write(name, f"What is installed by `make` for: {', '.join(extras)}", plain)
        if name == "core":
            libraries = [text for package, text in found.items() if GPU.match(package)]
            write("cpu", "The build of torch for CPUs, where pip is offered it", [CPU_BUILD])
            write("cuda", "What a build of torch for GPUs needs besides", libraries)


if __name__ == "__main__":
    main()
