"""Sessions over a store with three methods, and stores with older method names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from penguiflow.sessions.persistence import StateStoreSessionAdapter as Theirs
from penguiflow.state import InMemoryStateStore

from keelbolt.state import compat
from keelbolt.state.adapters import StateStoreSessionAdapter
from keelbolt.state.types import (
    RemoteBinding,
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    StoredEvent,
    TaskContextSnapshot,
    TaskState,
    TaskStatus,
    TaskType,
    UpdateType,
)


class ThreeMethods:
    """A store with only three methods, which stores a repeated event twice."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []

    async def save_event(self, event: StoredEvent) -> None:
        self.events.append(event)

    async def load_history(self, trace_id: str) -> list[StoredEvent]:
        return sorted((event for event in self.events if event.trace_id == trace_id), key=lambda event: event.ts)

    async def save_remote_binding(self, binding: RemoteBinding) -> None: ...


def adapter() -> StateStoreSessionAdapter:
    return StateStoreSessionAdapter(ThreeMethods(), types="own")


def task(task_id: str = "t", **fields: Any) -> TaskState:
    snapshot = TaskContextSnapshot(session_id="s", task_id=task_id, context_version=3, llm_context={"a": (1, 2)})
    defaults = {"status": TaskStatus.RUNNING, "task_type": TaskType.BACKGROUND, "priority": 1}
    return TaskState(task_id=task_id, session_id="s", context_snapshot=snapshot, **{**defaults, **fields})


def update(number: int, task_id: str = "t", **fields: Any) -> StateUpdate:
    defaults = {"update_type": UpdateType.PROGRESS, "content": {"step": number}}
    return StateUpdate(session_id="s", task_id=task_id, update_id=str(number), **{**defaults, **fields})


def steering(number: int, payload: dict[str, Any]) -> SteeringEvent:
    kind = SteeringEventType.USER_MESSAGE
    return SteeringEvent(session_id="s", task_id="t", event_id=str(number), event_type=kind, payload=payload)


async def test_tasks_are_loaded_in_order_with_their_last_state() -> None:
    sessions = adapter()
    first, second = task("1", result={"x": b"\0", 1: float("inf")}), task("2")
    for state in (first, second):
        await sessions.save_task(state)
    second.update_status(TaskStatus.COMPLETE)
    first.progress = {"n": 1}
    for state in (second, second, first):
        await sessions.save_task(state)
    assert await sessions.list_tasks("s") == [first, second]
    assert await sessions.list_tasks("other") == []


async def test_a_task_that_returns_to_an_earlier_state() -> None:
    """States A, B, A with equal times: the last saved state is loaded."""
    store = InMemoryStateStore()
    sessions = StateStoreSessionAdapter(store, types="own")
    for number in (1, 2, 1):
        await sessions.save_task(task(progress={"n": number}, created_at=_THEN, updated_at=_THEN))
    assert [state.progress for state in await sessions.list_tasks("s")] == [{"n": 1}]


_THEN = datetime(2026, 1, 1, tzinfo=UTC)


async def test_updates_by_cursor() -> None:
    sessions = adapter()
    for number in range(6):
        await sessions.save_update(update(number, "t" if number % 2 else "u"))
    await sessions.save_update(update(2, "u"))  # again

    async def ids(**wanted: Any) -> list[str]:
        return [found.update_id for found in await sessions.list_updates("s", **wanted)]

    assert await ids() == ["0", "1", "2", "3", "4", "5"]
    assert await ids(limit=2) == ["4", "5"]
    assert await ids(since_id="1", limit=2) == ["2", "3"]
    assert await ids(since_id="2", task_id="t", limit=1) == ["3"]
    assert await ids(since_id="unknown", limit=2) == ["4", "5"]
    assert await ids(task_id="t", limit=2) == ["3", "5"]
    assert await ids(limit=0) == []
    assert await sessions.list_updates("other") == []


async def test_updates_are_listed_in_order_of_arrival() -> None:
    sessions = adapter()
    await sessions.save_update(update(1))
    await sessions.save_update(update(2, created_at=_THEN))
    assert [found.update_id for found in await sessions.list_updates("s", since_id="1")] == ["2"]


async def test_steering_is_checked_and_cut() -> None:
    sessions = adapter()
    await sessions.save_steering(steering(1, {"text": "x" * 5000}))
    await sessions.save_steering(steering(1, {"text": "again"}))
    await sessions.save_steering(steering(2, {}))  # invalid for its type, and stored
    found, invalid = await sessions.list_steering("s")
    assert (len(found.payload["text"]), found.source) == (4096, "user")
    assert invalid.payload == {}


async def test_stored_sessions_are_compatible_with_penguiflows_adapter() -> None:
    store = InMemoryStateStore()
    ours, theirs = StateStoreSessionAdapter(store), Theirs(store)
    writers: tuple[Any, ...] = (ours, theirs)
    for number, writer in enumerate(writers):
        from penguiflow.state import models

        snapshot = models.TaskContextSnapshot(session_id="s", task_id=str(number), llm_context={"a": 1})
        state = models.TaskState(
            str(number), "s", models.TaskStatus.RUNNING, models.TaskType.BACKGROUND, 1, snapshot, result={"r": 1}
        )
        await writer.save_task(state)
        kind = models.UpdateType.PROGRESS
        await writer.save_update(
            models.StateUpdate(session_id="s", task_id="t", update_id=str(number), update_type=kind, content={"a": 1})
        )
        await writer.save_steering(
            models.SteeringEvent(
                session_id="s", task_id="t", event_type=models.SteeringEventType.PAUSE, event_id=str(number)
            )
        )
    assert await ours.list_tasks("s") == await theirs.list_tasks("s")
    assert await ours.list_updates("s") == await theirs.list_updates("s")
    assert await ours.list_steering("s") == await theirs.list_steering("s")
    assert len(await ours.list_steering("s")) == 2


# ----------------------------------------------------------------------------------------------------- older names


class Old:
    """A store with the older method names."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    async def save_task_update(self, given: StateUpdate) -> None:
        self.kept.append(given)

    async def list_task_updates(self, session_id: str, **_wanted: Any) -> list[Any]:
        return [given for given in self.kept if given.session_id == session_id]

    async def save_event(self, trace_id: str, event: Any) -> None:
        self.kept.append((trace_id, event))

    async def get_events(self, trace_id: str) -> list[Any]:
        return [event for found, event in self.kept if found == trace_id]


async def test_stores_with_older_names() -> None:
    updates, events = Old(), Old()
    await compat.save_update_compat(updates, update(1))
    assert await compat.list_updates_compat(updates, "s", since_id="0") == updates.kept
    await compat.save_planner_event_compat(events, "t", "event")
    assert await compat.list_planner_events_compat(events, "t") == ["event"]


async def test_stores_with_the_current_names() -> None:
    store = InMemoryStateStore()
    sessions = StateStoreSessionAdapter(store)
    await compat.save_task_compat(sessions, task())
    await compat.save_steering_compat(sessions, steering(1, {"text": "a"}))
    await compat.save_update_compat(sessions, update(1))
    assert len(await compat.list_tasks_compat(sessions, "s")) == 1
    assert len(await compat.list_steering_compat(sessions, "s", limit=1)) == 1
    assert len(await compat.list_updates_compat(sessions, "s")) == 1
    assert compat.get_artifact_store(store) is store.artifact_store
    assert compat.get_artifact_store(sessions) is None
    await compat.maybe_save_remote_binding(store, RemoteBinding("t", None, "task", "url"))
    await compat.maybe_save_remote_binding(None, None)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (compat.save_update_compat, ("u",)),
        (compat.list_updates_compat, ("s",)),
        (compat.save_task_compat, ("t",)),
        (compat.list_tasks_compat, ("s",)),
        (compat.save_steering_compat, ("e",)),
        (compat.list_steering_compat, ("s",)),
        (compat.save_planner_event_compat, ("t", "e")),
        (compat.list_planner_events_compat, ("t",)),
    ],
)
async def test_a_missing_method_raises(call: Any, arguments: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="StateStore missing"):
        await call(object(), *arguments)


async def test_save_event_refuses_planner_events() -> None:
    with pytest.raises(TypeError, match="save_planner_event"):
        await compat.save_planner_event_compat(ThreeMethods(), "t", "e")
