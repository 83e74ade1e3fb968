"""Ids: UUIDv7, in order within a process, unique across threads and forks."""

from __future__ import annotations

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from keelbolt.kernel import ids
from keelbolt.kernel.ids import new_id


def test_an_id_is_a_uuid_of_version_7_and_contains_its_time() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    # The order within the process may run a little ahead of the clock.
    assert before <= made.int >> 80 <= after + 1000


def test_each_one_sorts_after_the_one_before() -> None:
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(set(made))


def test_a_clock_that_goes_back_does_not_break_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert before < new_id() < new_id()


def test_threads_never_get_the_same_one() -> None:
    def make(_: int) -> list[str]:
        return [new_id() for _ in range(2000)]

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(8)))
    for some in made:
        assert some == sorted(some)
    assert len({one for some in made for one in some}) == 8 * 2000


def test_a_forked_child_makes_other_ones() -> None:
    """The child starts with the parent's state, and would repeat its random bytes."""
    new_id()  # entropy stays in the buffer
    randoms = {random_of(one) for one in (new_id() for _ in range(200))}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "\n".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        theirs = answers.read().split("\n")
    assert os.waitpid(child, 0)[1] == 0
    ours = [new_id() for _ in range(100)]
    randoms |= {random_of(one) for one in ours}
    assert len(theirs) == 100
    assert not randoms & {random_of(one) for one in theirs}


def test_a_forked_child_does_not_wait_for_a_lock_of_the_parent() -> None:
    with ids._lock:  # as if another thread were creating an id
        child = os.fork()
        if child == 0:
            new_id()
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def random_of(made: str) -> str:
    return made[-17:]
