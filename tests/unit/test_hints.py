"""Hints: a watch wakes once for what happened since its last wait, and only for its own topic."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.storage.hints import Board, LogTopic, QueueTopic, Topic, Watch

LOG = LogTopic("p", "events", "a")
QUEUE = QueueTopic("jobs")


async def test_a_wake_before_the_wait_is_not_lost() -> None:
    board = Board()
    with Watch(board, LOG) as watch:
        board.wake([LOG])
        board.wake([LOG])
        assert await watch.wait(0) is True
        assert await watch.wait(0) is False


async def test_a_waiting_watch_wakes() -> None:
    board = Board()
    with Watch(board, LOG) as watch:
        waiting = asyncio.create_task(watch.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        board.wake([QUEUE, LOG])
        assert await waiting is True


async def test_only_watches_of_the_topic_wake() -> None:
    board = Board()
    with Watch(board, LOG) as one, Watch(board, LOG) as other, Watch(board, QUEUE) as queue:
        board.wake([LOG, LogTopic("p", "events", "b")])
        assert [await watch.wait(0) for watch in (one, other, queue)] == [True, True, False]


async def test_a_watch_that_was_left_hears_nothing_and_leaves_nothing() -> None:
    board = Board()
    with Watch(board, LOG) as one:
        with Watch(board, LOG) as other:
            assert board.topics() == (LOG,)
        board.wake([LOG])
        assert await one.wait(0) is True
        assert await other.wait(0) is False
    assert board.topics() == ()
    board.wake([LOG])
    board.wake_all()
    assert await one.wait(0) is False


async def test_waking_all_reaches_every_topic() -> None:
    board = Board()
    with Watch(board, LOG) as log, Watch(board, QUEUE) as queue:
        board.wake_all()
        assert await log.wait(0)
        assert await queue.wait(0)


async def test_digests_wake_their_topics_and_are_made_once() -> None:
    made: list[Topic] = []

    def digest(topic: Topic) -> bytes:
        made.append(topic)
        return repr(topic).encode()

    board = Board()
    with Watch(board, LOG) as log, Watch(board, QUEUE) as queue:
        for _ in range(3):
            board.wake_digests([b"noise", repr(LOG).encode()], digest)
        assert await log.wait(0) is True
        assert await queue.wait(0) is False
        assert sorted(map(str, made)) == sorted(map(str, (LOG, QUEUE)))
    board.wake_digests([repr(LOG).encode()], digest)
    assert len(made) == 2  # nobody watches: nothing to compute


async def test_a_cancelled_wait_passes_the_cancellation_on() -> None:
    with Watch(Board(), LOG) as watch:
        waiting = asyncio.create_task(watch.wait(60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
