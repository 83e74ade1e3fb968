"""A subscription wakes once for all notifications of its topic since its last wait."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.kernel.hints import Board, LogTopic, QueueTopic, Topic, Watch, topic_digest

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


async def test_a_closed_subscription_gets_no_notifications() -> None:
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


async def test_digests_wake_their_topics() -> None:
    """Other processes send topics as digests."""
    board = Board()
    with Watch(board, LOG) as log, Watch(board, LOG) as same, Watch(board, QUEUE) as queue:
        board.wake_digests([b"noise", topic_digest(LOG), b""])
        assert [await watch.wait(0) for watch in (log, same, queue)] == [True, True, False]
        with Watch(board, LOG):
            pass
        board.wake_digests([topic_digest(LOG), topic_digest(QUEUE)])
        assert [await watch.wait(0) for watch in (log, same, queue)] == [True, True, True]
    board.wake_digests([topic_digest(LOG)])
    assert await log.wait(0) is False


def test_a_digest_is_short_and_stands_for_its_topic_alone() -> None:
    topics: list[Topic] = [
        LOG,
        LogTopic("p", "events", "b"),
        LogTopic("p", "event", "sa"),
        LogTopic("pe", "vents", "a"),
        QueueTopic("p"),
        QueueTopic("events"),
    ]
    digests = {topic_digest(topic) for topic in topics}
    assert len(digests) == len(topics)
    assert {len(digest) for digest in digests} == {8}


async def test_a_cancelled_wait_passes_the_cancellation_on() -> None:
    with Watch(Board(), LOG) as watch:
        waiting = asyncio.create_task(watch.wait(60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
