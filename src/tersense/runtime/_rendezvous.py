"""Where the processes of one attempt find each other.

torchrun keeps one store over all its restarts. A process that was started again may read there
where one that is dead was listening, and fail with a refused connection. So every attempt gets a
part of the store of its own: the first process names it, and each other one believes the name only
when the first has given back the word that it wrote there.
"""

import secrets
import time
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

_SECONDS_BETWEEN_QUESTIONS = 0.05


def meet() -> tuple[Any, int, int]:
    """Return a store that no earlier attempt has used, the rank, and the number of processes."""
    store, rank, count = next(iter(rendezvous("env://")))
    name = invite(store, count) if rank == 0 else join(store, rank)
    return PrefixStore(name, store), rank, count


def invite(store: Any, count: int) -> str:
    """Name a new part of the store, and answer every other process."""
    name = secrets.token_hex(8)
    store.set("tersense", name)
    for rank in range(1, count):
        word = store.get(f"{name}/word/{rank}")  # waits until it is there
        store.set(f"{name}/answer/{rank}", word)
    return name


def join(store: Any, rank: int) -> str:
    """Return the name that the first process of this very attempt has given."""
    word = secrets.token_hex(8).encode()
    while True:
        name: str = store.get("tersense").decode()  # perhaps one of an earlier attempt
        store.set(f"{name}/word/{rank}", word)
        for _ in range(10):
            answer = f"{name}/answer/{rank}"
            if store.check([answer]) and store.get(answer) == word:
                return name
            time.sleep(_SECONDS_BETWEEN_QUESTIONS)
