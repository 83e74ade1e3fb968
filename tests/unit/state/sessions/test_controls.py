"""Steering: which controls are accepted, which wait for an approval, and their effects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import StateNotSaved, SteeringCancelled, StorageUnreachable
from keelbolt.state import StateStore
from keelbolt.state.sessions import ContextPatch, ControlPolicy, MergeStrategy, StreamingSession, TaskRuntime
from keelbolt.state.types import SteeringEvent, SteeringEventType, TaskStatus, TaskType, UpdateType

Kind = SteeringEventType


def demand(kind: Kind, task_id: str = "t", source: str = "user", event_id: str | None = None, **payload: Any) -> Any:
    event = SteeringEvent(session_id="s", task_id=task_id, event_type=kind, payload=payload, source=source)
    return event.model_copy(update={"event_id": event_id}) if event_id else event


async def forever(_runtime: TaskRuntime) -> None:
    await asyncio.Event().wait()


async def status_of(session: StreamingSession, task_id: str = "t") -> TaskStatus:
    task = await session.get_task(task_id)
    assert task is not None
    return task.status


async def events(store: StateStore) -> list[SteeringEvent]:
    return list(await store.list_steering("s"))


@pytest.fixture
async def inbox(session: StreamingSession) -> list[SteeringEvent]:
    """A running task that records the controls it receives."""
    received: list[SteeringEvent] = []

    async def pipeline(runtime: TaskRuntime) -> None:
        while True:
            received.append(await runtime.steering.next())

    updates = await session.subscribe()
    await session.spawn_task(pipeline, task_id="t", task_type=TaskType.BACKGROUND)
    async for update in updates:
        if update.content["reason"] == "running":
            break
    return received


async def test_a_control_is_stored_and_reaches_the_task(
    session: StreamingSession, store: StateStore, inbox: list[SteeringEvent]
) -> None:
    """Subscribers get an update about the control."""
    updates = await session.subscribe()
    assert await session.steer(demand(Kind.INJECT_CONTEXT, text="look there"))
    assert (await anext(updates)).content["status"] == "STEERING_RECEIVED"
    assert [event.payload for event in inbox] == [{"text": "look there"}]
    assert [event.payload for event in await events(store)] == [{"text": "look there"}]


@pytest.mark.parametrize(
    "wrong",
    [
        demand(Kind.INJECT_CONTEXT),
        demand(Kind.PRIORITIZE, priority="high"),
        demand(Kind.APPROVE),
        SteeringEvent(session_id="other", task_id="t", event_type=Kind.CANCEL),
    ],
)
@pytest.mark.usefixtures("inbox")
async def test_invalid_controls_are_not_stored(
    session: StreamingSession, store: StateStore, wrong: SteeringEvent
) -> None:
    """A control that is invalid for its type, or is addressed to another session, is refused."""
    assert not await session.steer(wrong)
    assert await events(store) == []


async def test_a_control_that_could_not_be_stored_can_be_repeated(
    session: StreamingSession, store: StateStore, inbox: list[SteeringEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = demand(Kind.USER_MESSAGE, text="hello")

    def fail(_event: SteeringEvent) -> None:
        raise StateNotSaved("save_steering", StorageUnreachable())

    monkeypatch.setattr(store, "save_steering", fail)
    with pytest.raises(StateNotSaved):
        await session.steer(event)
    monkeypatch.undo()
    assert await session.steer(event)
    assert not await session.steer(event)
    await asyncio.sleep(0)
    assert [received.event_id for received in inbox] == [event.event_id]


async def test_a_repeated_control_is_ignored(
    session: StreamingSession, inbox: list[SteeringEvent], store: StateStore
) -> None:
    """A session that is opened later finds the first control in the store."""
    again = demand(Kind.USER_MESSAGE, text="hello", event_id="once")
    assert await session.steer(again)
    assert not await session.steer(again)
    async with StreamingSession("s", state_store=store) as other:
        assert not await other.steer(again)
    assert len(await events(store)) == 1
    assert len(inbox) == 1


async def test_pause_resume_and_priority(session: StreamingSession) -> None:
    """The task's status and priority change, and the pipeline waits while it is paused."""
    passed = asyncio.Event()

    async def pipeline(runtime: TaskRuntime) -> None:
        await runtime.steering.next()
        await runtime.steering.wait_if_paused()
        passed.set()

    await session.spawn_task(pipeline, task_id="t")
    await session.steer(demand(Kind.PAUSE))
    assert await status_of(session) == TaskStatus.PAUSED
    await session.steer(demand(Kind.PRIORITIZE, priority=7))
    assert not passed.is_set()
    await session.steer(demand(Kind.RESUME))
    await passed.wait()
    task = await session.get_task("t")
    assert task is not None
    assert task.priority == 7


async def test_ended_and_unknown_tasks_accept_no_controls(session: StreamingSession) -> None:
    """An ended task does not change; a control for an unknown task is refused."""

    async def pipeline(_runtime: TaskRuntime) -> None:
        pass

    await session.run_task(pipeline, task_id="t")
    for kind in (Kind.CANCEL, Kind.PAUSE, Kind.RESUME):
        assert not await session.steer(demand(kind))
    assert not await session.cancel_task("unknown")
    assert await status_of(session) == TaskStatus.COMPLETE


# -------------------------------------------------------------------------------------------------------- cancelling


async def test_a_cancel_reaches_the_children(session: StreamingSession, store: StateStore) -> None:
    """Isolated children are not cancelled. Each cancel is in the log, with the task that it comes from."""
    await session.spawn_task(forever, task_id="t")
    for task_id, parent, how in [("a", "t", "cascade"), ("b", "a", "cascade"), ("lone", "t", "isolate")]:
        await session.spawn_task(forever, task_id=task_id, parent_task_id=parent, propagate_on_cancel=how)  # type: ignore[arg-type]
    assert await session.cancel_task("t", reason="stop")
    assert [(task.task_id, task.status.value, task.error) for task in await session.list_tasks()] == [
        ("t", "CANCELLED", "stop"),
        ("a", "CANCELLED", "cancelled"),
        ("b", "CANCELLED", "cancelled"),
        ("lone", await_status := (await status_of(session, "lone")).value, None),
    ]
    assert await_status in ("PENDING", "RUNNING")
    first, *others = await events(store)
    assert (first.source, first.payload) == ("user", {"reason": "stop"})
    for event in others:
        assert event.source == "system"
        assert event.payload == {"reason": "stop", "confirmed": True, "propagated_from": "t"}


async def test_a_cancelled_foreground_task_can_clean_up(session: StreamingSession) -> None:
    """The foreground task gets the cancel through its inbox, also while it is paused, and can clean up."""
    tidied = []

    async def pipeline(runtime: TaskRuntime) -> None:
        await session.steer(demand(Kind.PAUSE))
        caller = asyncio.create_task(session.cancel_task("t", reason="stop"))
        await runtime.steering.wait_if_paused()
        await caller
        tidied.append(runtime.steering.cancelled)

    with pytest.raises(SteeringCancelled, match="stop"):
        await session.run_task(pipeline, task_id="t")
    assert tidied == [True]


async def test_a_task_paused_before_its_start_waits(store: StateStore) -> None:
    """The pipeline starts after the resume."""
    started = asyncio.Event()

    async def pipeline(_runtime: TaskRuntime) -> None:
        started.set()

    async with StreamingSession("s", state_store=store) as session:
        spawning = asyncio.create_task(session.spawn_task(pipeline, task_id="t"))
        while not session._parts.tasks.runs_here("t"):  # noqa: ASYNC110  (before its first step)
            await asyncio.sleep(0)
        session._parts.tasks.deliver(demand(Kind.PAUSE))
        await spawning
        await session.list_updates()
        assert not started.is_set()
        await session.steer(demand(Kind.RESUME))
        await started.wait()


async def test_a_hard_cancel_stops_a_foreground_task(session: StreamingSession) -> None:
    """Without ``hard``, a foreground task ends by itself."""
    updates = await session.subscribe(update_types=[UpdateType.STATUS_CHANGE])
    caller = asyncio.create_task(session.run_task(forever, task_id="t"))
    await anext(updates)
    await session.steer(demand(Kind.CANCEL, reason="now", hard=True))
    with pytest.raises(SteeringCancelled, match="now"):
        await caller
    assert await status_of(session) == TaskStatus.CANCELLED


# ------------------------------------------------------------------------------------------------------ confirming


async def checkpoint(session: StreamingSession) -> dict[str, Any]:
    (found,) = [
        update.content for update in await session.list_updates() if update.update_type == UpdateType.CHECKPOINT
    ]
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("inbox")
async def test_destructive_controls_of_agents_wait_for_approval(session: StreamingSession, store: StateStore) -> None:
    """An approved control is executed and logged."""
    assert not await session.steer(demand(Kind.CANCEL, source="agent", event_id="e"))
    assert await status_of(session) == TaskStatus.RUNNING
    assert (await checkpoint(session))["resume_token"] == "e"
    assert list(session.pending_controls) == ["e"]
    assert await session.steer(demand(Kind.APPROVE, resume_token="e"))
    assert await status_of(session) == TaskStatus.CANCELLED
    assert session.pending_controls == {}
    assert [(event.event_type.value, event.source) for event in await events(store)] == [
        ("CANCEL", "agent"),
        ("APPROVE", "user"),
        ("CANCEL", "user"),
    ]


@pytest.mark.usefixtures("inbox")
async def test_a_rejected_control_is_not_executed(session: StreamingSession) -> None:
    """A rejected control can't be approved afterwards."""
    await session.steer(demand(Kind.CANCEL, source="agent", event_id="e"))
    assert not await session.steer(demand(Kind.REJECT, event_id="x", resume_token="e"))
    await session.steer(demand(Kind.APPROVE, resume_token="e"))
    assert await status_of(session) == TaskStatus.RUNNING
    assert [update.content["title"] for update in await session.list_updates() if "title" in update.content] == [
        "Action rejected"
    ]


async def test_a_policy_can_skip_approvals(store: StateStore) -> None:
    """No control waits for an approval."""
    policy = ControlPolicy(require_confirmation=False)
    async with StreamingSession("s", state_store=store, control_policy=policy) as session:
        await session.spawn_task(forever, task_id="t")
        assert await session.steer(demand(Kind.CANCEL, source="agent"))


@pytest.mark.usefixtures("inbox")
async def test_patches_are_decided_by_steering(session: StreamingSession) -> None:
    """Patches are named by their ids. A decision about an unknown id is passed to the task."""
    patch = ContextPatch(task_id="t")
    ids = [await session.apply_context_patch(patch=patch, strategy=MergeStrategy.HUMAN_GATED) for _ in range(2)]
    assert await session.steer(demand(Kind.APPROVE, patch_id=ids[0]))
    assert await session.steer(demand(Kind.REJECT, patch_id=ids[1]))
    assert (list(session.get_background_results()), session.pending_patches) == (["t"], {})
    assert await session.steer(demand(Kind.APPROVE, resume_token="the task's own"))
    assert not await session.steer(demand(Kind.APPROVE, patch_id="unknown"))


async def test_a_control_can_be_sent_to_all_tasks(session: StreamingSession) -> None:
    """All tasks that have not ended receive the control."""
    for number in range(3):
        await session.spawn_task(forever, task_id=str(number))
    await session.cancel_task("2")
    assert await session.broadcast_steer(event_type=Kind.PAUSE) == 2
    assert [task.status.value for task in await session.list_tasks()] == ["PAUSED", "PAUSED", "CANCELLED"]
