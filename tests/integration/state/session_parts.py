"""Shared parts of the session tests: stores that act as processes, tasks that wait, and simulated crashes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from keelbolt.state import StateStore
from keelbolt.state.sessions import SessionLimits, StreamingSession, Subscription, TaskRuntime
from keelbolt.state.types import ArtifactScope, RemoteBinding, SteeringEvent, SteeringEventType, TaskType, UpdateType
from tests.integration.state import things

_numbers = itertools.count()
BACKGROUND = TaskType.BACKGROUND
SHORT = SessionLimits(lease_seconds=3.0)  # long enough for a busy machine to renew the lease


async def forever(_runtime: TaskRuntime) -> None:
    """Run until the task is cancelled."""
    await asyncio.Event().wait()


def demand(kind: SteeringEventType, task_id: str, source: str = "user", **payload: Any) -> SteeringEvent:
    return SteeringEvent(session_id="s", task_id=task_id, event_type=kind, payload=payload, source=source)


async def until_status(updates: Subscription, task_id: str, reason: str) -> None:
    """Wait until a task reports this status."""
    async for update in updates:
        found = update.content.get("reason") if update.update_type == UpdateType.STATUS_CHANGE else None
        if (update.task_id, found) == (task_id, reason):
            return


@asynccontextmanager
async def sessions(
    url: str, count: int, *, session_id: str = "s", **options: Any
) -> AsyncIterator[list[StreamingSession]]:
    """The same session in several simulated processes, each with its own storage, lease and tasks."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            different = 5.0 + next(_numbers)  # stores with the same settings share one storage
            store = await stack.enter_async_context(StateStore(url, types="own", exit_seconds=different))
            session = StreamingSession(session_id, state_store=store, **options)
            found.append(await stack.enter_async_context(session))
        yield found


async def die(session: StreamingSession) -> None:
    """Leave a session as a crashed process does: its lease is no longer renewed."""
    process = session._parts.runs._process

    async def stop(_scope: Any) -> None:
        assert process._lease is not None
        assert process._serving is not None
        process._lease.abandon()
        process._serving.cancel()

    await session._parts.storage.call(stop)


def saves(store: StateStore) -> list[Callable[[], Awaitable[Any]]]:
    """Every way to save data of the session "erased" and its trace; each contains "canary"."""
    mine = {"session": "erased"}
    scope = ArtifactScope(session_id="erased")
    late = RemoteBinding("trace-canary", "canary", "t", "https://canary", router_session_id="erased")
    return [
        lambda: store.save_task(things.task(1, **mine, error="canary")),
        lambda: store.save_update(things.update(next(_numbers), "canary", **mine)),
        lambda: store.save_steering(things.steering(next(_numbers), "canary", **mine)),
        lambda: store.save_trajectory("trace-canary", "erased", things.trajectory("canary")),
        lambda: store.save_remote_binding(late),
        lambda: store.save_event(things.event(1.0, "trace-canary", text="canary")),
        lambda: store.save_planner_event("trace-canary", things.planned(1, text="canary")),
        lambda: store.save_memory_state("tenant:canary:erased", {"text": "canary"}),
        lambda: store.artifact_store.put_text(f"canary {next(_numbers)}", scope=scope),
    ]


async def until(condition: Callable[[], Awaitable[bool]], *, seconds: float = 30.0) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.05)
