"""kill -9 in the middle of a session, and a new process that goes on: with our sessions and with penguiflow's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import penguiflow.sessions as theirs
from penguiflow.state.models import SteeringEvent, SteeringEventType, TaskStatus, TaskType

from keelbolt.state import StateStore
from keelbolt.state.sessions import PROCESS_DIED, OwnedTasks, StreamingSession
from keelbolt.state.sessions.process import Process
from tests.integration.state.session_parts import SHORT, demand

ROOT = Path(__file__).parents[3]


async def killed(url: str, kind: str) -> None:
    """Let a process work on the session until its tasks run, and kill it."""
    command = [sys.executable, "-m", "tests.integration.state.session_process", url, kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
        finally:
            process.kill()
    await asyncio.sleep(SHORT.lease_seconds)


async def test_our_session_goes_on(shared_url: str) -> None:
    """Its context, results and patches are there, what was done is done, what ran has failed; there is room again."""
    await killed(shared_url, "own")
    async with (
        StateStore(shared_url, types="own") as store,
        StreamingSession("s", state_store=store, limits=SHORT) as session,
    ):
        assert [(task.task_id, task.status.value, task.error) for task in await session.list_tasks()] == [
            ("done", "COMPLETE", None),
            ("gated", "COMPLETE", None),
            ("front", "FAILED", PROCESS_DIED),
            ("back", "FAILED", PROCESS_DIED),
        ]
        assert (session.get_context(), session.context_version) == (({"a": 2}, {"b": 2}), 2)
        (patch_id,) = session.pending_patches
        approve = demand(SteeringEventType.APPROVE, "gated", patch_id=patch_id)
        assert await session.steer(approve)
        assert {task: result.payload for task, result in session.get_background_results().items()} == {
            "done": {"p": 1},
            "gated": {"p": 1},
        }


async def test_penguiflow_s_session_goes_on(shared_url: str) -> None:
    """It finds its tasks; those that ran have failed and no longer stand in the way of new ones."""
    await killed(shared_url, "penguiflow")
    async with StateStore(shared_url, types="penguiflow") as store:
        session = await theirs.SessionManager(
            state_store=OwnedTasks(store), limits=theirs.SessionLimits(max_tasks_per_session=1)
        ).get_or_create("s")
        assert [(task.task_id, task.status, task.error) for task in await session.list_tasks()] == [
            ("done", TaskStatus.COMPLETE, None),
            ("gated", TaskStatus.COMPLETE, None),
            ("front", TaskStatus.FAILED, PROCESS_DIED),
            ("back", TaskStatus.FAILED, PROCESS_DIED),
        ]

        async def pipeline(_runtime: theirs.TaskRuntime) -> str:
            return "there is room"

        assert (await session.run_task(pipeline)).payload == "there is room"
        await session.close()
        reasons = [update.content.get("reason") for update in await store.list_updates("s", task_id="back")]
        assert reasons[-1] == "process_died"


async def test_penguiflow_s_sessions_on_our_store(shared_url: str) -> None:
    """Background tasks, steering, a merge that a person approves, and a second process that looks at all of it."""
    heard = []

    async def pipeline(runtime: theirs.TaskRuntime) -> theirs.TaskResult:
        runtime.emit_update(theirs.UpdateType.PROGRESS, {"step": 1})
        heard.append((await runtime.steering.next()).payload)
        patch = theirs.ContextPatch(
            task_id=runtime.state.task_id,
            digest=["found"],
            source_context_version=runtime.context_snapshot.context_version,
        )
        return theirs.TaskResult(payload={"answer": 42}, context_patch=patch)

    def event(kind: SteeringEventType, **payload: str) -> SteeringEvent:
        return SteeringEvent(session_id="s", task_id="t", event_type=kind, payload=payload)

    async with StateStore(shared_url) as store:
        manager = theirs.SessionManager(state_store=OwnedTasks(store))
        session = await manager.get_or_create("s")
        session.update_context(llm_context={"topic": "penguins"})
        updates = await session.subscribe()
        await session.spawn_task(
            pipeline,
            task_id="t",
            task_type=TaskType.BACKGROUND,
            merge_strategy=theirs.MergeStrategy.HUMAN_GATED,
        )
        while not await session.steer(event(SteeringEventType.INJECT_CONTEXT, text="look")):
            await anext(updates)
        async for update in updates:
            if update.update_type == theirs.UpdateType.CHECKPOINT:
                break
        assert await session.steer(event(SteeringEventType.APPROVE, patch_id=update.content["patch_id"]))
        assert heard == [{"text": "look"}]
        assert session.get_background_results()["t"].summary == "found"
        await manager.drop("s")
        async with StateStore(shared_url) as other:
            again = await theirs.SessionManager(state_store=OwnedTasks(other)).get_or_create("s")
            (task,) = await again.list_tasks()
            assert type(task) is theirs.TaskState
            assert (task.status, task.result, task.progress) == (TaskStatus.COMPLETE, {"answer": 42}, {"step": 1})
            assert task.context_snapshot.llm_context == {"topic": "penguins"}
            kinds = [found.event_type.value for found in await other.list_steering("s")]
            assert kinds == ["INJECT_CONTEXT", "APPROVE"]
            stored = [found.update_type.value for found in await other.list_updates("s")]
            assert stored.count("PROGRESS") == stored.count("CHECKPOINT") == stored.count("RESULT") == 1


async def test_penguiflow_s_session_is_cancelled_with_its_children(file_url: str) -> None:
    """And what they were told is in the store."""

    async def endless(_runtime: theirs.TaskRuntime) -> None:
        await asyncio.Event().wait()

    async with StateStore(file_url) as store:
        session = await theirs.SessionManager(state_store=OwnedTasks(store)).get_or_create("s")
        await session.spawn_task(endless, task_id="parent")
        await session.spawn_task(endless, task_id="child", parent_task_id="parent")
        assert await session.cancel_task("parent", reason="stop")
        await session.close()
        assert [task.status for task in await store.list_tasks("s")] == [TaskStatus.CANCELLED] * 2
        process = Process.of(store, lease_seconds=15.0)
        assert not await store.host.ask(lambda kernel: process.runs(kernel, "s"))
        told = [found.payload for found in await store.list_steering("s", task_id="child")]
        assert told == [{"reason": "stop", "confirmed": True, "propagated_from": "parent"}]
