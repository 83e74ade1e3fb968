"""A session: foreground and background tasks, their ends, limits and updates."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import SessionLimitReached, StateNotLoaded, SteeringCancelled
from keelbolt.kernel import open_storage
from keelbolt.state import HybridStateStore, StateStore
from keelbolt.state.families import RUNS
from keelbolt.state.sessions import (
    ContextPatch,
    MergeStrategy,
    NotificationPayload,
    SessionLimits,
    StreamingSession,
    Subscription,
    TaskResult,
    TaskRuntime,
    TaskTelemetryEvent,
)
from keelbolt.state.sessions.storage import list_runs
from keelbolt.state.types import TaskStatus, TaskType, UpdateType

BACKGROUND = TaskType.BACKGROUND


async def quick(_runtime: TaskRuntime) -> str:
    return "done"


async def forever(_runtime: TaskRuntime) -> None:
    await asyncio.Event().wait()


async def status_of(session: StreamingSession, task_id: str) -> TaskStatus:
    task = await session.get_task(task_id)
    assert task is not None
    return task.status


async def ended(session: StreamingSession, task_id: str) -> TaskStatus:
    """Wait until a spawned task has ended."""
    await session._runner.wait(task_id, seconds=60)
    return await status_of(session, task_id)


async def until_status(updates: Subscription, reason: str) -> None:
    """Wait until a task reports this status."""
    async for update in updates:
        if update.update_type == UpdateType.STATUS_CHANGE and update.content.get("reason") == reason:
            return


async def reports(session: StreamingSession, task_id: str | None = None) -> list[Any]:
    """Return the kind, and the reason, title or content, of each update."""
    found = []
    for update in await session.list_updates(task_id=task_id):
        content = update.content if isinstance(update.content, dict) else {}
        found.append((update.update_type.value, content.get("reason") or content.get("title") or content.get("kind")))
    return found


# ------------------------------------------------------------------------------------------------------------ running


async def test_a_foreground_task(session: StreamingSession) -> None:
    """The caller gets its result, its progress is stored, and each step is reported once, in order."""

    async def pipeline(runtime: TaskRuntime) -> TaskResult:
        runtime.emit_update(UpdateType.PROGRESS, {"step": 1}, step_index=0, total_steps=1)
        return TaskResult(payload={"answer": 42}, digest=["short"])

    result = await session.run_task(pipeline, task_id="t", query="?", description="a task", trace_id="trace")
    assert result.payload == {"answer": 42}
    (task,) = await session.list_tasks()
    assert (task.status, task.result, task.progress) == (TaskStatus.COMPLETE, {"answer": 42}, {"step": 1})
    assert (task.trace_id, task.description, task.context_snapshot.query) == ("trace", "a task", "?")
    assert await reports(session) == [
        ("STATUS_CHANGE", "created"),
        ("STATUS_CHANGE", "running"),
        ("PROGRESS", None),
        ("RESULT", None),
        ("STATUS_CHANGE", "complete"),
    ]


async def test_an_ended_task_has_no_work_item(session: StreamingSession, store: StateStore) -> None:
    """The run record and the work item of an ended task are removed."""
    await session.run_task(quick, task_id="t")
    await session.spawn_task(forever, task_id="b")
    held = await store.host.ask(lambda kernel: kernel.list_work(store.partition, RUNS, state="held"))
    assert [item.key for item in held.items] == ["s/b"]
    runs = await store.host.ask(lambda kernel: list_runs(kernel.scoped(store.partition), "s"))
    assert [run.task_id for run in runs] == ["b"]


async def test_a_task_that_fails(session: StreamingSession, caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the error, and the task stores it. For a background task the user gets a notification."""

    async def pipeline(_runtime: TaskRuntime) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await session.run_task(pipeline, task_id="t")
    await session.spawn_task(pipeline, task_id="b", task_type=BACKGROUND)
    for task_id in ("t", "b"):
        assert await ended(session, task_id) == TaskStatus.FAILED
    assert [task.error for task in await session.list_tasks()] == ["no", "no"]
    assert ("ERROR", None) in await reports(session, "t")
    assert (await reports(session, "b"))[-1] == ("NOTIFICATION", "Background task failed")
    assert "failed" in caplog.text


async def test_a_task_that_times_out(store: StateStore) -> None:
    """A task beyond its time limit fails with "timeout"."""
    async with StreamingSession("s", state_store=store, limits=SessionLimits(max_task_runtime_s=0.01)) as session:
        with pytest.raises(TimeoutError):
            await session.run_task(forever, task_id="t")
        (task,) = await session.list_tasks()
        assert (task.status, task.error) == (TaskStatus.FAILED, "timeout")


async def test_a_caller_that_is_cancelled_cancels_its_task(session: StreamingSession) -> None:
    """The task ends as cancelled and does not stay in the state running."""
    updates = await session.subscribe()
    caller = asyncio.create_task(session.run_task(forever, task_id="t"))
    await until_status(updates, "running")
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await status_of(session, "t") == TaskStatus.CANCELLED
    assert session._runner.running() == []


async def test_closing_cancels_running_tasks(store: StateStore) -> None:
    """The tasks get the reason; subscriptions end."""
    session = StreamingSession("s", state_store=store)
    updates = await session.subscribe()
    await session.spawn_task(forever, task_id="b", task_type=BACKGROUND)
    await session.close()
    assert [update.content["status"] async for update in updates] == []
    (task,) = await store.list_tasks("s")
    assert (task.status, task.error) == (TaskStatus.CANCELLED, "session_closed")


async def test_the_number_of_running_tasks_is_limited(store: StateStore) -> None:
    """Other tasks stay pending and report that they are queued."""
    gate = asyncio.Event()

    async def pipeline(_runtime: TaskRuntime) -> None:
        await gate.wait()

    async with StreamingSession("s", state_store=store, limits=SessionLimits(max_concurrent_tasks=1)) as session:
        await session.spawn_task(pipeline, task_id="a")
        updates = await session.subscribe()
        await session.spawn_task(pipeline, task_id="b")
        await until_status(updates, "queued")
        assert await status_of(session, "b") == TaskStatus.PENDING
        await session.cancel_task("b", reason="not any more")
        gate.set()
        assert await ended(session, "a") == TaskStatus.COMPLETE
        assert await ended(session, "b") == TaskStatus.CANCELLED


async def test_limits(store: StateStore) -> None:
    """Ended tasks do not count."""
    limits = SessionLimits(max_tasks_per_session=3, max_background_tasks=1)
    async with StreamingSession("s", state_store=store, limits=limits) as session:
        await session.spawn_task(forever, task_id="a", task_type=BACKGROUND)
        with pytest.raises(SessionLimitReached, match="background_task_limit_exceeded"):
            await session.spawn_task(forever, task_type=BACKGROUND)
        several = (session.spawn_task(forever, task_id=str(number)) for number in range(4))
        found = await asyncio.gather(*several, return_exceptions=True)
        assert sum(isinstance(each, SessionLimitReached) for each in found) == 2, "also when asked for at once"
        with pytest.raises(RuntimeError, match="task_limit_exceeded"):
            await session.ensure_capacity(TaskType.FOREGROUND)
        await session.cancel_task("a")
        await ended(session, "a")
        await session.spawn_task(quick, task_type=BACKGROUND)


async def test_progress_never_rewrites_the_snapshot(store: StateStore) -> None:
    """The context is stored once, for any size and any number of reports."""

    async def pipeline(runtime: TaskRuntime) -> None:
        for number in range(20):
            runtime.emit_update(UpdateType.PROGRESS, {"number": number})

    async with StreamingSession("s", state_store=store) as session:
        session.update_context(llm_context={"large": "x" * 10_000})
        await session.run_task(pipeline, task_id="t")
        record = await store.host.ask(lambda kernel: kernel.get(store.partition, "state_snapshots", "s/t"))
        assert record is not None
        assert record.version == 1
        (task,) = await session.list_tasks()
        assert task.progress == {"number": 19}


async def test_telemetry(store: StateStore) -> None:
    """The sink gets one event when a task starts and one when it ends."""
    events: list[TaskTelemetryEvent] = []

    class Sink:
        async def emit(self, event: TaskTelemetryEvent) -> None:
            events.append(event)

    async with StreamingSession("s", state_store=store, telemetry_sink=Sink()) as session:
        await session.run_task(quick, task_id="t")
        await session.spawn_task(forever, task_id="b", task_type=BACKGROUND)
        await session.cancel_task("b")
        await ended(session, "b")
    assert [(event.task_id, event.outcome) for event in events] == [
        ("t", "spawned"),
        ("t", "completed"),
        ("b", "spawned"),
        ("b", "cancelled"),
    ]
    assert events[1].duration_ms is not None


# ------------------------------------------------------------------------------------------------------------ context


async def test_a_snapshot_is_the_context_at_spawn(session: StreamingSession) -> None:
    """The snapshot has the version and hash of the context; the parent is the foreground task."""
    session.update_context(llm_context={"a": 1}, tool_context={"b": 2})
    seen = []

    async def pipeline(runtime: TaskRuntime) -> None:
        seen.append(runtime.context_snapshot)

    await session.run_task(pipeline, task_id="front")
    await session.run_task(pipeline, task_type=BACKGROUND)
    assert [(each.context_version, each.context_hash) for each in seen] == [(1, session.context_hash)] * 2
    assert [each.spawned_from_task_id for each in seen] == ["foreground", "front"]
    assert seen[1].llm_context == {"a": 1}


async def test_results_are_merged_and_divergence_is_reported(session: StreamingSession) -> None:
    """APPEND adds a result, REPLACE replaces the last replacing one; an older context causes a warning."""

    async def pipeline(runtime: TaskRuntime) -> TaskResult:
        snapshot = runtime.context_snapshot
        if snapshot.task_id == "late":
            session.update_context(llm_context={"moved": "on"})
        patch = ContextPatch(
            task_id=snapshot.task_id,
            digest=["it", "is"],
            source_context_version=snapshot.context_version,
            source_context_hash=snapshot.context_hash,
        )
        return TaskResult(payload=snapshot.task_id, context_patch=patch)

    for task_id, strategy in [
        ("a", MergeStrategy.APPEND),
        ("b", MergeStrategy.APPEND),
        ("c", MergeStrategy.REPLACE),
        ("d", MergeStrategy.REPLACE),
    ]:
        await session.run_task(pipeline, task_id=task_id, merge_strategy=strategy, task_type=BACKGROUND)
    assert {task: result.payload for task, result in session.get_background_results().items()} == {
        "a": "a",
        "b": "b",
        "d": "d",
    }
    assert session.context_version == 0
    assert ("NOTIFICATION", "Context changed") not in await reports(session)
    await session.run_task(pipeline, task_id="late")
    assert ("NOTIFICATION", "Context changed") in await reports(session, "late")
    assert await session.mark_background_consumed(task_ids=["a", "d", "?"]) == 2
    assert sorted(session.get_background_results()) == ["b", "late"]


async def gate(session: StreamingSession, task_id: str = "t") -> str:
    patch = ContextPatch(task_id=task_id, digest=["x"])
    found = await session.apply_context_patch(patch=patch, strategy=MergeStrategy.HUMAN_GATED, payload={"p": 1})
    assert found is not None
    return found


async def test_a_patch_waits_for_approval(session: StreamingSession) -> None:
    """An approved patch is merged with its payload, a rejected one is dropped; each is decided once."""
    first, second = await gate(session, "a"), await gate(session, "b")
    assert sorted(session.pending_patches) == sorted([first, second])
    assert session.get_background_results() == {}
    assert await session.apply_pending_patch(patch_id=first)
    assert not await session.apply_pending_patch(patch_id=first)
    assert session.get_background_results()["a"].payload == {"p": 1}
    assert await session.reject_pending_patch(patch_id=second)
    assert session.pending_patches == {}
    assert await reports(session) == [
        ("CHECKPOINT", "context_patch"),
        ("CHECKPOINT", "context_patch"),
        ("NOTIFICATION", "Context updated"),
        ("NOTIFICATION", "Context patch rejected"),
    ]


async def test_the_number_of_waiting_patches_is_limited(store: StateStore) -> None:
    """The limit also holds for concurrent patches; a decision makes room."""
    limits = SessionLimits(max_pending_patches=3)
    async with StreamingSession("s", state_store=store, limits=limits) as session:
        found = await asyncio.gather(*(gate(session) for _ in range(5)), return_exceptions=True)
        assert [str(each).split(":")[0] for each in found if not isinstance(each, str)] == [
            "pending_patch_limit_exceeded"
        ] * 2
        await session.reject_pending_patch(patch_id=next(iter(session.pending_patches)))
        await gate(session)
        assert len(session.pending_patches) == 3


async def test_a_notification_offers_to_apply_the_patch(session: StreamingSession) -> None:
    """The notification has an action that names the patch; the pipeline's own notification is not changed."""
    note = NotificationPayload(title="Ready", body="...")

    async def pipeline(_runtime: TaskRuntime) -> TaskResult:
        return TaskResult(context_patch=ContextPatch(task_id="t"), notification=note)

    await session.run_task(pipeline, task_id="t", task_type=BACKGROUND, merge_strategy=MergeStrategy.HUMAN_GATED)
    (shown,) = [
        update.content for update in await session.list_updates() if update.update_type == UpdateType.NOTIFICATION
    ]
    assert shown["actions"][0]["payload"] == {"patch_id": next(iter(session.pending_patches)), "task_id": "t"}
    assert note.actions == []


async def test_objects_that_can_not_be_stored_stay_in_the_process(session: StreamingSession) -> None:
    """A client in the tool context can't be stored; it stays until another process changes that context."""
    client = object()
    await session.update_context(tool_context={"client": client, "x": 1})
    await session.refresh()
    await gate(session)
    assert session.get_context()[1] == {"client": client, "x": 1}


async def test_a_cancelled_task_is_not_completed(session: StreamingSession) -> None:
    """A pipeline that returns after its cancel does not complete the task."""

    async def pipeline(runtime: TaskRuntime) -> TaskResult:
        await session.cancel_task("t", reason="enough")
        assert runtime.steering.cancelled
        return TaskResult(payload=1, context_patch=ContextPatch(task_id="t"))

    with pytest.raises(SteeringCancelled, match="enough"):
        await session.run_task(pipeline, task_id="t")
    (task,) = await session.list_tasks()
    assert (task.status, task.error, task.result) == (TaskStatus.CANCELLED, "enough", None)
    assert session.get_background_results() == {}


async def test_accepted_stores(store: StateStore) -> None:
    """None means a store in memory; a hybrid store uses its durable part; other objects are refused."""
    hybrid = HybridStateStore(store, fast=store)
    async with StreamingSession("s", state_store=hybrid) as session:
        await session.run_task(quick, task_id="t")
    assert [task.task_id for task in await store.list_tasks("s")] == ["t"]
    async with StreamingSession("s") as alone:
        assert (await alone.run_task(quick)).payload == "done"
    with pytest.raises(StateNotLoaded, match="closed"):
        await alone.list_tasks()
    with pytest.raises(TypeError, match="StateStore"):
        StreamingSession("s", state_store=object())  # type: ignore[arg-type]


async def test_a_session_closes_after_its_store() -> None:
    """A session can still be closed then."""
    store = StateStore("memory:")
    session = StreamingSession("s", state_store=store)
    await session.spawn_task(forever)
    await store.close()
    await session.close()


async def test_sessions_on_an_open_kernel(tmp_path: Path) -> None:
    """Sessions work on a store in the loop of its kernel, without a thread."""
    async with open_storage(f"sqlite:///{tmp_path}/file.db") as kernel:
        store = StateStore(kernel, types="own")
        async with StreamingSession("s", state_store=store) as session:
            updates = await session.subscribe(update_types=[UpdateType.RESULT])
            session.update_context(llm_context={"a": 1})
            await session.run_task(quick, task_id="t")
            assert (await anext(updates)).content["payload"] == "done"
            await gate(session)
        async with StreamingSession("s", state_store=store) as again:
            assert (again.context_version, len(again.pending_patches)) == (1, 1)
        await store.close()
