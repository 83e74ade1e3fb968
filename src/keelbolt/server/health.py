"""Three probes: /live (restart the process?), /ready (send requests to it?) and /health (for people).

Only /live never uses the storage: an outage of the database must not make an orchestrator restart every process.
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

LOOK_SECONDS = 1.0  # how long a result is cached

Facts = Callable[[bool, str], Awaitable[tuple[bool, dict[str, Any]]]]
"""Adds an agent's own health facts; called with whether the store is healthy and the store's detail text."""


@dataclass(slots=True)
class HealthRoutes:
    """The responses of /live, /ready and /health."""

    engine: TaskEngine
    streams: Streams
    started: float = field(default_factory=time.monotonic)
    draining: bool = False
    facts: Facts | None = None
    _known: tuple[float, int, bytes] | None = None  # valid until, status, body
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def uptime(self) -> float:
        return round(time.monotonic() - self.started, 3)

    def about(self) -> dict[str, Any]:
        """Return the facts about this process for the operations API."""
        return {"version": __version__, "uptimeSeconds": self.uptime(), "openStreams": self.streams.open}

    def live(self) -> tuple[int, bytes]:
        """200 while this process serves requests, also while it stops; does not use the storage."""
        return 200, to_json({"status": "ok", "uptimeSeconds": self.uptime()})

    async def health(self) -> tuple[int, bytes]:
        """200 while reads and writes of the store work, 503 otherwise.

        Every client may call it, and a check writes; so the store is checked at most once a second.
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
            good, more = await self.facts(good, store.detail)
            body |= more
        return (200 if good else 503), to_json(body)

    async def ready(self) -> tuple[int, bytes]:
        """200 while the storage works and the process accepts requests, 503 otherwise."""
        if self.draining:
            return 503, b'{"status":"stopping"}'
        return await self.health()
