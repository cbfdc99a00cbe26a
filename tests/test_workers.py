"""Work is shared without losing or repeating a piece."""

import threading

import pytest

from tersense.workers import share


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 5, 64])
def test_every_piece_is_done_once(threads, length):
    done = []
    share(lambda begin, end: done.extend(range(begin, end)), length, threads)
    assert sorted(done) == list(range(length))


def test_threads_really_work_at_once():
    both_there = threading.Barrier(2, timeout=20)
    seen = set()

    def work(begin, end):
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both_there.wait()  # would break if one thread did everything

    share(work, 8, 2)
    assert len(seen) == 2


def test_an_error_in_a_helper_is_heard():
    caller = threading.get_ident()
    met = threading.Barrier(2, timeout=20)

    def work(begin, end):
        if not met.broken and begin < 4:
            met.wait()
        if threading.get_ident() != caller:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        share(work, 8, 2)


def test_an_index_error_of_the_work_itself_is_not_swallowed():
    def work(begin, end):
        raise IndexError("mine")

    with pytest.raises(IndexError, match="mine"):
        share(work, 8, 2)
