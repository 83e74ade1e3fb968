"""Sessions on every engine: restored state, and several processes with the same session."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from keelbolt.errors import LeaseLost, SessionLimitReached, StorageUnreachable
from keelbolt.state import StateStore
from keelbolt.state.sessions import (
    PROCESS_DIED,
    ContextPatch,
    MergeStrategy,
    SessionLimits,
    StreamingSession,
    TaskResult,
    TaskRuntime,
)
from keelbolt.state.sessions.tasks import is_over
from keelbolt.state.types import SteeringEventType, TaskContextSnapshot, TaskState, TaskStatus, UpdateType
from tests.integration.state.session_parts import BACKGROUND, SHORT, demand, die, forever, sessions, until, until_status

Kind = SteeringEventType


async def test_everything_is_restored(store: StateStore) -> None:
    """Restored: context with version and hash, results, waiting patches and controls, task order, known event ids."""
    seen = demand(Kind.PAUSE, "a")

    async def pipeline(runtime: TaskRuntime) -> TaskResult:
        return TaskResult(payload=b"bytes", context_patch=ContextPatch(task_id=runtime.state.task_id, facts={"x": 1}))

    async with StreamingSession("s", state_store=store) as first:
        first.update_context(llm_context={"ä": [1, float("inf")]}, tool_context={"when": (1, 2), "client": object()})
        await first.update_context(memory={"m": 1}, artifacts=[{"id": "a"}])
        for task_id, strategy in (("b", "append"), ("a", "replace"), ("c", "human_gated")):
            await first.run_task(pipeline, task_id=task_id, merge_strategy=MergeStrategy(strategy))
        await first.spawn_task(forever, task_id="d")
        await first.steer(seen)
        await first.steer(demand(Kind.REDIRECT, "d", source="agent", goal="elsewhere"))
        patches, controls = first.pending_patches, first.pending_controls
        before = (first.context_version, first.context_hash, first.get_background_results())

    async with StreamingSession("s", state_store=store) as second:
        assert (second.context_version, second.context_hash, second.get_background_results()) == before
        assert second.get_context() == ({"ä": [1, float("inf")]}, {"when": (1, 2)})
        assert second.pending_patches == patches
        assert second.pending_controls == controls
        assert [task.task_id for task in second.registry.tasks()] == ["b", "a", "c", "d"]
        assert not await second.steer(seen), "it is a repeat"
        assert not await second.steer(demand(Kind.REJECT, "d", resume_token=next(iter(controls))))
        assert await second.steer(demand(Kind.APPROVE, "c", patch_id=next(iter(patches))))
        assert second.get_background_results()["c"].payload == b"bytes"
        snapshot = second._runner.snapshot("t", BACKGROUND, {})
        assert (snapshot.memory, snapshot.artifacts, snapshot.spawned_from_task_id) == ({"m": 1}, [{"id": "a"}], "d")

    async with StreamingSession("s", state_store=store) as third:
        assert (third.pending_patches, third.pending_controls) == ({}, {})


async def test_a_subscription_misses_nothing_and_repeats_nothing(store: StateStore) -> None:
    """After an interruption or a cancelled wait, a subscription continues after the last received id."""
    total = 60

    async def pipeline(runtime: TaskRuntime) -> None:
        for number in range(total):
            runtime.emit_update(UpdateType.THINKING, {"number": number})
            if number % 7 == 0:
                await asyncio.sleep(0)

    async with StreamingSession("s", state_store=store) as session:
        updates = await session.subscribe(task_ids=["t"], update_types=[UpdateType.THINKING])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(updates), 0.01)
        await session.spawn_task(forever, task_id="other")
        await session.spawn_task(pipeline, task_id="t")
        found: list[int] = []
        last: str | None = None
        while len(found) < total:
            update = await anext(updates)
            found.append(update.content["number"])
            last = update.update_id
            if len(found) % 20 == 0:
                await updates.aclose()
                updates = await session.subscribe(task_ids=["t"], update_types=[UpdateType.THINKING], since_id=last)
        assert found == list(range(total))
        first = await anext(await session.subscribe(since_id="unknown"))
        assert first.content["reason"] == "created", "everything that is kept"


async def test_a_process_steers_a_task_of_another_process(shared_url: str) -> None:
    """A control reaches the process that runs the task; subscribers in any process see the result."""
    payloads = asyncio.Queue[Any]()

    async def pipeline(runtime: TaskRuntime) -> None:
        while True:
            payloads.put_nowait((await runtime.steering.next()).payload)

    async with sessions(shared_url, 2) as (here, there):
        updates = await here.subscribe()
        await there.spawn_task(pipeline, task_id="t")
        await there.spawn_task(forever, task_id="child", parent_task_id="t")
        await until_status(updates, "t", "running")
        assert await here.steer(demand(Kind.INJECT_CONTEXT, "t", text="hello"))
        assert await payloads.get() == {"text": "hello"}
        assert not await here.steer(demand(Kind.CANCEL, "t", source="agent", reason="why not"))
        assert await there.steer(demand(Kind.APPROVE, "t", resume_token=next(iter(here.pending_controls))))
        await until_status(updates, "child", "parent_cancelled")
        assert [(task.task_id, task.status) for task in await here.list_tasks()] == [
            ("t", TaskStatus.CANCELLED),
            ("child", TaskStatus.CANCELLED),
        ]


async def test_several_processes_change_the_context(shared_url: str) -> None:
    """Each update replaces the keys that it names and increments the version; no merged result is lost."""
    async with sessions(shared_url, 3) as processes:

        async def work(number: int, session: StreamingSession) -> None:
            for turn in range(4):
                part = {"turn": turn}
                await (
                    session.update_context(llm_context=part) if number else session.update_context(tool_context=part)
                )
                await session.apply_context_patch(patch=ContextPatch(task_id=f"{number}-{turn}"))

        await asyncio.gather(*(work(number, session) for number, session in enumerate(processes)))
        for session in processes:
            await session.refresh()
            assert session.context_version == 12
            assert len(session.get_background_results()) == 12
            assert session.get_context() == ({"turn": 3}, {"turn": 3})
        await processes[0].update_context(llm_context={"seen": "by all"})
        await processes[1].spawn_task(forever, task_id="t")
        task = await processes[1].get_task("t")
        assert task is not None
        assert task.context_snapshot.llm_context["seen"] == "by all"


async def test_a_patch_is_decided_once(shared_url: str) -> None:
    """Of several processes that approve and reject a patch at the same time, one succeeds."""
    async with sessions(shared_url, 3) as (first, second, third):
        patch = ContextPatch(task_id="t")
        for _ in range(3):
            found = await first.apply_context_patch(patch=patch, strategy=MergeStrategy.HUMAN_GATED)
            assert found is not None
            decided = await asyncio.gather(
                first.apply_pending_patch(patch_id=found),
                second.reject_pending_patch(patch_id=found),
                third.apply_pending_patch(patch_id=found),
            )
            assert sum(decided) == 1


async def test_limits_count_the_tasks_of_all_processes(shared_url: str) -> None:
    async with sessions(shared_url, 2, limits=SessionLimits(max_tasks_per_session=2)) as (here, there):
        await here.spawn_task(forever)
        await there.spawn_task(forever, task_id="t")
        with pytest.raises(SessionLimitReached):
            await here.spawn_task(forever)
        await there.cancel_task("t")
        await here.spawn_task(forever)


# ----------------------------------------------------------------------------------------------- processes that die


async def test_tasks_of_a_dead_process_fail_without_a_caller(shared_url: str) -> None:
    """A process with another open session fails the tasks; later writes of the dead process are refused."""
    gate = asyncio.Event()

    async def pipeline(_runtime: TaskRuntime) -> str:
        await gate.wait()
        return "too late"

    async with sessions(shared_url, 1, limits=SHORT) as (dead,):
        for task_id in ("a", "b"):
            await dead.spawn_task(pipeline, task_id=task_id, task_type=BACKGROUND)
        handles = dead._runner.running()
        async with (
            sessions(shared_url, 2, session_id="another", limits=SHORT),
            StateStore(shared_url, types="own", exit_seconds=4.0) as store,
        ):
            await asyncio.sleep(SHORT.lease_seconds + 0.5)
            assert [task.status for task in await store.list_tasks("s")] == [TaskStatus.RUNNING] * 2, "it is alive"
            await die(dead)

            async def failed() -> bool:
                found = [(task.status, task.error) for task in await store.list_tasks("s")]
                return found == [(TaskStatus.FAILED, PROCESS_DIED)] * 2

            await until(failed)
            gate.set()
            ends = await asyncio.gather(*handles, return_exceptions=True)
            assert [type(end) for end in ends] == [LeaseLost] * 2
            assert await failed()
            updates = await store.list_updates("s")
            reasons = [each.content["reason"] for each in updates if each.update_type == UpdateType.STATUS_CHANGE]
            assert (reasons.count("process_died"), reasons.count("complete")) == (2, 0)


async def test_a_task_whose_lease_is_lost_while_it_is_created_runs_elsewhere(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not run without its lease: two processes would run it, and both results would count."""

    async def here(_runtime: TaskRuntime) -> str:
        return "here"

    async def there(_runtime: TaskRuntime) -> str:
        return "there"

    async with sessions(file_url, 1, limits=SHORT) as (session,):
        added = session._parts.tasks.add

        async def lost(task: TaskState, strategy: str) -> Any:
            outcome = await added(task, strategy)
            (run,) = session._parts.runs.held()
            await die(session)
            session.lost(run)
            return outcome

        monkeypatch.setattr(session._parts.tasks, "add", lost)
        with pytest.raises(LeaseLost):
            await session.run_task(here, task_id="t")
        async with sessions(file_url, 1, limits=SHORT, recover=lambda _task: there) as (other,):

            async def results() -> list[Any]:
                updates = await other.list_updates()
                return [found.content["payload"] for found in updates if found.update_type == UpdateType.RESULT]

            async def ended() -> bool:
                return bool(await results())

            await until(ended)
            assert await results() == ["there"]
            task = await other.get_task("t")
            assert task is not None
            assert task.result == "there"


async def test_a_process_that_cannot_renew_its_lease_stops_its_tasks(
    file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stops its tasks before the lease ends, and runs them again when it can renew a lease."""
    runs: list[float] = []
    stopped: list[float] = []

    async def pipeline(_runtime: TaskRuntime) -> str:
        runs.append(time.monotonic())
        if len(runs) > 1:
            return "again"
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(time.monotonic())
        return "never"

    async def fails(*_args: Any, **_options: Any) -> None:
        raise StorageUnreachable

    limits = SHORT
    async with sessions(file_url, 1, limits=limits, recover=lambda _task: pipeline) as (session,):
        await session.spawn_task(pipeline, task_id="t")
        (handle,) = session._runner.running()
        monkeypatch.setattr(session._parts.runs._process, "heartbeat", fails)
        failing_since = time.monotonic()
        with pytest.raises(LeaseLost):
            await handle
        assert stopped[0] - failing_since < SHORT.lease_seconds
        monkeypatch.undo()

        async def complete() -> bool:
            return [task.result for task in await session.list_tasks()] == ["again"]

        await until(complete)
        assert len(runs) == 2


async def test_tasks_that_are_taken_over_together_can_report(file_url: str) -> None:
    """The recovery of one task does not load the others again, which would count as lost."""
    count = 3

    async def pipeline(runtime: TaskRuntime) -> str:
        runtime.emit_update(UpdateType.PROGRESS, {"done": True})
        return "again"

    async with sessions(file_url, 1, limits=SHORT) as (dead,):
        for number in range(count):
            await dead.spawn_task(forever, task_id=f"t{number}")
        await die(dead)
        async with sessions(file_url, 1, limits=SHORT, recover=lambda _task: pipeline) as (alive,):

            async def complete() -> bool:
                return [task.result for task in await alive.list_tasks()] == ["again"] * count

            await until(complete)


async def test_tasks_of_a_dead_process_can_be_run_again(file_url: str) -> None:
    """The application provides the pipeline; results are merged with the original strategy."""
    asked: list[str] = []

    async def pipeline(runtime: TaskRuntime) -> TaskResult:
        return TaskResult(payload="again", context_patch=ContextPatch(task_id=runtime.state.task_id))

    def recover(task: TaskState) -> Any:
        asked.append(task.task_id)
        return pipeline if task.task_id == "again" else None

    async with sessions(file_url, 1, limits=SHORT) as (dead,):
        for task_id in ("again", "not"):
            await dead.spawn_task(forever, task_id=task_id, merge_strategy=MergeStrategy.REPLACE)
        await die(dead)
        async with sessions(file_url, 1, limits=SHORT, recover=recover) as (alive,):

            async def recovered() -> bool:
                return all(is_over(task) for task in await alive.list_tasks())

            await until(recovered)
            assert sorted(asked) == ["again", "not"]
            assert [task.status for task in await alive.list_tasks()] == [TaskStatus.COMPLETE, TaskStatus.FAILED]
            assert alive.get_background_results()["again"].payload == "again"
            assert alive._parts.context.current.background_result is not None, "it replaces, as it was to"


async def test_a_full_session_is_recovered_before_it_refuses(file_url: str) -> None:
    """Eight tasks of a dead process do not block a session, even if it was already open."""
    limits = SessionLimits(max_tasks_per_session=2, lease_seconds=SHORT.lease_seconds)
    async with sessions(file_url, 2, limits=limits) as (dead, alive):
        for _ in range(2):
            await dead.spawn_task(forever)
        with pytest.raises(SessionLimitReached):
            await alive.spawn_task(forever)
        await die(dead)
        await asyncio.sleep(limits.lease_seconds)
        await alive.spawn_task(forever)


# --------------------------------------------------------------------------------------------------- inside a process


async def test_two_objects_of_one_session(file_url: str) -> None:
    """A process that opens a session for each request can steer the tasks of the first object."""
    async with (
        StateStore(file_url, types="own") as store,
        StreamingSession("s", state_store=store) as first,
        StreamingSession("s", state_store=store) as second,
    ):
        updates = await second.subscribe()
        await first.spawn_task(forever, task_id="t")
        (handle,) = first._runner.running()
        assert await second.cancel_task("t", reason="enough")
        with pytest.raises(asyncio.CancelledError):
            await handle
        await until_status(updates, "t", "cancel_requested")
        (task,) = await second.list_tasks()
        assert (task.status, task.error) == (TaskStatus.CANCELLED, "enough")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the task that never continues
def test_tasks_of_an_ended_loop_are_recovered(file_url: str) -> None:
    """The process still runs and has a lease, but its tasks have no event loop."""
    store = StateStore(file_url, types="own")
    loop = asyncio.new_event_loop()
    session = StreamingSession("s", state_store=store)
    loop.run_until_complete(session.spawn_task(forever, task_id="t"))
    loop.close()

    async def look() -> TaskState:
        async with store, StreamingSession("s", state_store=store) as again:
            (task,) = await again.list_tasks()
            return task

    task = asyncio.run(look())
    assert (task.status, task.error) == (TaskStatus.FAILED, PROCESS_DIED)
    del session
    gc.collect()


async def test_the_reads_to_open_a_session_do_not_grow_with_its_tasks(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening takes one read for all tasks, one for their snapshots, one for their order, and a few for the session."""
    for session_id, count in (("few", 2), ("many", 300)):
        for number in range(count):
            snapshot = TaskContextSnapshot(session_id=session_id, task_id=str(number))
            status = TaskStatus.COMPLETE
            store.save_task(TaskState(str(number), session_id, status, BACKGROUND, 0, snapshot))
    await store.flush()
    kernel: Any = None

    async def find(opened: Any) -> None:
        nonlocal kernel
        kernel = opened

    await store.host.ask(find)
    reads: list[str] = []
    for name in ("get", "get_many", "find", "read_log", "commit"):
        original = getattr(kernel, name)

        def counting(*args: Any, _name: str = name, _original: Any = original, **options: Any) -> Any:
            reads.append(_name)
            return _original(*args, **options)

        monkeypatch.setattr(kernel, name, counting)
    seen = []
    for session_id in ("few", "many"):
        reads.clear()
        async with StreamingSession(session_id, state_store=store) as session:
            seen.append(sorted(reads))
            assert len(session.registry) == (2 if session_id == "few" else 300)
    assert seen[0] == seen[1]
    assert len(seen[0]) <= 10
