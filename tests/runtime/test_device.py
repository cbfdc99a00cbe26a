"""Switches of the whole process, turned by several threads."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from tersense.runtime.device import full_precision


@pytest.fixture
def switched_on():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("switched_on")
def test_full_precision_lasts_until_the_last_thread_is_done():
    both_inside, one_left = Barrier(2), Barrier(2)

    def seen() -> bool:
        return torch.backends.cuda.matmul.allow_tf32

    def leaves_first() -> bool:
        with full_precision():
            both_inside.wait()
            inside = seen()
        one_left.wait()
        return inside

    def leaves_last() -> bool:
        with full_precision():
            both_inside.wait()
            one_left.wait()
            return seen()

    with ThreadPoolExecutor(2) as threads:
        jobs = [threads.submit(work) for work in (leaves_first, leaves_last)]
        assert [job.result() for job in jobs] == [False, False]
    assert seen()
