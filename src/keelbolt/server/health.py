"""Probes and metrics: /live (restart the process?), /ready (send requests?), /health (for people), /metrics.

Only /live never uses the storage: an outage of the database must not make an orchestrator restart every process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json
from starlette.types import Scope, Send

from keelbolt import __version__
from keelbolt.errors import KeelboltError
from keelbolt.kernel.work import WorkState
from keelbolt.observability.metrics import Metrics, StoreNumbers
from keelbolt.protocol.types import TaskState
from keelbolt.server.gate import query_of
from keelbolt.server.http import header, respond
from keelbolt.server.sse import Streams
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.families import QUEUE, WEBHOOKS

QUEUES = (QUEUE, WEBHOOKS)
WORK_STATES: tuple[WorkState, ...] = ("waiting", "held", "dead")
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
CLOSE = ((b"connection", b"close"),)  # otherwise each scrape of a Prometheus would reach the same process
COUNT_SECONDS = 2.0  # longest wait of a scrape for the store; less than the shortest usual scrape timeout


class MetricsPage:
    """Metrics of this process and the queues of the store. They hold no data of callers, and need no authentication."""

    def __init__(self, metrics: Metrics, health: HealthRoutes) -> None:
        self._metrics = metrics
        self._health = health
        self._counting = asyncio.Lock()
        self._counted: StoreNumbers | None = None
        self._counted_until = 0.0
        if (meter := health.engine.kernel.meter) is not None:
            metrics.commit_seconds, metrics.commit_sizes = meter.seconds, meter.sizes
            metrics.storage_errors = meter.errors
        self.json_first = False  # default to JSON unless the client asks for text
        metrics.gauge("tasks_running", "Tasks that run in this process now", self._running)
        metrics.gauge("streams_open", "Streams that are open in this process now", lambda: health.streams.open)
        metrics.gauge("uptime_seconds", "Time since this process started serving", health.uptime)

    def _running(self) -> int:
        runner = self._health.engine.runner
        return len(runner.runs) if runner is not None else 0

    async def __call__(self, scope: Scope, send: Send) -> None:
        accept = header(scope, b"accept") or ""
        wants_json = "application/json" in accept or query_of(scope).get("format") == "json"
        wants_text = "text/plain" in accept or "openmetrics" in accept
        if wants_json or (self.json_first and not wants_text):
            await respond(send, 200, to_json(self.numbers()))
        else:
            text = self._metrics.text(await self._store()).encode()
            await respond(send, 200, text, content_type=TEXT, headers=CLOSE)

    async def _store(self) -> StoreNumbers | None:
        """Return the counts of the store; None if it does not respond in time.

        The cost grows with the number of work items, not of tasks. Counting takes at most a twentieth of the time.
        """
        async with self._counting:
            started = time.monotonic()
            if self._counted_until <= started:
                try:
                    async with asyncio.timeout(COUNT_SECONDS):
                        self._counted = await self._count()
                except (KeelboltError, TimeoutError):
                    self._counted = None
                ended = time.monotonic()
                self._counted_until = ended + max(1.0, 20 * (ended - started))
            return self._counted

    async def _count(self) -> StoreNumbers:
        counts = await self._health.engine.kernel.count_work(QUEUES)
        work = {
            queue: {str(state): counts.work.get(queue, {}).get(state, 0) for state in WORK_STATES} for queue in QUEUES
        }
        return StoreNumbers(work, counts.oldest, sum(left > 0 for left in counts.workers.values()))

    def numbers(self) -> dict[str, float]:
        tasks = self._metrics.tasks
        return {
            "active_tasks": self._running(),
            "completed_tasks": tasks[TaskState.completed.name],
            "failed_tasks": tasks[TaskState.failed.name],
            "canceled_tasks": tasks[TaskState.canceled.name],
            "total_requests": sum(self._metrics.requests.values()),
            "uptime_seconds": self._health.uptime(),
            "sse_active_streams": self._health.streams.open,
            "push_notifications_sent": self._metrics.webhooks["sent"],
            "push_notifications_failed": self._metrics.webhooks["failed"],
        }


# --------------------------------------------------------------------------------------------------------------- health


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
