"""Measures idle streams: CPU and memory of a server with many open ones.

`python -m benchmarks.idle STORAGE COUNT` prints one line of figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from benchmarks.http_load import message, request
from benchmarks.processes import Served, started

SECONDS = 20.0
OPENING = 32  # streams that are opened at once


@dataclass(frozen=True, slots=True)
class Idle:
    """CPU in parts of one core, and memory of one stream in bytes."""

    core: float
    memory: float


async def measure(url: str, count: int, seconds: float = SECONDS) -> Idle:
    """Open this many streams, each on its own running task, and measure the idle server."""
    async with started("served", "idle", url) as agent:
        async with opened(agent, 1, "first"):
            before = agent.rss()
        async with opened(agent, count, "idle"):
            memory = (agent.rss() - before) / count
            await asyncio.sleep(2)  # lets work from opening the streams finish
            used = agent.cpu_seconds()
            await asyncio.sleep(seconds)
            return Idle((agent.cpu_seconds() - used) / seconds, memory)


@contextlib.asynccontextmanager
async def opened(agent: Served, count: int, name: str) -> AsyncIterator[None]:
    """Open this many streams and wait for the first event of each; later events are discarded."""
    free = asyncio.Semaphore(OPENING)

    async def one(number: int) -> asyncio.Transport:
        async with free, asyncio.timeout(120):
            transport, reader = await asyncio.get_running_loop().create_connection(_Reader, "127.0.0.1", agent.port)
            transport.write(request("POST", "/", message("wait", f"{name}-{number}", "SendStreamingMessage")))
            await reader.began
            return transport

    transports = await asyncio.gather(*map(one, range(count)))
    try:
        yield
    finally:
        for transport in transports:
            transport.abort()


class _Reader(asyncio.Protocol):
    """Waits for the first event, then discards later ones."""

    def __init__(self) -> None:
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        if not self.began.done():
            self._head += data
            if b"data:" in self._head:
                self.began.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.began.done():
            self.began.set_exception(exc or RuntimeError(f"the server returned {self._head[:200]!r}"))


if __name__ == "__main__":
    found = asyncio.run(measure(sys.argv[1], int(sys.argv[2])))
    print(f"{100 * found.core:.1f} % of a core, {found.memory / 1024:.0f} kB per stream")
