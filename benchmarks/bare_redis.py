"""Raw pipelined calls of the very function that commits go through: what the server itself can do with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

from benchmarks.load import BODY, CHUNK, TASKS
from keelbolt.kernel import Append, Draft, Put, new_id, open_storage
from keelbolt.kernel.redis.address import address_of
from keelbolt.kernel.redis.connection import Reply, Wire


async def raw_rate(url: str, *, seconds: float, calls: int) -> float:
    """Commits per second of one connection that sends so many calls at a time, and waits for their answers."""
    words = await _words(url, calls)
    wire = Wire(address_of(urlsplit(url), dict(parse_qsl(urlsplit(url).query))), seconds=10.0)
    await wire.open()
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        replies = await wire.run(words)
        assert not any(isinstance(reply, Exception) for reply in replies)
        done += calls
    rate = done / (time.perf_counter() - start)
    await wire.close()
    return rate


async def _words(url: str, calls: int) -> Sequence[Sequence[bytes]]:
    """What the engine sends for a batch of so many commits, the question whether it is on disk included."""
    sent: list[Sequence[Sequence[bytes]]] = []
    run = Wire.run

    async def listening(wire: Wire, words: Sequence[Sequence[bytes]], *, seconds: float | None = None) -> list[Reply]:
        sent.append(words)
        return await run(wire, words, seconds=seconds)

    async with open_storage(url, declare=[TASKS]) as kernel:
        fields = {"state": "working"}
        partition, keys = f"bench/{new_id()}", [new_id() for _ in range(calls)]

        async def batch() -> None:
            await asyncio.gather(
                *(
                    kernel.commit(
                        partition,
                        Put("bench-task", key, BODY, fields),
                        Append("bench-log", key, (Draft("chunk", CHUNK),)),
                    )
                    for key in keys
                )
            )

        await batch()
        with patch.object(Wire, "run", listening):
            await batch()
    return max(sent, key=len)
