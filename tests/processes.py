"""Start several processes that work together, as torchrun does."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def call_in_fork(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked process; fail if it does not within a while."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(function()))
    child.start()
    arrived = receiver.poll(30)
    if not arrived:
        child.kill()
    child.join()
    assert arrived
    return receiver.recv()


def start_together(count: int, *arguments: str) -> list[subprocess.Popen]:
    """Start python with some arguments, as many times as asked, with ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(count)
    ]  # fmt: skip


def wait_for(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    """Return the exit code, output and errors of each."""
    said = [process.communicate(timeout=180) for process in processes]
    return [(p.returncode, *texts) for p, texts in zip(processes, said, strict=True)]


def wait_until_there(path: Path, process: subprocess.Popen) -> None:
    """Wait until a process has written a file; fail if it ends before."""
    patience = time.monotonic() + 120
    while not path.exists():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            raise AssertionError(f"it ended with {process.returncode} and left no {path.name}")
        assert time.monotonic() < patience


def kill_worker(agent: int, rank: int) -> None:
    """Kill the process of some rank that a torchrun started, as a failing machine would."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # it has just ended
            continue
        if parent == agent and f"RANK={rank}".encode() in variables:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise LookupError(f"torchrun {agent} has no process of rank {rank}")
