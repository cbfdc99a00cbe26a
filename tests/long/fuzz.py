"""Feed damaged files to everything that reads files: `make fuzz`.

    python tests/long/fuzz.py [--inputs 100000] [--only READER] [--seed 0] [--json FILE]

Each reader works in a process of its own that is watched: an input that takes longer than the
limit is a hang, a signal or any error but ours is a crash, growing memory is a leak, and so is
output on the terminal a fault. Inputs that fail are kept in `fuzz-failures/`. An input is made
from the seed, the reader's name and its number alone, so that every failure can be made again.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from readers import Reader, make_readers

SECONDS_AN_INPUT = 20
ADDRESS_SPACE = 2 * 2**30  # bytes that one input may ask for, above what the libraries have
WARM = 0.2  # of the inputs, before growth is counted: caches fill, arenas settle
MAX_GROWTH = 64 * 2**20  # bytes
FAILURES = Path("fuzz-failures")


def resident() -> int:
    """Return the bytes of memory that this process holds, unused pieces given back first."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def work(name: str, first: int, count: int, seed: int, out: Connection) -> None:
    """Feed inputs to one reader; tell before each which one it is, and at the end how it went."""
    with tempfile.TemporaryDirectory(prefix="tersense-fuzz-") as folder:
        reader = make_readers(Path(folder))[name]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE,) * 2)
        screen = Path(folder) / "screen.txt"
        handle = os.open(screen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        outcomes = {"read": 0, "refused": 0}
        warm = None
        began = time.perf_counter()
        for number in range(first, count):
            if warm is None and number >= WARM * count:
                warm = resident()
            content = reader.damaged(Random(f"{seed} {name} {number}"))
            out.send(("trying", number))
            fault = feed(reader, Path(folder) / f"input{reader.suffix}", content, outcomes)
            sys.stdout.flush()
            sys.stderr.flush()
            if not fault and screen.stat().st_size:
                fault = f"output: {screen.read_text(errors='replace')[:500]}"
            os.ftruncate(handle, 0)
            if fault:
                out.send(("failed", number, fault, content))
        out.send(("done", outcomes, time.perf_counter() - began, resident() - (warm or resident()),
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))  # fmt: skip


def feed(reader: Reader, path: Path, content: bytes, outcomes: dict[str, int]) -> str:
    """Give one input to a reader; return what went wrong, or nothing."""
    try:
        outcomes[reader.meet(path, content)] += 1
    except Exception:  # anything but a TersenseError is what we look for
        return traceback.format_exc(limit=-4)
    return ""


def watch(name: str, count: int, seed: int) -> dict[str, Any]:
    """Run one reader's inputs, beginning again behind an input that killed or hung it."""
    result: dict[str, Any] = {"reader": name, "inputs": count, "failures": []}
    first, context = 0, multiprocessing.get_context("spawn")
    while first < count:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(name, first, count, seed, theirs))
        process.start()
        theirs.close()
        number = first
        try:
            while ours.poll(SECONDS_AN_INPUT if number > first else 120):
                kind, *rest = ours.recv()
                if kind == "trying":
                    number = rest[0]
                elif kind == "failed":
                    keep(result, name, *rest)
                else:
                    outcomes, seconds, growth, peak = rest
                    result |= outcomes | {"seconds": seconds, "growth": growth, "peak": peak}
                    process.join()
                    return result
            keep(result, name, number, f"no answer in {SECONDS_AN_INPUT} s")
        except EOFError:
            process.join()
            keep(result, name, number, f"the process ended with {process.exitcode}")
        process.kill()
        process.join()
        first = number + 1
    return result


def keep(result: dict[str, Any], name: str, number: int, why: str, content: bytes = b"") -> None:
    """Remember a failure, and keep its input where it is known."""
    result["failures"].append({"number": number, "why": why})
    if len(result["failures"]) <= 20:
        FAILURES.mkdir(exist_ok=True)
        stem = f"{name.replace(' ', '-').replace('.', '')}-{number}"
        (FAILURES / f"{stem}.txt").write_text(why)
        if content:
            (FAILURES / stem).write_bytes(content)


def main() -> int:
    """Run all readers one after the other and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="of all readers together")
    parser.add_argument("--only", help="one reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = list(make_readers(Path(folder)))
    chosen = [options.only] if options.only else names
    results = []
    print("| reader | inputs | read | refused | failed | seconds | growth, MiB | peak, MiB |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in chosen:
        result = watch(name, -(-options.inputs // len(chosen)), options.seed)
        results.append(result)
        print("| {} | {:,} | {:,} | {:,} | {} | {:.0f} | {:.1f} | {:.0f} |".format(
            name, result["inputs"], result.get("read", 0), result.get("refused", 0),
            len(result["failures"]), result.get("seconds", 0), result.get("growth", 0) / 2**20,
            result.get("peak", 0) / 2**20), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    failed = sum(len(result["failures"]) for result in results)
    leaks = [r["reader"] for r in results if r.get("growth", 0) > MAX_GROWTH]
    print(
        f"{sum(r['inputs'] for r in results):,} inputs, {failed} failed; leaks: {leaks or 'none'}"
    )
    return 1 if failed or leaks else 0


if __name__ == "__main__":
    sys.exit(main())
