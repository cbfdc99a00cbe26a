"""Kill a training run again and again, resume it, and compare its end with one that was left alone.

    make kills                      50 kills, about a quarter of an hour
    python tests/long/kills.py --kills 3

Every kill is a SIGKILL. Every third one is aimed at the writing of a checkpoint: the run folder is
watched, and the process is killed once a half-written file has appeared. The others strike at any
moment between the start of the process and the time that a session takes. Every ten kills the run
is allowed to end, and weights, moments and log must be those of the undisturbed run, bit for bit.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tersense.training.config import Config, build_config, write_toml

KILLS_A_RUN = 10
TABLES: dict[str, dict[str, Any]] = {
    "sensing": {"window": 16, "stride": 16, "rate": 0.25, "density": 0.1},
    "reconstructor": {"name": "mlp", "hidden": [1024, 1024]},  # a checkpoint of 17 MB
    "data": {"train": "package:skimage/data", "crop": 16, "samples": 2000, "augment": True},
    "train": {"epochs": 10, "batch": 500, "lr": 0.003, "checkpoint_epochs": 1, "device": "cpu"},
}


def start(place: Path, name: str, resume: bool) -> subprocess.Popen:
    """Start or continue the training of a name, as a user does."""
    config: Config = build_config(TABLES)
    config = replace(
        config,
        train=replace(config.train, out=str(place / name)),
        data=replace(config.data, cache=str(place / f"{name}-cache")),
    )
    path = place / f"{name}.toml"
    path.write_text(write_toml(config), encoding="utf-8")
    command = [sys.executable, "-m", "tersense", "train", str(path)]
    return subprocess.Popen(
        [*command, "--resume"] if resume else command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_somewhere(process: subprocess.Popen, seconds: float) -> bool:
    """Kill a process after some time; return False if it has ended before."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def half_written(folder: Path) -> set[Path]:
    """Return the files that safetensors is writing."""
    found: set[Path] = set()
    for partial in folder.glob(".partial-*"):
        with contextlib.suppress(FileNotFoundError):  # it was complete, and is gone
            found |= {path for path in partial.iterdir() if path.name.startswith(".tmp")}
    return found


def kill_while_it_writes(process: subprocess.Popen, folder: Path, skip: int, delay: float) -> bool:
    """Kill a process some time after it began to write its next checkpoint but `skip`."""
    seen = half_written(folder)
    while process.poll() is None:
        new = half_written(folder) - seen
        if new and skip == 0:
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            break
        skip -= bool(new)
        seen |= new
        time.sleep(0.001)  # a checkpoint takes longer, and the training needs the core
    process.communicate()
    return process.returncode == -signal.SIGKILL


def state_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, float]]]:
    """Return weights, checkpoint and log of a run; the log without its times."""
    log = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    for entry in log:
        del entry["seconds"]
    return (
        load_file(folder / "model.safetensors"),
        load_file(folder / "checkpoint.safetensors"),
        log,
    )


def same(one: Path, other: Path) -> bool:
    """Tell whether two runs ended alike, to the bit."""
    (*tensors, log), (*other_tensors, other_log) = state_of(one), state_of(other)
    return log == other_log and all(
        mine.keys() == theirs.keys() and all(bool((mine[k] == theirs[k]).all()) for k in mine)
        for mine, theirs in zip(tensors, other_tensors, strict=True)
    )


def finish(place: Path, name: str, resume: bool) -> float:
    """Let a training run end; return the seconds that it took."""
    began = time.monotonic()
    process = start(place, name, resume)
    _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} failed: {said}")
    return time.monotonic() - began


def run_kills(kills: int, place: Path, seed: int = 0) -> dict[str, int]:
    """Kill as often as asked; return how often what happened."""
    chance = random.Random(seed)
    session = finish(place, "undisturbed", resume=False)
    figures = {"kills": 0, "half-written files left": 0, "before the first checkpoint": 0,
               "runs": 0, "runs that ended alike": 0}  # fmt: skip
    while figures["kills"] < kills:
        name = f"run{figures['runs']}"
        folder = place / name
        for number in range(min(KILLS_A_RUN, kills - figures["kills"])):
            while True:  # until a kill has struck
                process = start(place, name, resume=True)
                if number % 3 == 2:
                    delay = chance.uniform(0, 0.02)
                    struck = kill_while_it_writes(process, folder, chance.randrange(3), delay)
                else:
                    struck = kill_somewhere(process, chance.uniform(0, session))
                if struck:
                    break
                shutil.rmtree(folder)  # it has ended: begin again
            figures["kills"] += 1
            figures["half-written files left"] += bool(half_written(folder))
            checkpoint = folder / "checkpoint.safetensors"
            figures["before the first checkpoint"] += not checkpoint.exists()
            print(f"kill {figures['kills']}", end=" ", flush=True)
        finish(place, name, resume=True)
        figures["runs"] += 1
        figures["runs that ended alike"] += same(folder, place / "undisturbed")
        left = list(folder.glob(".*")) + list((place / f"{name}-cache").glob(".partial-*"))
        if left:
            raise SystemExit(f"left behind: {left}")
        print(json.dumps(figures), flush=True)
    return figures


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        figures = run_kills(options.kills, Path(place), options.seed)
    if figures["runs that ended alike"] < figures["runs"]:
        raise SystemExit("a run ended otherwise than the undisturbed one")


if __name__ == "__main__":
    main()
