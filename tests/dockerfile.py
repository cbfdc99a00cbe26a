"""Read the Dockerfile, and do what it says in a virtual environment instead of a container."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def read_instructions():
    """Return the instructions of the Dockerfile: their first word, and the rest."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


class Stage:
    """A folder that is the root of a container, as far as these steps notice.

    Args:
        root: The folder; its `environment` has the programs.
        python: Makes the environment; the one of the image's version.
    """

    def __init__(self, root: Path, python: str) -> None:
        self.root, self.folder = root, root
        subprocess.run([python, "-m", "venv", root / "environment"], check=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        self.variables = kept | {"PATH": f"{root / 'environment/bin'}:{os.environ['PATH']}"}
        self.command: list[str] = []

    def do(self, word: str, rest: str) -> None:
        """Carry out one instruction."""
        getattr(self, f"_{word.lower()}", self._nothing)(rest)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start what the container runs, with some arguments."""
        return subprocess.Popen(
            [*self.command, *arguments], cwd=self.folder, env=self.variables,
            executable=shutil.which(self.command[0], path=self.variables["PATH"]),
        )  # fmt: skip

    def _nothing(self, rest: str) -> None:
        """Leave out what says how a container is run: FROM, EXPOSE, USER, CMD."""

    def _inside(self, path: str) -> str:
        return f"{self.root}{path}" if path.startswith("/") else path

    def _arg(self, rest: str) -> None:
        for text in shlex.split(rest):
            name, _, value = text.partition("=")
            self.variables.setdefault(name, self._inside(value))

    def _env(self, rest: str) -> None:
        for text in shlex.split(rest):
            name, _, value = text.partition("=")
            self.variables[name] = self._inside(value)

    def _workdir(self, rest: str) -> None:
        self.folder = Path(self._inside(rest))
        self.folder.mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        *names, target = rest.split()
        for name in names:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.folder / target)

    def _run(self, rest: str) -> None:
        print(f"RUN {rest}", flush=True)
        subprocess.run(["sh", "-c", rest], cwd=self.folder, env=self.variables, check=True)

    def _entrypoint(self, rest: str) -> None:
        self.command = json.loads(rest)
