"""Large blocks that are freed are there for the next one."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from tersense.runtime.device import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.full(2**23, 1.0)  # 64 MiB: more than the C library keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

new_pages()
print(new_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide themselves")
def test_freed_memory_is_used_again_without_asking_the_system():
    keep, leave = (_count_new_pages(word) for word in ("keep", "leave"))
    assert keep < leave / 4


def _count_new_pages(word):
    command = [sys.executable, "-c", PROGRAM, word]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)
