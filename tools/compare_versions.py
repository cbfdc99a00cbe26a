"""Run every command of the README with two versions of the source and compare what they leave.

    python tools/compare_versions.py OLD/src NEW/src

Files are compared byte by byte (models by their tensors, JSON without times), and what is printed
word by word without times. It shows that a change of structure changed nothing else.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors import safe_open

TRAIN = (
    "train configs/quick.toml --set train.epochs=1 --set data.samples=4000 --set train.device=cpu"
)
COMMANDS = [
    "demo -m paper-r25 -o demo",
    "models",
    "info block-r25",
    "sense images/a.png -o a.tsm",
    "sense images/a.png -m paper-r25 --bits 8 --noise 5 -o noisy.tsm",
    "reconstruct a.tsm -o again.png",
    "reconstruct noisy.tsm -o noisy.png",
    "info a.tsm",
    "evaluate images -m block-r25 --json scores.json",
    "evaluate images -m paper-r25 --stride 16 --json overlapping.json",
    "export verilog -m paper-r25 -o encoder",
    "export c -m paper-r25 -o firmware",
    "export patterns -m paper-r25 -o frames --camera single --formats bits",
    "export matrix -m paper-r25 -o matrix",
    "export onnx -m paper-r25 -o models",
    f"{TRAIN} --set train.out=runs/quick",
    f"{TRAIN} --set train.out=runs/own --set sensing.patterns=mine.npy",
    "evaluate images -m runs/quick --json trained.json",
    "reproduce sparsity --train images --test images --quick --only r0.25-d0.05 -o table",
    "bench reconstruct --quick -m paper-r25",
    "plot training runs/quick -o training.png",
    "plot patterns -m paper-r25 -o patterns.png",
    "plot coverage -m paper-r25 -o coverage.png",
    "plot strip images/a.png -m paper-r25 -o strip.png",
]
_NUMBERS_OF_TIME = re.compile(r"\d+(\.\d+)? ?(ms|s|seconds|MiB|ns)\b|│ +[\d.]+ │$|\d+\.\d+×?")
_TIMES = {"seconds", "step_seconds", "wall_seconds", "time", "command", "tersense", "machine"}


def main() -> None:
    """Run both versions, one after the other, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    versions = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [
            run_all(source.resolve(), Path(folder) / name)
            for name, source in (("old", versions.old), ("new", versions.new))
        ]
    old, new = results
    for command in COMMANDS:
        if old["printed"][command] != new["printed"][command]:
            print(f"\n$ tersense {command}")
            lines = (result["printed"][command].splitlines() for result in results)
            print("\n".join(line for line in difflib.unified_diff(*lines, lineterm="", n=0)
                            if not line.startswith(("---", "+++", "@@"))))  # fmt: skip
    names = sorted(old["files"].keys() | new["files"].keys())
    different = [name for name in names if old["files"].get(name) != new["files"].get(name)]
    print(f"\n{len(names)} files, {len(different)} differ: {', '.join(different) or 'none'}")


def run_all(source: Path, folder: Path) -> dict[str, dict[str, str]]:
    """Run all commands in a new folder; return what each printed, and what every file holds."""
    prepare(folder, source)
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    printed = {}
    for command in COMMANDS:
        print(f"{folder.name}: {command}", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-m", "tersense", *command.split()], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        text = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        printed[command] = _NUMBERS_OF_TIME.sub("#", text)
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(path.relative_to(folder)): fingerprint(path) for path in found}
    return {"printed": printed, "files": files}


def prepare(folder: Path, source: Path) -> None:
    """Put two small images, patterns and the configurations into a folder."""
    import numpy as np
    from PIL import Image
    from skimage import data

    (folder / "images").mkdir(parents=True)
    Image.fromarray(data.astronaut()[:150, 60:257]).save(folder / "images" / "a.png")
    Image.fromarray(data.camera()[100:228, 100:228]).save(folder / "images" / "b.png")
    rng = np.random.default_rng(0)
    np.save(folder / "mine.npy", rng.integers(-1, 2, (32, 16, 16), dtype=np.int8))
    (folder / "configs").symlink_to(source.parent / "configs")


def fingerprint(path: Path) -> str:
    """Return what a file holds, without times and without what names the version."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np") as file:
            tensors = {key: file.get_tensor(key) for key in sorted(file.keys())}
        digest = hashlib.sha256()
        for key, value in tensors.items():
            digest.update(f"{key}{value.shape}{value.dtype}".encode() + value.tobytes())
        return digest.hexdigest()
    if path.suffix in (".json", ".jsonl"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        return json.dumps([timeless(json.loads(line)) for line in lines], sort_keys=True)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def timeless(value: object) -> object:
    """Return JSON without times."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in _TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
