"""The folder of a training: all that is needed to run it again, and its log of figures.

`config.toml` has every setting, `run.json` the pictures, the versions and the commands,
`metrics.jsonl` the figures, one JSON object a line.
"""

import json
import math
import platform
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tersense import __version__
from tersense.errors import TersenseError
from tersense.io.files import make_folder, remove_partials, written_whole
from tersense.training.config import Config, read_config, write_toml

_METRICS, _RECORD = "metrics.jsonl", "run.json"


def check_folder(folder: Path, config: Config, resume: bool) -> None:
    """Refuse to overwrite another run, or to continue one with other settings."""
    if not (folder / "config.toml").exists():
        return
    if not resume:
        raise TersenseError(
            f"{folder} holds a run already; continue it with --resume, or choose another folder "
            "with --set train.out=…"
        )
    before, now = read_config(folder / "config.toml"), config
    free = {"epochs", "seconds", "out", "device", "validate_epochs", "checkpoint_epochs"}
    for section in ("sensing", "reconstructor", "data", "train"):
        old, new = (c if isinstance(c, dict) else asdict(c)
                    for c in (getattr(before, section), getattr(now, section)))  # fmt: skip
        for key in old.keys() | new.keys():
            if key not in free and key != "validation" and old.get(key) != new.get(key):
                raise TersenseError(
                    f"{section}.{key} was {old.get(key)!r} in this run and is {new.get(key)!r} "
                    "now; a run resumes with its own settings"
                )


def prepare_folder(folder: Path, config: Config) -> None:
    """Make the folder, note the settings, and remove what a killed process left."""
    make_folder(folder)
    remove_partials(folder)
    with written_whole(folder / "config.toml") as partial:
        partial.write_text(write_toml(config), encoding="utf-8")


def record_session(folder: Path, data: dict[str, Any], **facts: Any) -> str:
    """Add a session to the record of a run; return a warning if it may not go on to the bit.

    Args:
        folder: Of the run.
        data: What tells its pictures from others; a run goes on with its own only.
        facts: Of this session.
    """
    before = _read_record(folder)
    if before["data"].get("sha256", data["sha256"]) != data["sha256"]:
        raise TersenseError(
            f"the pictures of data.train are not those that {folder} was begun with "
            f"({before['data']['pictures']} then, {data['pictures']} now); bring them back, or "
            "start a new run with --set train.out=…"
        )
    versions = {"tersense": __version__, "torch": torch.__version__,
                "python": platform.python_version()}  # fmt: skip
    program, *words = sys.argv
    ours = Path(program).name in ("__main__.py", "tersense")
    session = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["tersense" if ours else program, *words]),
        **facts,
        **versions,
    }
    record = {"data": data, "sessions": [*before["sessions"], session]}
    with written_whole(folder / _RECORD) as partial:
        partial.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
    others = [f"{name} {last[name]}" for last in before["sessions"][-1:] for name in versions
              if last.get(name, versions[name]) != versions[name]]  # fmt: skip
    return f"begun with {', '.join(others)}: the last digits may differ" if others else ""


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / _RECORD
    if not path.exists():
        return {"data": {}, "sessions": []}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record["data"], dict) and isinstance(record["sessions"], list):
            return dict(record)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise TersenseError(f"{path} is no record of a run; remove it to go on without")


def append_metrics(folder: Path, entry: dict[str, Any]) -> None:
    """Add one entry to the log."""
    try:
        with (folder / _METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
    except OSError as error:
        raise TersenseError(f"cannot write {folder / _METRICS}: {error.strerror}") from error


def forget_metrics_after(folder: Path, step: int) -> None:
    """Drop what a run that was killed had logged since its checkpoint."""
    path = folder / _METRICS
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if _step_of(line) <= step]
        with written_whole(path) as partial:
            partial.write_text("".join(kept), encoding="utf-8")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (
        ValueError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # cut off in the middle
        return math.inf
