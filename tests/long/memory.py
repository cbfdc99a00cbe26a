"""What a process holds, from Linux itself; and whether it grows."""

import re
import statistics
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)


class Memory(NamedTuple):
    """MiB of one process."""

    resident: float  # all its pages in memory
    proportional: float  # those that it shares counted in part (PSS)
    own: float  # those that nobody else has (USS): what leaks

    @classmethod
    def of(cls, pid: int) -> "Memory":
        """Ask the kernel."""
        pages = {key: int(kib) / 1024 for key, kib in
                 _LINE.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())}  # fmt: skip
        return cls(pages["Rss"], pages["Pss"], pages["Private_Clean"] + pages["Private_Dirty"])


def growth(samples: list[float], warm: float = 0.2, few: int = 5) -> float:
    """Return by which share the samples grew after warm-up: the last few against the first few.

    Args:
        samples: At equal distances.
        warm: The share that is warm-up and does not count.
        few: Whose medians are compared, so that one request in flight decides nothing.
    """
    settled = samples[int(warm * len(samples)) :]
    return statistics.median(settled[-few:]) / statistics.median(settled[:few]) - 1
