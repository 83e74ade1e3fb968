"""Three probes: /live (restart the process?), /ready (send requests to it?) and /health (for people).

Only /live never asks the storage: an outage of the database must not make an orchestrator restart every process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from keelbolt import __version__
from keelbolt.server.sse import Streams
from keelbolt.tasks.engine import TaskEngine

LOOK_SECONDS = 1.0  # an answer holds for so long

Facts = Callable[[bool, str], Awaitable[tuple[bool, dict[str, Any]]]]
"""What an agent of its own kind says of its health: given whether the store is well and its words about it."""


@dataclass(slots=True)
class Health:
    """The responses of /live, /ready and /health."""

    engine: TaskEngine
    streams: Streams
    started: float = field(default_factory=time.monotonic)
    draining: bool = False
    facts: Facts | None = None
    _known: tuple[float, int, bytes] | None = None  # until when, and the answer
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def uptime(self) -> float:
        return round(time.monotonic() - self.started, 3)

    def about(self) -> dict[str, Any]:
        """What the operations API shows of this process."""
        return {"version": __version__, "uptimeSeconds": self.uptime(), "openStreams": self.streams.open}

    def live(self) -> tuple[int, bytes]:
        """200 while this process serves requests, also while it stops; the storage is not asked."""
        return 200, to_json({"status": "ok", "uptimeSeconds": self.uptime()})

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
        """200 while the storage works and new requests are welcome, 503 otherwise."""
        if self.draining:
            return 503, b'{"status":"stopping"}'
        return await self.health()
