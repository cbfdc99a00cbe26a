"""Work is shared without losing or repeating a piece, whoever comes late, fails or forks."""

import sys
import threading

import numpy as np
import pytest

from processes import call_in_fork
from tersense.sensing._threads import (
    Crew,
    address_of,
    compiled,
    finish,
    offer,
    pause,
    take,
    task_at,
    wait_for_all,
)


@compiled
def count_up(begin, end, counts, gather):
    """Add one in every place of a piece; with ``gather``, only go on when another has begun."""
    for k in range(begin, end):
        counts[k] += 1
    waited = 0
    while gather and counts.sum() <= end - begin and waited < 10**7:
        pause()
        waited += 1


@compiled
def lead(box, pieces, counts, gather):
    """Return how many pieces the leader did itself."""
    task = counts, gather
    offer(box, counts.size, pieces, address_of(task))
    own = 0
    begin, end = take(box, 1)
    while begin >= 0:
        count_up(begin, end, *task)
        own += 1
        finish(box, True)
        begin, end = take(box, 1)
    wait_for_all(box)
    return own


@compiled
def help_out(box, like):
    begin, end = take(box, 1000)
    while begin >= 0:
        count_up(begin, end, *task_at(box, like))
        finish(box, True)
        begin, end = take(box, 1000)


def crew_of(helpers):
    like = np.empty(0, np.int64), False
    return Crew(helpers, lambda box: help_out(box, like))


@pytest.fixture(scope="module")
def crews():
    return {helpers: crew_of(helpers) for helpers in (1, 2, 5)}


@pytest.mark.parametrize("helpers", [1, 2, 5])
@pytest.mark.parametrize("length", [0, 1, 5, 64])
def test_every_piece_is_done_once(crews, helpers, length):
    for _ in range(200):
        counts = np.zeros(length, np.int64)
        crews[helpers].share(lambda box, pieces, counts=counts: lead(box, pieces, counts, False))
        assert (counts == 1).all()


def test_threads_really_work_at_once(crews):
    own = []
    counts = np.zeros(64, np.int64)
    # A leader alone would wait in vain for a second piece to begin, and then do all of them.
    crews[1].share(lambda box, pieces: own.append((lead(box, pieces, counts, True), pieces)))
    ((led, pieces),) = own
    assert led < pieces
    assert (counts == 1).all()


def test_leaders_at_once_do_not_meet(crews):
    wrong = []

    def lead_often():
        for _ in range(300):
            counts = np.zeros(33, np.int64)
            crews[2].share(lambda box, pieces, counts=counts: lead(box, pieces, counts, False))
            wrong.extend(counts[counts != 1])

    threads = [threading.Thread(target=lead_often) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_leader_that_fails_leaves_the_crew_free(crews):
    def fail(box, pieces):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crews[1].share(fail)
    pieces_offered = []
    crews[1].share(lambda box, pieces: pieces_offered.append(pieces))
    assert pieces_offered[0] > 1


def test_helpers_that_fail_leave_the_work_to_the_leader(monkeypatch):
    heard = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: heard.set())
    crew = crew_of(1)
    crew._help_out = lambda box: 1 / 0
    for _ in range(3):
        counts = np.zeros(10, np.int64)
        crew.share(lambda box, pieces, counts=counts: lead(box, pieces, counts, False))
        assert (counts == 1).all()
    assert heard.wait(20)


def test_who_waits_learns_whether_all_pieces_were_done_well():
    box = np.zeros(48, np.int64)
    for outcomes in [True, True], [False, True], [True, True]:
        offer(box, 4, 2, 0)
        for well in outcomes:
            assert take(box, 1) != (-1, -1)
            finish(box, well)
        assert wait_for_all(box) == all(outcomes)


def test_nothing_is_left_to_take_from_what_is_done():
    box, counts = np.zeros(48, np.int64), np.zeros(7, np.int64)
    lead(box, 3, counts, False)
    assert [take(box, 1) for _ in range(5)] == [(-1, -1)] * 5
    lead(box, 3, counts, False)
    assert (counts == 2).all()


def test_helpers_do_not_wait_awake_for_ever():
    help_out(np.zeros(48, np.int64), (np.empty(0, np.int64), False))  # returns


@pytest.mark.skipif(sys.platform != "linux", reason="fork is safe to try on Linux only")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_crew_without_its_threads_still_gets_the_work_done(crews):
    def count():
        counts = np.zeros(64, np.int64)
        crews[2].share(lambda box, pieces: lead(box, pieces, counts, False))
        return counts.tolist()

    assert call_in_fork(count) == [1] * 64
