"""Install what was built into empty environments, without extras, and try it there.

    python tools/try_install.py dist      (make dist; the workflow, on every system)

The wheel and the source distribution of a folder each get an environment of their own, with what
pip brings along. Then the photograph is sensed and reconstructed. Its measurements are exact
integers: on every system and processor they must be those that are noted here, byte by byte.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
# SHA-256 of the photograph's, by the default model, as 32-bit numbers. Not of the file: its header
# is deflated, which not every zlib does alike.
MEASUREMENTS = "1e26edb785a0212708d988759ca837271c8ae687be47ff4f2049078c31ed432b"
DIGEST = """
import hashlib, tersense
values = tersense.read("demo/photograph.tsm").values
print(hashlib.sha256(values.astype("<i4").tobytes()).hexdigest())
"""
COMMANDS = [
    ["--version"],
    ["demo", "-o", "demo"],
    ["sense", "demo/reconstruction.png", "-o", "again.tsm"],
    ["reconstruct", "again.tsm", "-o", "again.png"],
]


def find_program(environment: Path, name: str) -> Path:
    """Return the path of a program of an environment, as this system has it."""
    windows = os.name == "nt"
    return environment / ("Scripts" if windows else "bin") / f"{name}{'.exe' * windows}"


def try_commands(environment: Path, folder: Path) -> None:
    """Run the commands of the tersense that is installed; fail if it is not as it should be."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = find_program(environment, "tersense")
    for command in COMMANDS:
        print("tersense", *command, flush=True)
        subprocess.run([program, *command], cwd=folder, env=surroundings, check=True)
    python = [find_program(environment, "python"), "-c", DIGEST]
    done = subprocess.run(
        python, cwd=folder, env=surroundings, check=True, stdout=subprocess.PIPE, text=True
    )
    found = done.stdout.strip()
    if found != MEASUREMENTS:
        raise SystemExit(f"the measurements are {found}, they must be {MEASUREMENTS}")


def try_distribution(file: Path) -> None:
    """Install a wheel or a source distribution with what it needs, and try it."""
    with tempfile.TemporaryDirectory() as name:
        environment, folder = Path(name) / "environment", Path(name) / "folder"
        folder.mkdir()
        venv.create(environment, with_pip=True)
        pip = [find_program(environment, "python"), "-m", "pip"]
        versions = ["--constraint", ROOT / "constraints.txt"]
        subprocess.run([*pip, "install", "--quiet", *versions, file], check=True)
        subprocess.run([*pip, "check"], check=True)
        try_commands(environment, folder)


if __name__ == "__main__":
    files = [path for path in sorted(Path(sys.argv[1]).iterdir()) if path.suffix in (".whl", ".gz")]
    if len(files) != 2:
        raise SystemExit(f"{sys.argv[1]} must hold a wheel and a source distribution; make dist")
    for path in files:
        print(path.name, flush=True)
        try_distribution(path.resolve())
