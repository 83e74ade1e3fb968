"""Raw pipelined calls of the function that commits use: the limit of the server itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

from benchmarks.load import BODY, CHUNK, TASKS
from keelbolt.kernel import Append, Draft, Put, new_id, open_storage
from keelbolt.kernel.redis.connection import Reply, Wire, address_of


async def raw_rate(url: str, *, seconds: float, calls: int) -> float:
    """Return the commits per second of one connection that sends calls in batches and waits for their replies."""
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
    """Return the engine's commands for a batch of this many commits, including the check that it is on disk."""
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
