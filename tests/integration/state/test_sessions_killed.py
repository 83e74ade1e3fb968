"""Processes that are killed or stopped during a session, and processes that continue: Keelbolt's and penguiflow's."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import penguiflow.sessions as theirs
from penguiflow.state.models import SteeringEvent, SteeringEventType, TaskStatus, TaskType

from keelbolt.data import Subject, erase
from keelbolt.kernel import open_storage
from keelbolt.state import StateStore
from keelbolt.state.sessions import PROCESS_DIED, OwnedTasks, SessionManager
from keelbolt.state.sessions.storage import list_runs
from tests.integration.data.filling import rows_with
from tests.integration.state.session_parts import SHORT, demand, until

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def process(url: str, kind: str) -> AsyncIterator[Process]:
    """A process that runs tasks of the session; it is killed at the end."""
    command = (sys.executable, "-m", "tests.integration.state.session_process", url, kind)
    found = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert await line(found) == "ready"
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            found.kill()
        await found.wait()


async def line(found: Process) -> str:
    """Return the next line that the process prints."""
    assert found.stdout is not None
    async with asyncio.timeout(60):
        return (await found.stdout.readline()).decode().strip()


async def running(store: StateStore) -> list[str]:
    return [task.task_id for task in await store.list_tasks("s") if task.status.value == "RUNNING"]


async def test_a_session_continues_in_another_process(shared_url: str) -> None:
    """Another process fails the running tasks without a caller. All other data is stored, and new tasks can start."""
    async with (
        StateStore(shared_url, types="own") as store,
        SessionManager(state_store=store, limits=SHORT) as manager,
        process(shared_url, "own") as child,
    ):
        assert await running(store) == ["front", "back"]
        child.kill()

        async def none_runs() -> bool:
            return not await running(store)

        await until(none_runs)
        session = await manager.get_or_create("s")
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


async def test_writes_of_a_stopped_process_after_its_lease_are_refused(shared_url: str) -> None:
    """Once another process has taken over the task, no update, result or context of the stopped process is stored."""
    async with (
        StateStore(shared_url, types="own") as store,
        SessionManager(state_store=store, limits=SHORT) as manager,
        process(shared_url, "stopped") as child,
    ):
        child.send_signal(signal.SIGSTOP)

        async def none_runs() -> bool:
            return not await running(store)

        await until(none_runs)
        child.send_signal(signal.SIGCONT)
        assert await line(child) == "LeaseLost"
        session = await manager.get_or_create("s")
        (task,) = await session.list_tasks()
        assert (task.status, task.error, task.result) == (TaskStatus.FAILED, PROCESS_DIED, None)
        assert session.get_background_results() == {}
        assert not [found for found in await session.list_updates() if found.content.get("late")]


async def test_writes_of_a_stopped_process_to_an_erased_session_are_refused(shared_url: str) -> None:
    """Each save of the stopped process raises StateErased, and the store has no data of the session afterwards."""
    async with open_storage(shared_url) as kernel, process(shared_url, "writer") as child:
        child.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SHORT.lease_seconds + 0.5)
        await erase(kernel, Subject(kind="session", id="erased", tenant="default"))
        child.send_signal(signal.SIGCONT)
        assert await line(child) == "StateErased"
        assert await rows_with(kernel, "canary", "erased") == []


async def test_penguiflow_s_session_continues_in_another_process(shared_url: str) -> None:
    """The session's running tasks fail without a caller, and no longer count towards the limits."""
    async with StateStore(shared_url, types="penguiflow") as store:
        async with process(shared_url, "penguiflow") as child:
            owned = OwnedTasks(store, lease_seconds=SHORT.lease_seconds)
            child.kill()

            async def none_runs() -> bool:
                return not await running(store)

            await until(none_runs)
        session = await theirs.SessionManager(
            state_store=owned, limits=theirs.SessionLimits(max_tasks_per_session=1)
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
    """A second process reads all data: background tasks, steering, and an approved merge."""
    steered = []

    async def pipeline(runtime: theirs.TaskRuntime) -> theirs.TaskResult:
        runtime.emit_update(theirs.UpdateType.PROGRESS, {"step": 1})
        steered.append((await runtime.steering.next()).payload)
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
        assert steered == [{"text": "look"}]
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
    """The cancels are stored."""

    async def endless(_runtime: theirs.TaskRuntime) -> None:
        await asyncio.Event().wait()

    async with StateStore(file_url) as store:
        session = await theirs.SessionManager(state_store=OwnedTasks(store)).get_or_create("s")
        await session.spawn_task(endless, task_id="parent")
        await session.spawn_task(endless, task_id="child", parent_task_id="parent")
        assert await session.cancel_task("parent", reason="stop")
        await session.close()
        assert [task.status for task in await store.list_tasks("s")] == [TaskStatus.CANCELLED] * 2
        assert not await store.host.ask(lambda kernel: list_runs(kernel.scoped(store.partition), "s"))
        payloads = [found.payload for found in await store.list_steering("s", task_id="child")]
        assert payloads == [{"reason": "stop", "confirmed": True, "propagated_from": "parent"}]
