"""Whether the agent lives, whether it should be given work, and what it has done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from keelbolt.server.sse import Streams
from keelbolt.tasks.engine import TaskEngine

LOOK_SECONDS = 1.0  # an answer holds for so long

Facts = Callable[[bool, str], Awaitable[tuple[bool, dict[str, Any]]]]
"""What an agent of its own kind says of its health: given whether the store is well and its words about it."""


@dataclass(slots=True)
class Health:
    """The answers of /health and /ready."""

    engine: TaskEngine
    streams: Streams
    started: float = field(default_factory=time.monotonic)
    draining: bool = False
    facts: Facts | None = None
    _known: tuple[float, int, bytes] | None = None  # until when, and the answer
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def uptime(self) -> float:
        return round(time.monotonic() - self.started, 3)

    async def health(self) -> tuple[int, bytes]:
        """200 while reads and writes of the store work, 503 otherwise.

        Everybody may ask, and a look writes: so the store is looked at once a second at most.
        """
        async with self._asking:
            if self._known is None or self._known[0] <= time.monotonic():
                status, body = await self._look()
                self._known = time.monotonic() + LOOK_SECONDS, status, body
            return self._known[1:]

    async def _look(self) -> tuple[int, bytes]:
        store = await self.engine.kernel.health()
        good = store.reads and store.writes
        body: dict[str, Any] = {
            "status": "ok" if good else "unavailable",
            "storage": {
                "engine": store.engine,
                "durability": store.durability,
                "reads": store.reads,
                "writes": store.writes,
            },
            "uptimeSeconds": self.uptime(),
        }
        if self.facts is not None:
            good, told = await self.facts(good, store.detail)
            body |= told
        return (200 if good else 503), to_json(body)

    async def ready(self) -> tuple[int, bytes]:
        """200 while new requests are welcome."""
        if self.draining:
            return 503, b'{"status":"stopping"}'
        return await self.health()
