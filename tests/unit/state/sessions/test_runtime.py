"""The inbox of a task."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.state.sessions import SteeringInbox
from keelbolt.state.types import SteeringEvent, SteeringEventType


def event(kind: SteeringEventType, **payload: Any) -> SteeringEvent:
    return SteeringEvent(session_id="s", task_id="t", event_type=kind, payload=payload)


async def test_a_full_inbox_accepts_a_cancel() -> None:
    """Other controls are refused, but a cancel is accepted."""
    inbox = SteeringInbox(maxsize=1)
    assert await inbox.push(event(SteeringEventType.INJECT_CONTEXT, text="x"))
    assert not await inbox.push(event(SteeringEventType.CANCEL, reason="stop"))
    assert (inbox.cancelled, inbox.cancel_reason, inbox.cancel_event.is_set()) == (True, "stop", True)
    assert not await inbox.push(event(SteeringEventType.PAUSE))
    waiting = asyncio.create_task(inbox.wait_if_paused())
    await asyncio.sleep(0)
    assert not waiting.done()
    await inbox.push(event(SteeringEventType.RESUME))
    await waiting
    assert [found.event_type for found in inbox.drain()] == [SteeringEventType.INJECT_CONTEXT]
    assert not inbox.has_event()


async def test_user_messages_are_limited() -> None:
    """At most two user messages wait; reading one frees a place."""
    inbox = SteeringInbox()
    assert [await inbox.push(event(SteeringEventType.USER_MESSAGE, text="x")) for _ in range(3)] == [True, True, False]
    await inbox.next()
    assert await inbox.push(event(SteeringEventType.USER_MESSAGE, text="x"))
    assert len(inbox.drain()) == 2
