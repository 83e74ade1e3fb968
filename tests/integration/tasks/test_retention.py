"""Expired tasks are removed completely; other tasks stay complete. On every engine."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.data.erasing import resume_erasures
from keelbolt.errors import TaskNotFoundError
from keelbolt.kernel import Enqueue, Insert, Kernel, Operation, Receipt, open_storage
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import Envelope, RetentionPolicy, TaskContext, TaskEngine, TaskSettings, TaskSnapshot, days, hours
from keelbolt.tasks.families import CONTEXTS, EVENTS, PUSH_CONFIGS, SNAPSHOTS, WEBHOOKS
from keelbolt.tasks.stored_tasks import StoredTask
from keelbolt.tasks.sweep import SweptTasks, erase_context, erase_owner, erase_task, sweep
from keelbolt.testing.clock import FakeClock
from tests.integration.tasks.stage import message

ME = ANONYMOUS.partition
QUICK = TaskSettings(drain_seconds=0.0)


async def worker(ctx: TaskContext) -> None:
    """Executes its message."""
    match ctx.user_text:
        case "fail":
            await ctx.fail("no")
        case "ask":
            await ctx.request_input("which?")
        case "hang":
            await ctx.send_status("on it")
            await asyncio.sleep(600)
        case "stream":
            for number in range(400):
                await ctx.emit_text_artifact(f"{number} {'x' * 300}", artifact_id="long", append=number > 0)
            await ctx.complete("streamed")
        case "count":
            for number in range(40):
                await ctx.emit_text_artifact(f"{number} ", artifact_id="numbers", append=number > 0)
            await ctx.complete("counted")
        case text:
            await ctx.update_context({"last": text})
            await ctx.complete(f"done: {text}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def kernel(url: str) -> AsyncIterator[Kernel]:
    async with open_storage(url) as kernel:
        yield kernel


@pytest.fixture
async def engine(kernel: Kernel, clock: FakeClock) -> AsyncIterator[TaskEngine]:
    async with TaskEngine(kernel, worker, settings=QUICK, clock=clock) as engine:
        yield engine


async def ended(engine: TaskEngine, text: str, *, context: str | None = None, owner: str = "") -> StoredTask:
    """Return a task with this message, after its turn."""
    sent = await engine.tasks.send(message(text, context_id=context), Envelope(Principal(owner=owner)))
    return await engine.tasks.settled(sent)


async def running(engine: TaskEngine) -> StoredTask:
    """Return a task that is running and does not end."""
    sent = await engine.tasks.send(message("hang"))
    async with aclosing(engine.tasks.follow(sent.task.record.task_id, after=0)) as events:
        async for event in events:
            if not isinstance(event, TaskSnapshot) and b"on it" in event.data:
                break
    return sent.task


async def there(engine: TaskEngine, *tasks: StoredTask) -> list[bool]:
    return [await engine.store.find(task.scope, task.record.task_id) is not None for task in tasks]


async def assert_nothing_left(kernel: Kernel) -> None:
    left = await kernel.stats()
    others = ("task_sweeps", "system_vitals")  # the second is written at each full minute
    kept = {name: count for name, count in left.records.items() if count and name not in others}
    assert kept == {}
    assert (left.streams, left.entries) == (0, 0)
    assert not any(sum(states.values()) for states in left.work.values())


# ---------------------------------------------------------------------------------------------------------------- ages


async def test_each_state_has_its_age(engine: TaskEngine, clock: FakeClock) -> None:
    """Tasks older than the age of their state are erased; other tasks and states without an age are kept."""
    policy = RetentionPolicy(completed=days(30), failed=days(90))
    old = [await ended(engine, text) for text in ("one", "fail", "ask")]
    clock.advance(days(31))
    young = await ended(engine, "two")

    assert await sweep(engine.store, policy, dry=True) == SweptTasks(tasks=1)
    assert await there(engine, *old, young) == [True, True, True, True]
    assert (await sweep(engine.store, policy)).tasks == 1
    assert await there(engine, *old, young) == [False, True, True, True]
    assert (await sweep(engine.store, policy)).tasks == 0

    clock.advance(days(60))
    await sweep(engine.store, policy)
    assert await there(engine, *old, young) == [False, False, True, False]
    await sweep(engine.store, RetentionPolicy(input_required=days(1)))
    assert await there(engine, *old, young) == [False, False, False, False]


async def test_a_running_task_is_never_erased(engine: TaskEngine, clock: FakeClock) -> None:
    task = await running(engine)
    clock.advance(days(1000))
    await sweep(engine.store, RetentionPolicy(completed=0, failed=0, canceled=0, rejected=0))
    assert await there(engine, task) == [True]


async def test_erasing_leaves_nothing(engine: TaskEngine, kernel: Kernel, clock: FakeClock) -> None:
    for text in ("one", "stream", "fail"):
        await ended(engine, text, context="talk")
    clock.advance(1)
    removed = await sweep(engine.store, RetentionPolicy(completed=0, failed=0))
    assert (removed.tasks, removed.contexts) == (3, 1)
    await assert_nothing_left(kernel)


async def test_a_context_lives_as_long_as_its_last_task(engine: TaskEngine, kernel: Kernel, clock: FakeClock) -> None:
    await ended(engine, "one", context="talk")
    clock.advance(days(2))
    await ended(engine, "two", context="talk")
    assert (await sweep(engine.store, RetentionPolicy(completed=days(1)))).contexts == 0
    assert await kernel.get(ME, CONTEXTS, "talk") is not None
    clock.advance(days(2))
    assert (await sweep(engine.store, RetentionPolicy(completed=days(1)))).contexts == 1
    assert await kernel.get(ME, CONTEXTS, "talk") is None


async def test_all_partitions_are_swept(engine: TaskEngine, kernel: Kernel, clock: FakeClock) -> None:
    for owner in ("ada", "bob", "eve"):
        await ended(engine, "one", owner=owner)
    clock.advance(1)
    assert (await sweep(engine.store, RetentionPolicy(completed=0))).tasks == 3
    await assert_nothing_left(kernel)


async def test_several_processes_sweep_concurrently(engine: TaskEngine, clock: FakeClock) -> None:
    """No task is erased or counted twice."""
    for number in range(100):
        await ended(engine, str(number))
    clock.advance(1)
    policy = RetentionPolicy(completed=0, log=0)
    removed = await asyncio.gather(*(sweep(engine.store, policy) for _ in range(4)))
    assert sum(each.tasks for each in removed) == 100


async def test_a_task_that_was_answered_meanwhile_stays(engine: TaskEngine) -> None:
    """A user may answer between the search and the erasure."""
    task = await ended(engine, "ask")
    found = await engine.store.load(engine.kernel.scoped(ME), task.record.task_id)
    sent = await engine.tasks.send(message("one", task_id=task.record.task_id))
    await engine.tasks.settled(sent)
    assert not await erase_task(
        engine.store, engine.kernel.scoped(ME), task.record.task_id, version=found.record.version
    )
    assert await there(engine, task) == [True]


async def test_an_engine_applies_its_policy(kernel: Kernel) -> None:
    """The engine sweeps in the background while it runs."""
    policy = RetentionPolicy(completed=0, every=0.05)
    async with TaskEngine(kernel, worker, settings=QUICK, retention=policy) as engine:
        task = await ended(engine, "one")
        async with asyncio.timeout(10):
            while await there(engine, task) == [True]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


# ---------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.parametrize("text", ["count", "stream"])
async def test_a_trimmed_task_is_complete(engine: TaskEngine, clock: FakeClock, text: str) -> None:
    """The log is trimmed, and the task stays the same to the byte."""
    task = await ended(engine, text)
    task_id = task.record.task_id
    before = await engine.store.task_json(await engine.store.load(engine.kernel.scoped(ME), task_id))
    clock.advance(hours(2))
    assert await sweep(engine.store, RetentionPolicy(log=hours(1)), dry=True) == SweptTasks(logs=1)
    assert await sweep(engine.store, RetentionPolicy(log=hours(1))) == SweptTasks(logs=1)

    log = await engine.kernel.log_state(ME, EVENTS, task_id)
    assert log.floor == log.head == task.version
    after = await engine.store.load(engine.kernel.scoped(ME), task_id)
    assert await engine.store.task_json(after) == before
    assert after.version == task.version
    assert await sweep(engine.store, RetentionPolicy(log=hours(1))) == SweptTasks()


async def test_a_short_log_stays(engine: TaskEngine, clock: FakeClock) -> None:
    """A snapshot that is larger than the log does not replace it; a dry run reports the same."""
    task = await ended(engine, "one")
    clock.advance(hours(2))
    assert await sweep(engine.store, RetentionPolicy(log=hours(1)), dry=True) == SweptTasks()
    assert await sweep(engine.store, RetentionPolicy(log=hours(1))) == SweptTasks()
    assert (await engine.kernel.log_state(ME, EVENTS, task.record.task_id)).floor == 0
    assert await engine.kernel.get(ME, SNAPSHOTS, task.record.task_id) is None


@pytest.mark.parametrize("text", ["one", "count", "stream"])
async def test_trimming_never_increases_the_size(tmp_path: Path, clock: FakeClock, text: str) -> None:
    """After compaction, the file of fifty tasks is at most as large as before, plus one record of the sweep."""
    file = tmp_path / "tasks.db"

    def compacted() -> int:
        copy = tmp_path / "compacted.db"
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        return copy.stat().st_size

    async with open_storage(f"sqlite:///{file}") as kernel, TaskEngine(kernel, worker, clock=clock) as engine:
        await asyncio.gather(*(ended(engine, text) for _ in range(50 if text != "stream" else 5)))
        before = compacted()
        clock.advance(1)
        removed = await sweep(engine.store, RetentionPolicy(log=0))
        after = compacted()
    assert after <= before + (0 if removed.logs else 3 * 4096)
    assert bool(removed.logs) == (text != "one")


async def test_a_late_reader_sees_the_gap(engine: TaskEngine, clock: FakeClock) -> None:
    """A reader of trimmed entries gets a snapshot marked as a gap; a reader that has them all gets nothing."""
    task = await ended(engine, "count")
    clock.advance(1)
    await sweep(engine.store, RetentionPolicy(log=0))
    [seen] = [event async for event in engine.tasks.follow(task.record.task_id, after=2)]
    assert isinstance(seen, TaskSnapshot)
    assert (seen.gap, seen.seq, seen.task.view.state) == (True, task.version, TaskState.completed)
    assert [event async for event in engine.tasks.follow(task.record.task_id, after=task.version)] == []


async def test_only_ended_tasks_are_trimmed(engine: TaskEngine, clock: FakeClock) -> None:
    tasks = [await ended(engine, "ask"), await running(engine)]
    clock.advance(days(1))
    assert await sweep(engine.store, RetentionPolicy(log=0)) == SweptTasks()
    states = [await engine.kernel.log_state(ME, EVENTS, task.record.task_id) for task in tasks]
    assert [state.floor for state in states] == [0, 0]


async def test_tasks_that_end_later_are_trimmed_by_a_later_sweep(engine: TaskEngine, clock: FakeClock) -> None:
    """A sweep continues where the last one stopped, and skips no task."""
    for _ in range(3):
        await ended(engine, "count")
        clock.advance(hours(2))
        assert (await sweep(engine.store, RetentionPolicy(log=hours(1)))).logs == 1


async def test_a_trimmed_task_is_erased_completely(engine: TaskEngine, kernel: Kernel, clock: FakeClock) -> None:
    """The message ids of the task are removed too, although its log no longer contains them."""
    await ended(engine, "stream")
    clock.advance(1)
    await sweep(engine.store, RetentionPolicy(log=0))
    await sweep(engine.store, RetentionPolicy(completed=0))
    await assert_nothing_left(kernel)


# -------------------------------------------------------------------------------------------------------------- erase


async def test_an_erased_message_can_be_sent_again(engine: TaskEngine) -> None:
    """The same message creates a new task."""
    words = message("one")
    first = (await engine.tasks.send(words)).task.record.task_id
    await engine.tasks.settled(await engine.tasks.send(words))
    assert await erase_task(engine.store, engine.kernel.scoped(ME), first)
    assert not await erase_task(engine.store, engine.kernel.scoped(ME), first)
    with pytest.raises(TaskNotFoundError):
        await engine.tasks.load(first)
    again = await engine.tasks.send(words)
    assert not again.repeated
    assert again.task.record.task_id != first


async def test_the_process_of_an_erased_task_is_fenced_off(engine: TaskEngine, kernel: Kernel) -> None:
    """No later write of the worker restores data of the task; its followers may get TaskNotFoundError.

    A worker that writes while the task is removed is stopped by a cancel first; its followers may see that end.
    """
    task = await running(engine)
    task_id = task.record.task_id
    follower = engine.tasks.follow(task_id)
    await anext(follower)
    assert await erase_task(engine.store, engine.kernel.scoped(ME), task_id)
    async with asyncio.timeout(5):
        with contextlib.suppress(TaskNotFoundError):
            async for _ in follower:
                pass
    assert engine.runner is not None
    for run in list(engine.runner.runs.values()):
        run.stop("drain")
        await run.finished()
    await assert_nothing_left(kernel)


async def test_a_waiting_message_is_erased_too(engine: TaskEngine, kernel: Kernel) -> None:
    task = await running(engine)
    await engine.tasks.send(message("and this", task_id=task.record.task_id))
    await erase_task(engine.store, engine.kernel.scoped(ME), task.record.task_id)
    await assert_nothing_left(kernel)


async def test_push_configs_are_erased_with_their_task(engine: TaskEngine, kernel: Kernel) -> None:
    task, other = await ended(engine, "fail"), await ended(engine, "fail")
    for task_id in (task.record.task_id, other.record.task_id):
        for number in range(3):
            await kernel.commit(ME, Insert(PUSH_CONFIGS, f"{task_id}/{number}", b"{}", {"task": task_id}))
    await erase_task(engine.store, engine.kernel.scoped(ME), task.record.task_id)
    assert (await kernel.stats()).records[PUSH_CONFIGS] == 3
    await erase_task(engine.store, engine.kernel.scoped(ME), other.record.task_id)
    await assert_nothing_left(kernel)


async def test_erase_by_context_and_by_owner(engine: TaskEngine, kernel: Kernel) -> None:
    """Data of other owners stays, also with the same context id."""
    mine = [await ended(engine, "one", context=context, owner="ada") for context in ("a", "a", "b")]
    other = await ended(engine, "one", context="a", owner="bob")
    assert await erase_context(engine.kernel.scoped("ada"), "a") == 2
    assert await there(engine, *mine, other) == [False, False, True, True]
    assert await erase_owner(engine.kernel.scoped("ada")) == 1
    assert await there(engine, *mine, other) == [False, False, False, True]
    assert await kernel.get("ada", CONTEXTS, "b") is None
    assert await kernel.get("bob", CONTEXTS, "a") is not None


async def test_an_interrupted_erasure_is_finished(
    engine: TaskEngine, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure that needs several commits continues; if it is interrupted, the next sweep finishes it."""
    monkeypatch.setattr("keelbolt.data.erasing.BATCH", 3)
    monkeypatch.setattr("keelbolt.data.erasing.RESUME_SECONDS", 0.0)
    task = await ended(engine, "stream")
    webhook = f"{task.record.task_id}/0"
    config = Insert(PUSH_CONFIGS, webhook, b"{}", {"task": task.record.task_id})
    await kernel.commit(ME, config, Enqueue(WEBHOOKS, webhook))
    commit, commits = kernel.commit, 0

    def once(partition: str, *operations: Operation) -> Awaitable[Receipt]:
        nonlocal commits
        commits += 1
        if commits > 1:
            raise SystemError("killed")
        return commit(partition, *operations)

    with monkeypatch.context() as patched:
        patched.setattr(kernel, "commit", once)
        with pytest.raises(SystemError):
            await erase_task(engine.store, engine.kernel.scoped(ME), task.record.task_id)
    assert await there(engine, task) == [False]
    assert (await kernel.stats()).records["task_segments"] > 0

    assert await resume_erasures(kernel) == 1
    await assert_nothing_left(kernel)
