"""Followers read the log from any entry on, in any process, without gaps and repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.errors import TaskNotFoundError
from keelbolt.kernel import Entry, Trim
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext, TaskEngine, TaskSnapshot
from keelbolt.tasks import events as events_module
from keelbolt.tasks.events import Followed
from keelbolt.tasks.families import EVENTS, SNAPSHOTS
from keelbolt.tasks.sweep import erase_task
from tests.integration.tasks.stage import Stage, answer, ask, log, look, message, until

PARTITION = ANONYMOUS.partition


async def follow(engine: TaskEngine, task_id: str, after: int | None = None) -> list[Followed]:
    """Return everything that a follower gets, to the end."""
    async with asyncio.timeout(30.0), aclosing(engine.tasks.follow(task_id, after=after)) as followed:
        return [event async for event in followed]


def stored_parts(events: Sequence[Followed]) -> list[tuple[int, str, bytes]]:
    """Return the parts that are the same for every reader."""
    assert not any(isinstance(event, TaskSnapshot) for event in events)
    return [(event.seq, event.kind, event.data) for event in events if isinstance(event, Entry)]


async def streams(ctx: TaskContext) -> None:
    """Writes chunks, a status and steps as fast as possible, then the end."""
    for number in range(int(ctx.user_text)):
        await ctx.emit_text_artifact(f"{number},", append=True)
        if number % 25 == 0:
            await ctx.send_status(f"at {number}")
    await ctx.step("s", lambda: 1)
    await ctx.complete()


async def test_from_every_number(stage: Stage) -> None:
    """A reader that has the log up to any entry gets exactly the rest, also in another process and after the end."""
    engine = await stage.engine(streams)
    other = await stage.engine()
    sent = await engine.tasks.send(message("40"))
    task_id = sent.task.record.task_id
    live = [asyncio.create_task(follow(one, task_id, after)) for one in (engine, other) for after in (0, 2, 4)]
    entries = await _ended(engine, task_id)
    for number, seen in enumerate(await asyncio.gather(*live)):
        assert stored_parts(seen) == stored_parts(entries[(0, 2, 4)[number % 3] :])
    for after in range(len(entries) + 1):
        assert stored_parts(await follow(other, task_id, after)) == stored_parts(entries[after:]), after


async def _ended(engine: TaskEngine, task_id: str) -> list[Entry]:
    async def over() -> bool:
        return (await engine.tasks.load(task_id)).view.state.terminal

    await until(over, seconds=20.0)
    return await log(engine, task_id)


async def test_a_snapshot_first(stage: Stage) -> None:
    """Without a seq, the current task comes first, then later entries; no entry is in both."""
    gate = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await ctx.emit_text_artifact("a")
        await ctx.send_status("waiting")
        await gate.wait()
        await ctx.emit_text_artifact("b", append=True)
        await ctx.complete()

    engine = await stage.engine(worker)
    other = await stage.engine()
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    for one in (engine, other):
        async with aclosing(one.tasks.follow(task_id)) as followed:
            first = await anext(followed)
            assert isinstance(first, TaskSnapshot)
            assert not first.gap
            assert first.task.view.state is TaskState.working
    await until(lambda: _parts(engine, task_id, 1))
    live = [asyncio.create_task(follow(one, task_id)) for one in (engine, other)]
    await asyncio.sleep(0.05)
    gate.set()
    entries = await _ended(engine, task_id)
    for seen in await asyncio.gather(*live):
        assert isinstance(seen[0], TaskSnapshot)
        assert stored_parts(seen[1:]) == stored_parts(entries[seen[0].seq :])
        assert len(seen) == 3


async def _parts(engine: TaskEngine, task_id: str, count: int) -> bool:
    task = await look(engine, task_id)
    return bool(task.artifacts) and len(task.artifacts[0].parts) == count


async def test_a_task_that_ended(stage: Stage) -> None:
    """A follower of an ended task gets a snapshot and nothing more; also for a seq beyond its end."""
    engine = await stage.engine(streams)
    task = await ask(engine, "3")
    head = len(await log(engine, task.id))
    for after in (None, head + 1, 10**9):
        (only,) = await follow(engine, task.id, after)
        assert isinstance(only, TaskSnapshot)
        assert only.seq == head
    assert await follow(engine, task.id, head) == []


async def test_a_paused_task_is_followed_further(stage: Stage) -> None:
    """A follower of a paused task also sees the next turn, from any process."""

    async def worker(ctx: TaskContext) -> None:
        await (ctx.complete("bye") if ctx.user_text == "bye" else ctx.request_input("more?"))

    engine = await stage.engine(worker)
    other = await stage.engine(worker)
    task = await ask(engine, "hello")
    follower = asyncio.create_task(follow(engine, task.id, 0))
    await asyncio.sleep(0.02)
    await ask(other, "bye", task_id=task.id)
    assert stored_parts(await follower) == stored_parts(await log(engine, task.id))


async def test_below_the_floor(stage: Stage) -> None:
    """Trimmed entries are reported as a gap with the current task; other entries are delivered as usual."""
    engine = await stage.engine(streams)
    task = await ask(engine, "600")
    entries = await log(engine, task.id)
    kernel = engine.kernel
    assert await kernel.get(PARTITION, SNAPSHOTS, task.id) is not None
    floor = 300
    await kernel.commit(PARTITION, Trim(EVENTS, task.id, floor))
    for after in (0, 1, floor - 1):
        first, *rest = await follow(engine, task.id, after)
        assert isinstance(first, TaskSnapshot)
        assert first.gap
        assert first.seq == len(entries)
        assert rest == []
    for after in (floor, floor + 1, len(entries) - 1):
        assert stored_parts(await follow(engine, task.id, after)) == stored_parts(entries[after:])
    assert len((await look(engine, task.id)).artifacts[0].parts) == 600


async def test_many_followers_read_once(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many followers in the process that runs a task cause at most one reader of its log."""
    engine = await memory.engine(streams)
    line = memory.lines[engine]
    reads = 0
    real = line.kernel.read_log

    async def counted(partition: str, name: str, *args: object, **more: object) -> object:
        nonlocal reads
        reads += name == EVENTS
        return await real(partition, name, *args, **more)  # type: ignore[arg-type]

    gate = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await gate.wait()
        await streams(ctx)

    slow = await memory.engine(worker)
    memory.lines[slow].read_log = counted  # type: ignore[attr-defined]
    sent = await slow.tasks.send(message("500"))
    task_id = sent.task.record.task_id
    followers = [asyncio.create_task(follow(slow, task_id)) for _ in range(50)]
    await asyncio.sleep(0.05)
    before = reads
    gate.set()
    seen = await asyncio.gather(*followers)
    assert reads - before < 10
    entries = await log(engine, task_id)
    assert all(stored_parts(one[1:]) == stored_parts(entries[4:]) for one in seen)


async def test_a_slow_reader(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reader reads from the store: memory stays bounded, and other readers do not wait."""
    monkeypatch.setattr(events_module, "RING_ENTRIES", 10)
    engine = await stage.engine(streams)
    sent = await engine.tasks.send(message("300"))
    task_id = sent.task.record.task_id
    seen = []
    async with aclosing(engine.tasks.follow(task_id, after=0)) as followed:
        seen.append(await anext(followed))
        assert (await answer(engine, sent)).status.state is TaskState.completed  # the producer did not wait for it
        feed = engine.events.feed(engine.kernel.scoped(PARTITION), task_id)
        assert feed is not None
        assert len(feed._ring) <= 10
        seen += [event async for event in followed]
    assert stored_parts(seen) == stored_parts(await log(engine, task_id))
    assert engine.events.feed(engine.kernel.scoped(PARTITION), task_id) is None  # no feed is left without a reader


async def test_a_follower_that_leaves(stage: Stage) -> None:
    """A follower that stops releases its resources, and the others continue."""
    engine = await stage.engine(streams)
    sent = await engine.tasks.send(message("100"))
    task_id = sent.task.record.task_id
    stays = asyncio.create_task(follow(engine, task_id, 0))
    async with aclosing(engine.tasks.follow(task_id, after=0)) as followed:
        await anext(followed)
    leaves = asyncio.create_task(follow(engine, task_id, 0))
    await asyncio.sleep(0)
    leaves.cancel()
    assert stored_parts(await stays) == stored_parts(await log(engine, task_id))
    await asyncio.gather(leaves, return_exceptions=True)
    assert not engine.events._feeds


async def test_followers_see_only_committed_entries(stage: Stage) -> None:
    """Every entry that a follower has seen is in the store at that moment."""
    engine = await stage.engine(streams)
    sent = await engine.tasks.send(message("50"))
    task_id = sent.task.record.task_id
    async with aclosing(engine.tasks.follow(task_id, after=0)) as followed:
        async for event in followed:
            state = await engine.kernel.log_state(PARTITION, EVENTS, task_id)
            assert state.head >= event.seq


async def test_lost_notifications(stage: Stage) -> None:
    """A follower without notifications from other processes sees the whole log, by the safety poll."""
    engine = await stage.engine(streams)
    other = await stage.engine()
    stage.deafen(other)
    sent = await engine.tasks.send(message("20"))
    seen = await follow(other, sent.task.record.task_id, 0)
    assert stored_parts(seen) == stored_parts(await log(engine, sent.task.record.task_id))


async def test_lost_notifications_of_an_erased_task(stage: Stage) -> None:
    """A follower without notifications from other processes ends when the task is erased."""
    engine = await stage.engine(asks)
    other = await stage.engine()
    stage.deafen(other)
    task_id = (await ask(engine)).id
    following = asyncio.create_task(follow(other, task_id))
    await until(lambda: other.events.feed(other.kernel.scoped(PARTITION), task_id) is not None)
    assert await erase_task(engine.store, engine.kernel.scoped(PARTITION), task_id)
    with pytest.raises(TaskNotFoundError):
        await following


async def test_idle_followers_read_nothing(stage: Stage) -> None:
    """A follower of an idle task reads its log once, in the process that runs the task and in another."""
    engine = await stage.engine(waits)
    other = await stage.engine()
    sent = await engine.tasks.send(message())
    following = [asyncio.create_task(follow(each, sent.task.record.task_id)) for each in (engine, other)]
    await until(
        lambda: all(
            each.events.feed(each.kernel.scoped(PARTITION), sent.task.record.task_id) for each in (engine, other)
        )
    )
    await asyncio.sleep(2.5)  # work left from the start
    with counted_reads(engine, other) as reads:
        await asyncio.sleep(2.5)
    assert reads == []
    for each in following:
        each.cancel()
    await asyncio.gather(*following, return_exceptions=True)


async def asks(ctx: TaskContext) -> None:
    await ctx.request_input("And now?")


async def waits(_: TaskContext) -> None:
    await asyncio.sleep(60)


@contextmanager
def counted_reads(*engines: TaskEngine) -> Iterator[list[str]]:
    """Record the streams whose logs these engines read, and the work items that they look up."""
    reads: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for kernel in {id(engine.kernel): engine.kernel for engine in engines}.values():
            for name in ("read_log", "work"):
                called = getattr(kernel, name)

                def count(*place: str, called: Callable[..., Any] = called, **how: Any) -> Any:
                    reads.append(place[2])
                    return called(*place, **how)

                patch.setattr(kernel, name, count)
        yield reads


async def test_no_such_task(stage: Stage) -> None:
    engine = await stage.engine()
    with pytest.raises(TaskNotFoundError):
        await follow(engine, "unknown")
