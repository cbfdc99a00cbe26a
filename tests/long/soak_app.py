"""Hold the web page under load: thousands of guests, good and bad, and watch what it keeps.

Example: python -m long.soak_app --requests 5000
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from conftest import build_small_imager
from long.guests import Page, Request, check, requests
from long.memory import Memory, growth
from tersense.app.state import stock_shelf
from tersense.models.files import write_model

MAX_PIXELS = 20_000
SAMPLES = 50  # of memory, over the whole run
AT_ONCE = 3  # guests; one more than the page serves at once


class Sample(NamedTuple):
    """What the server holds at one moment."""

    memory: Memory
    files: int
    disk: float  # MiB


def soak(count: int, seed: int = 0) -> dict[str, Any]:
    """Send so many requests, check every answer, and return the figures."""
    began, share = time.monotonic(), count // SAMPLES
    with tempfile.TemporaryDirectory() as scratch:
        home, desk = Path(scratch, "server"), Path(scratch, "desk")
        home.mkdir()
        models = write_models(Path(scratch))
        shelf = stock_shelf(models)
        visits = requests(shelf, seed)
        samples, good = [], 0
        with server(models, home) as (address, pid), ThreadPoolExecutor(AT_ONCE) as guests:
            page = Page(address)

            def visit(request: Request) -> bool:
                own = desk / str(threading.get_ident())
                own.mkdir(parents=True, exist_ok=True)
                check(page, request, shelf, MAX_PIXELS, own)
                return not request.refusal

            for _ in range(SAMPLES):
                good += sum(guests.map(visit, islice(visits, share)))
                samples.append(_look(pid, home))
        left = [path for path in home.rglob("*") if path.is_file()]
    assert not left, f"the server left {left[:3]}"
    return _figures(samples, share * SAMPLES, good, time.monotonic() - began)


def write_models(folder: Path) -> list[str]:
    """Return two small cameras and a real one."""
    paths = []
    for seed, name in enumerate(("small", "other")):
        paths.append(str(folder / f"{name}.safetensors"))
        write_model(paths[-1], build_small_imager(name, seed))
    return [*paths, "paper-r25"]


@contextlib.contextmanager
def server(models: list[str], home: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Start the page as a user does, in a folder of its own for all that is temporary."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tersense", "app", "--port", str(port),
               "--pixels", str(MAX_PIXELS), *options]  # fmt: skip
    for model in models:
        command += ["-m", model]
    surroundings = {**os.environ, "TMPDIR": str(home), "OMP_NUM_THREADS": "1"}
    # What is wrong with a hand-made request, gradio tells the server's terminal at length.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=surroundings
    ) as program:
        assert program.stdout
        assert f":{port}" in program.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}/", program.pid
        finally:
            program.send_signal(signal.SIGINT)
    assert program.returncode == 128 + signal.SIGINT


def _look(pid: int, home: Path) -> Sample:
    sizes = []
    for folder, _, names in os.walk(home):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # the server sweeps meanwhile
                sizes.append(Path(folder, name).stat().st_size)
    return Sample(Memory.of(pid), len(sizes), sum(sizes) / 2**20)


def _figures(samples: list[Sample], sent: int, good: int, seconds: float) -> dict[str, Any]:
    memories = [sample.memory for sample in samples]
    return {
        "requests": sent,
        "answered": good,
        "refused": sent - good,
        "seconds": round(seconds),
        **{
            kind: {
                "MiB": [round(getattr(m, kind), 1) for m in memories],
                "growth": round(growth([getattr(m, kind) for m in memories]), 4),
            }
            for kind in Memory._fields
        },
        "temporary files": [sample.files for sample in samples],
        "temporary MiB": [round(sample.disk, 1) for sample in samples],
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Hold the web page under load.")
    parser.add_argument("--requests", type=int, default=5000)
    figures = soak(parser.parse_args().requests)
    for name, value in figures.items():
        print(f"{name}: {value}")
    # Not its proportional share: that grows when others who use the same libraries leave.
    for kind in ("resident", "own"):
        assert figures[kind]["growth"] < 0.05, f"{kind} memory grew"


if __name__ == "__main__":
    main()
