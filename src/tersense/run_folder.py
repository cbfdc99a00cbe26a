"""The folder of a training: whose it is, and its log of figures, one JSON object a line."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tersense.config import Config, read_config
from tersense.errors import TersenseError
from tersense.files import written_whole

_METRICS = "metrics.jsonl"


def check_folder(folder: Path, config: Config, resume: bool) -> None:
    """Refuse to overwrite another run, or to continue one with other settings."""
    if not (folder / "config.toml").exists():
        if resume:
            raise TersenseError(f"{folder} holds no run to resume; leave --resume out")
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


def append_metrics(folder: Path, entry: dict[str, Any]) -> None:
    """Add one entry to the log."""
    with (folder / _METRICS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


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
