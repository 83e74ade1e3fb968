"""A write whose connection breaks is never reported as not written if the server may have executed it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keelbolt.errors import CommitInDoubt, StorageUnavailable
from keelbolt.kernel.redis.connection import RedisAddress, Reply, Wire
from keelbolt.kernel.redis.pipeline import DurabilityRequest, RedisPipeline
from keelbolt.kernel.redis.replies import Disconnected

PATIENCE_SECONDS = 0.2


class BreakingWire(Wire):
    """Replies to each pipeline of calls with the next replies; breaks when there are none left."""

    def __init__(self, *replies: list[Reply]) -> None:
        super().__init__(RedisAddress(), seconds=1.0)
        self._replies = list(replies)

    async def run(self, calls: Sequence[Sequence[bytes]], *, seconds: float | None = None) -> list[Reply]:
        if not self._replies:
            raise Disconnected
        return self._replies.pop(0)


async def outcome(wire: BreakingWire) -> object:
    """The error of a write on this connection; after it breaks, the server can't be reached."""
    wires = [wire]

    async def connect() -> Wire:
        if not wires:
            raise Disconnected
        return wires.pop()

    assurance = DurabilityRequest.counting(b"WAIT", b"1", b"20", enough=(1,))
    pipeline = RedisPipeline(connect, patience_seconds=PATIENCE_SECONDS, assurance=assurance)
    try:
        with pytest.raises((CommitInDoubt, StorageUnavailable)) as found:
            await pipeline.write(b"commit", b"base", (), lambda reply: reply)
        return found.type
    finally:
        await pipeline.close()


async def test_a_write_that_the_replicas_did_not_confirm_before_the_connection_broke_is_in_doubt() -> None:
    assert await outcome(BreakingWire([[1], 0])) is CommitInDoubt


async def test_a_write_without_a_reply_is_in_doubt() -> None:
    assert await outcome(BreakingWire()) is CommitInDoubt


async def test_a_write_that_could_not_be_sent_was_not_written() -> None:
    async def connect() -> Wire:
        raise Disconnected

    pipeline = RedisPipeline(connect, patience_seconds=PATIENCE_SECONDS)
    with pytest.raises(StorageUnavailable, match="nothing was written"):
        await pipeline.write(b"commit", b"base", (), lambda reply: reply)
    await pipeline.close()
