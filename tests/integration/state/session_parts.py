"""What the tests of sessions share: stores that stand for processes, tasks that wait, and a way to die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from keelbolt.state import StateStore
from keelbolt.state.sessions import SessionLimits, StreamingSession, Subscription, TaskRuntime
from keelbolt.state.types import SteeringEvent, SteeringEventType, TaskType, UpdateType

BACKGROUND = TaskType.BACKGROUND
SHORT = SessionLimits(lease_seconds=0.5)


async def forever(_runtime: TaskRuntime) -> None:
    """A task that only ends when somebody ends it."""
    await asyncio.Event().wait()


def demand(kind: SteeringEventType, task_id: str, source: str = "user", **payload: Any) -> SteeringEvent:
    return SteeringEvent(session_id="s", task_id=task_id, event_type=kind, payload=payload, source=source)


async def told(updates: Subscription, task_id: str, reason: str) -> None:
    """Wait until a task says that it stands so."""
    async for update in updates:
        found = update.content.get("reason") if update.update_type == UpdateType.STATUS_CHANGE else None
        if (update.task_id, found) == (task_id, reason):
            return


@asynccontextmanager
async def sessions(url: str, count: int, **options: Any) -> AsyncIterator[list[StreamingSession]]:
    """The same session as so many processes have it: each with a store, a lease and tasks of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            store = await stack.enter_async_context(StateStore(url, types="own"))
            session = StreamingSession("s", state_store=store, **options)
            found.append(await stack.enter_async_context(session))
        yield found


async def die(session: StreamingSession) -> None:
    """What is left of a session whose process died: nobody renews its lease."""
    process = session._core.process

    async def stop(_kernel: Any) -> None:
        owner = process._owner
        assert owner is not None
        for task in owner._tasks:
            task.cancel()

    await process.ground.call(stop)
    await asyncio.sleep(process.lease_seconds)
