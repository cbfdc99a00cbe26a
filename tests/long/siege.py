"""Hold the web page under attack: good guests and hostile ones at the same time.

Example: python -m long.siege --good 2000 --hostile 200
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from skimage import data

from long.attacks import ATTACKS
from long.guests import Page, Request, compare, encode, good
from long.memory import Memory, growth
from long.soak_app import MAX_PIXELS, server, write_models
from tersense.app.state import Shelf, stock_shelf

AT_ONCE = 40  # guests; fewer than may wait in line
SAMPLES = 50  # of memory, over the whole run


def siege(
    address: str,
    shelf: Shelf,
    guests: int,
    attacks: int,
    look: Callable[[], Any] = lambda: None,
    seed: int = 0,
) -> tuple[list[float], list[Any]]:
    """Send guests and attackers, in any order and many at once; check every answer.

    Args:
        address: Of the page.
        shelf: Its cameras; the last one is slow, and rarely chosen.
        guests: How many come with an image, and wait for the result.
        attacks: How many come with something else.
        look: What to look at now and then.
        seed: Of the order, the images and the attacks.

    Returns:
        How long each guest waited, in seconds, and what was seen.
    """
    rng = np.random.default_rng(seed)
    page, choices = Page(address), [(f, rate) for f, rates in shelf.items() for rate in rates]
    waits, seen, lock = [], [], threading.Lock()
    every = max(1, (guests + attacks) // SAMPLES)
    with tempfile.TemporaryDirectory() as desk:

        def visit(number: int) -> None:
            own = np.random.default_rng([seed, number])
            if order[number]:
                ATTACKS[number % len(ATTACKS)](page, own)
            else:
                place = -1 if own.random() < 0.05 else own.integers(max(1, len(choices) - 1))
                request = good(own, *choices[place])
                began = time.monotonic()
                shown, refusal = page.visit(request)
                waits.append(time.monotonic() - began)
                folder = Path(desk, str(number))
                folder.mkdir()
                compare(page, request, shown, refusal, shelf, MAX_PIXELS, folder)
            with lock:
                done.append(number)
                if len(done) % every == 0:
                    seen.append(look())

        order, done = rng.permutation(np.arange(guests + attacks) < attacks), []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(visit, range(guests + attacks)))
    return waits, seen


def warm_up(address: str, shelf: Shelf) -> None:
    """Have the largest images go through the slowest camera, as many at once as may be.

    Freed memory stays in the process: such a moment, which is rare, would look like a leak.
    """
    page, family = Page(address), list(shelf)[-1]
    photograph = encode(data.astronaut()[:150, :200], "png")
    request = Request("a.png", photograph, family, list(shelf[family])[-1])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(page.visit, 16 * [request]))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Hold the web page under attack.")
    parser.add_argument("--good", type=int, default=2000)
    parser.add_argument("--hostile", type=int, default=200)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch, "server")
        home.mkdir()
        models = write_models(Path(scratch))
        shelf = stock_shelf(models)
        began = time.monotonic()
        with server(models, home, "--host", "0.0.0.0") as (address, pid):
            warm_up(address, shelf)
            waits, seen = siege(address, shelf, wanted.good, wanted.hostile, lambda: Memory.of(pid))
        left = [path for path in home.rglob("*") if path.is_file()]
    assert not left, f"the server left {left[:3]}"
    waits.sort()
    print(f"answered: {len(waits)} of {wanted.good}, in {time.monotonic() - began:.0f} s")
    print(f"refused as they should be: {wanted.hostile}")
    print(f"seconds: median {statistics.median(waits):.2f}, "
          f"99 % {waits[int(0.99 * len(waits))]:.2f}, worst {waits[-1]:.2f}")  # fmt: skip
    for kind in ("resident", "own"):
        values = [getattr(memory, kind) for memory in seen]
        print(f"{kind} memory: {[round(value) for value in values]} MiB, {growth(values):+.1%}")
    # Not its own: pages of libraries become its own when others who use them leave.
    assert growth([memory.resident for memory in seen]) < 0.05, "memory grew"
    assert len(waits) == wanted.good
    assert waits[-1] < 30


if __name__ == "__main__":
    main()
