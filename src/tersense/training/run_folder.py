"""The folder of a training run: all that is needed to run it again, and what comes of it.

`config.toml` has every setting, `run.json` the dataset, the versions and the commands,
`metrics.jsonl` the metrics, one JSON object per line; `checkpoint.safetensors` is what a run
resumes from and `model.safetensors` the model.
"""

import contextlib
import json
import math
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from tersense import __version__
from tersense.errors import TersenseError
from tersense.io.files import (
    make_folder,
    read_text,
    remove_partials,
    write_json,
    written_whole,
)
from tersense.training.config import Config, read_config, write_toml

_CONFIG, _METRICS, _RECORD = "config.toml", "metrics.jsonl", "run.json"
_LOCK, _OWNER = ".lock", ".owner"
# What may change from session to session of a run.
_FREE = {"epochs", "seconds", "out", "device", "validate_epochs", "checkpoint_epochs", "validation"}


class RunFolder:
    """The files of one training run.

    Args:
        path: The folder; it need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.model = self.path / "model.safetensors"
        # One for all objects of this process; the system lets go of it when the process ends.
        self._lock = FileLock(self.path / _LOCK, timeout=0, thread_local=False, is_singleton=True)

    @property
    def name(self) -> str:
        """The folder's own name: that of the model."""
        return self.path.name

    def check(self, config: Config, resume: bool) -> None:
        """Refuse to overwrite another run, or to continue one with other settings."""
        if not (self.path / _CONFIG).exists():
            return
        if not resume:
            raise TersenseError(
                f"{self.path} holds a run already; continue it with --resume, or choose another "
                "folder with --set train.out=…"
            )
        before, now = asdict(read_config(self.path / _CONFIG)), asdict(config)
        for section, old in before.items():
            new = now[section]
            for key in old.keys() | new.keys():
                if key not in _FREE and old.get(key) != new.get(key):
                    raise TersenseError(
                        f"{section}.{key} was {old.get(key)!r} in this run and is {new.get(key)!r} "
                        "now; a run resumes with its own settings"
                    )

    def claim(self) -> None:
        """Make the folder and keep other processes out of it until `release`, or until we end."""
        make_folder(self.path)
        owner = self.path / _OWNER
        try:
            self._lock.acquire()
        except Timeout as error:
            known = read_text(owner).strip() if owner.is_file() else "another process"
            raise TersenseError(
                f"{self.path} is in use by {known}; wait until it ends, or choose another folder "
                "with --set train.out=…"
            ) from error
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f"process {os.getpid()} on {platform.node()}, since {since}\n"
        with contextlib.suppress(OSError):  # a full disk is noticed where it matters
            owner.write_text(text, encoding="utf-8")

    def release(self) -> None:
        """Let other processes in again; nothing of the lock stays."""
        if self._lock.is_locked:
            for name in (_OWNER, _LOCK):
                with contextlib.suppress(OSError):  # Windows keeps files that are open
                    (self.path / name).unlink(missing_ok=True)
            self._lock.release(force=True)

    def prepare(self, config: Config) -> None:
        """Note the settings, and remove what a killed process left."""
        remove_partials(self.path)
        with written_whole(self.path / _CONFIG) as partial:
            partial.write_text(write_toml(config), encoding="utf-8")

    def record_session(self, data: dict[str, Any], **facts: Any) -> str:
        """Add a session to the record of a run; return a warning if it may not go on to the bit.

        Args:
            data: What tells its dataset from others; a run goes on with its own only.
            facts: Of this session.
        """
        before = self._read_record()
        if before["data"].get("sha256", data["sha256"]) != data["sha256"]:
            raise TersenseError(
                f"the images of data.train are not those that {self.path} was begun with "
                f"({before['data']['pictures']} then, {data['pictures']} now); bring them back, or "
                "start a new run with --set train.out=…"
            )
        versions = {"tersense": __version__, "torch": torch.__version__,
                    "python": platform.python_version()}  # fmt: skip
        program, *words = sys.argv
        ours = Path(program).stem in ("__main__", "tersense")  # .exe on Windows
        session = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": shlex.join(["tersense" if ours else program, *words]),
            **facts,
            **versions,
        }
        record = {"data": data, "sessions": [*before["sessions"], session]}
        write_json(self.path / _RECORD, record)
        others = [f"{name} {last[name]}" for last in before["sessions"][-1:] for name in versions
                  if last.get(name, versions[name]) != versions[name]]  # fmt: skip
        return f"begun with {', '.join(others)}: the last digits may differ" if others else ""

    def _read_record(self) -> dict[str, Any]:
        path = self.path / _RECORD
        if not path.exists():
            return {"data": {}, "sessions": []}
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record["data"], dict) and isinstance(record["sessions"], list):
                return dict(record)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        raise TersenseError(f"{path} is no record of a run; remove it to go on without")

    def log(self, entry: dict[str, Any]) -> None:
        """Add one entry to the metrics."""
        path = self.path / _METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise TersenseError(f"cannot write {path}: {error.strerror}") from error

    def metrics(self) -> list[dict[str, Any]]:
        """Return the entries so far."""
        return [json.loads(line) for line in read_text(self.path / _METRICS).splitlines()]

    def forget_after(self, step: int) -> None:
        """Drop what a run that was killed had logged since its checkpoint."""
        path = self.path / _METRICS
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
