"""A remote client of a session."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from keelbolt.state.sessions import StreamingSession, TaskRuntime
from keelbolt.state.types import StateUpdate, SteeringEvent, SteeringEventType


class Wire:
    """A connection made of two queues."""

    def __init__(self) -> None:
        self.out: asyncio.Queue[StateUpdate] = asyncio.Queue()
        self.back: asyncio.Queue[SteeringEvent | None] = asyncio.Queue()
        self.closed = False

    async def send(self, update: StateUpdate) -> None:
        if self.closed:
            raise ConnectionError("gone")
        await self.out.put(update)

    async def receive(self) -> SteeringEvent | None:
        return await self.back.get()

    async def close(self) -> None:
        self.closed = True


async def patient(runtime: TaskRuntime) -> Any:
    return (await runtime.steering.next()).payload["text"]


async def test_updates_and_controls_are_transported(session: StreamingSession) -> None:
    """Both are transported until the client disconnects; after a reconnect it gets the updates that it missed."""
    wire = Wire()
    async with await session.connect(wire) as connection:
        running = asyncio.create_task(session.run_task(patient, task_id="t"))
        first = await wire.out.get()
        assert first.content["reason"] == "created"
        demand = SteeringEvent(
            session_id="s", task_id="t", event_type=SteeringEventType.USER_MESSAGE, payload={"text": "hello"}
        )
        wire.back.put_nowait(demand)
        assert (await running).payload == "hello"
        wire.back.put_nowait(None)
        await connection.wait()
    assert wire.closed
    again = Wire()
    async with await session.connect(again, since_id=first.update_id):
        assert (await again.out.get()).content["reason"] == "running"


async def test_a_session_does_not_keep_the_subscriptions_of_clients_that_are_gone(session: StreamingSession) -> None:
    for _ in range(5):
        wire = Wire()
        wire.back.put_nowait(None)
        async with await session.connect(wire) as connection:
            await connection.wait()
        del connection
    gc.collect()
    assert len(session._parts.updates._open) <= 1  # the frames of the last one may still be alive


async def test_a_broken_connection_raises(session: StreamingSession) -> None:
    """A caller that waits for the connection gets the error that ended it."""
    wire = Wire()
    async with await session.connect(wire) as connection:
        wire.closed = True
        session._parts.updates.notify("t", "info", "title", "body")
        with pytest.raises(ConnectionError, match="gone"):
            await connection.wait()
