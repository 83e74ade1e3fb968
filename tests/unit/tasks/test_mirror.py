"""The engine on a storage that has only the three required methods."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.errors import (
    ConcurrencyError,
    StorageUnreachable,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskTerminalStateError,
    UnsupportedOperationError,
)
from keelbolt.kernel import Query
from keelbolt.protocol.types import Message, Part, Role, Task, TaskState
from keelbolt.tasks import TaskContext, TaskEngine, TaskSettings, TaskSnapshot
from keelbolt.tasks import mirror as mirrors
from keelbolt.tasks import run as runs
from keelbolt.tasks.engine import MirrorManager
from keelbolt.tasks.families import CONTEXTS
from keelbolt.tasks.sends import Envelope
from keelbolt.tasks.storage import InMemoryStorage, ListTasksQuery, ListTasksResult
from keelbolt.tasks.sweep import erase_task
from tests.conformance.three_methods import ThreeMethods

QUICK = TaskSettings(drain_seconds=0.0)


def message(text: str, message_id: str = "1", **more: Any) -> Message:
    return Message(message_id=message_id, role=Role.user, parts=[Part(text=text)], **more)


async def worker(ctx: TaskContext) -> None:
    match ctx.user_text:
        case "ask":
            await ctx.request_input("Which one?")
        case "sleep":
            await asyncio.sleep(3600)
        case "count":
            await ctx.update_context(lambda known: (known or 0) + 1)
            await ctx.respond(str(await ctx.load_context()))
        case "stream":
            for number in range(50):
                await ctx.emit_text_artifact(str(number), append=number > 0)
            await ctx.complete()
        case text:
            await ctx.complete(f"You said: {text}")


class Recorder(ThreeMethods):
    """Records the calls, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.broken = False

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        self.calls.append("create")
        return await super().create_task(context_id, message, idempotency_key=idempotency_key)

    async def update_task(self, task_id: str, state: TaskState | None = None, **more: Any) -> int:
        self.calls.append(state.name if state is not None else "update")
        if self.broken:
            raise ConnectionError("SELECT secret FROM passwords")
        return await super().update_task(task_id, state, **more)


@pytest.fixture
async def storage() -> Recorder:
    return Recorder()


@pytest.fixture
async def engine(storage: Recorder) -> AsyncIterator[TaskEngine]:
    async with TaskEngine.on(storage, worker, settings=QUICK) as engine:
        yield engine


def texts(task: Task) -> list[str]:
    return [entry.text for entry in task.history]


async def done(engine: TaskEngine, given: Message, key: str | None = None) -> Task:
    settled = await engine.tasks.settled(await engine.tasks.send(given, Envelope(key=key)))
    return await engine.store.task(settled)


# ------------------------------------------------------------------------------------------------------ written through


async def test_the_storage_assigns_the_id_and_stores_everything(engine: TaskEngine, storage: Recorder) -> None:
    task = await done(engine, message("Hello", metadata={"a": 1}))
    stored = storage.tasks[task.id]
    assert (stored.artifacts, stored.history, stored.metadata) == (task.artifacts, task.history, task.metadata)
    assert stored.status.state is task.status.state is TaskState.completed
    assert storage.calls == ["create", "working", "completed"]


async def test_a_stream_is_written_in_order(engine: TaskEngine, storage: Recorder) -> None:
    task = await done(engine, message("stream"))
    wanted = [str(number) for number in range(50)]
    assert [part.text for part in storage.tasks[task.id].artifacts[0].parts] == wanted
    assert [part.text for part in task.artifacts[0].parts] == wanted


async def test_followers_see_only_stored_states(storage: Recorder) -> None:
    """When a follower sees a state, a load from the storage sees it too."""
    async with TaskEngine.on(storage, worker) as engine:
        sent = await engine.tasks.send(message("stream"))
        task_id = sent.task.record.task_id
        async for event in engine.tasks.follow(task_id):
            task = event.task if isinstance(event, TaskSnapshot) else await engine.tasks.load(task_id)
            stored = storage.tasks[task_id]
            assert task.view.state in (TaskState.working, stored.status.state)
            seen = await engine.store.task(task)
            assert len(stored.artifacts) >= len(seen.artifacts)


async def test_messages_and_responses_are_written(engine: TaskEngine, storage: Recorder) -> None:
    task = await done(engine, message("ask", "1"))
    assert storage.tasks[task.id].status.message is not None
    await done(engine, message("blue", "2", task_id=task.id))
    assert texts(storage.tasks[task.id]) == ["ask", "Which one?", "blue"]
    assert storage.tasks[task.id].status.state is TaskState.completed


async def test_cancelling_is_written(engine: TaskEngine, storage: Recorder) -> None:
    task = await done(engine, message("ask"))
    await engine.tasks.cancel(task.id)
    assert storage.tasks[task.id].status.state is TaskState.canceled
    with pytest.raises(TaskNotCancelableError):
        await engine.tasks.cancel(task.id)


async def test_identical_sends_make_one_task(engine: TaskEngine, storage: Recorder) -> None:
    sent = await asyncio.gather(*(engine.tasks.send(message("Hello"), Envelope(key="k")) for _ in range(50)))
    assert len({one.task.record.task_id for one in sent}) == len(storage.tasks) == 1
    assert storage.calls.count("create") == 1


async def test_repeated_sends_may_create_new_tasks(storage: Recorder) -> None:
    async with TaskEngine.on(storage, worker, settings=TaskSettings(repeated_send="new")) as engine:
        sent = [await engine.tasks.send(message("Hello", context_id="talk")) for _ in range(3)]
        assert len({one.task.record.task_id for one in sent}) == len(storage.tasks) == 3


# ------------------------------------------------------------------------------------------------- a storage that fails


async def test_a_write_that_fails_is_not_acknowledged(
    engine: TaskEngine, storage: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    storage.broken = True
    with pytest.raises(StorageUnreachable, match="Recorder failed") as caught:
        await engine.tasks.send(message("Hello"), Envelope(key="k"))
    assert "secret" not in str(caught.value)
    assert "secret" in caplog.text
    storage.broken = False
    task = await done(engine, message("Hello"), key="k")  # the same message finds the task that it created
    assert list(storage.tasks) == [task.id]
    assert task.status.state is TaskState.completed


async def test_a_task_whose_end_fails_is_retried(
    engine: TaskEngine, storage: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "AGAIN_SECONDS", 0.05)
    begun = 0

    async def fails_once(ctx: TaskContext) -> None:
        nonlocal begun
        begun += 1
        storage.broken = begun == 1
        await ctx.complete("done")

    assert engine.runner is not None
    engine.runner.handler = fails_once
    sent = await engine.tasks.send(message("Hello"))
    await asyncio.sleep(0.01)
    storage.broken = False
    task = await engine.tasks.settled(sent, seconds=10)
    assert task.view.state is storage.tasks[sent.task.record.task_id].status.state is TaskState.completed
    assert begun == 2


async def test_an_end_written_by_another_process_wins(engine: TaskEngine, storage: Recorder) -> None:
    """The storage's guard decides: the worker's end is refused, and the engine adopts the other one."""
    errors: list[Exception] = []

    async def late(ctx: TaskContext) -> None:
        await storage.update_task(ctx.task_id, TaskState.canceled)
        try:
            await ctx.complete("too late")
        except TaskTerminalStateError as error:
            errors.append(error)
            raise

    assert engine.runner is not None
    engine.runner.handler = late
    task = await engine.tasks.settled(await engine.tasks.send(message("Hello")), seconds=10)
    assert task.view.state is TaskState.canceled
    assert len(errors) == 1


# ------------------------------------------------------------------------------------------------------ after a restart


async def test_earlier_tasks_are_found(storage: Recorder) -> None:
    async with TaskEngine.on(storage, worker) as engine:
        ended, paused = await done(engine, message("stream", "1")), await done(engine, message("ask", "2"))
        left = storage.calls.copy()
    async with TaskEngine.on(storage, worker) as engine:
        for task in (ended, paused):
            again = await engine.store.task(await engine.tasks.load(task.id))
            assert (again.history, again.artifacts) == (task.history, task.artifacts)
            assert again.status.state is task.status.state
        assert storage.calls == left  # reading writes nothing
        first = await anext(engine.tasks.follow(ended.id, after=3))
        assert isinstance(first, TaskSnapshot)
        assert first.gap
        await done(engine, message("blue", "3", task_id=paused.id))
    assert texts(storage.tasks[paused.id]) == ["ask", "Which one?", "blue"]
    assert storage.tasks[paused.id].status.state is TaskState.completed


async def test_a_task_that_another_process_runs_is_read_again(engine: TaskEngine, storage: Recorder) -> None:
    task = await storage.create_task("talk", message("Hello"))
    await storage.update_task(task.id, TaskState.working)
    assert (await engine.tasks.load(task.id)).view.state is TaskState.working
    await storage.update_task(task.id, TaskState.completed, messages=[message("done", "2")])
    loaded = await engine.tasks.load(task.id)
    assert loaded.view.state is TaskState.completed
    assert texts(await engine.store.task(loaded)) == ["Hello", "done"]
    assert (await engine.tasks.load(task.id)).version == loaded.version


async def test_unfinished_tasks_end_at_shutdown(storage: Recorder) -> None:
    async with TaskEngine.on(storage, worker, settings=QUICK) as engine:
        sent = await engine.tasks.send(message("sleep"))
        paused = await done(engine, message("ask", "2"))
    status = storage.tasks[sent.task.record.task_id].status
    assert status.state is TaskState.failed
    assert status.message is not None
    assert status.message.text == mirrors.STOPPED
    assert storage.tasks[paused.id].status.state is TaskState.input_required


async def test_ended_tasks_do_not_stay_in_memory(
    engine: TaskEngine, storage: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "KEEP_SECONDS", 0.01)
    task = await done(engine, message("stream"), key="k")
    await asyncio.sleep(0.1)
    assert (await engine.kernel.stats()).entries == 0
    again = await engine.tasks.send(message("stream"), Envelope(key="k"))
    assert again.repeated
    assert again.task.record.task_id == task.id


async def test_ended_tasks_that_were_only_read_do_not_stay_in_memory(
    engine: TaskEngine, storage: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that was stored before this process, and one that another process ends."""
    monkeypatch.setattr(mirrors, "KEEP_SECONDS", 0.01)
    for number in range(2):
        task = await storage.create_task("talk", message("Hello", str(number)))
        if number:
            await storage.update_task(task.id, TaskState.working)
            await engine.tasks.load(task.id)
        await storage.update_task(task.id, TaskState.completed)
        assert (await engine.tasks.load(task.id)).view.state is TaskState.completed
    await asyncio.sleep(0.1)
    assert (await engine.kernel.stats()).entries == 0
    assert isinstance(engine.tasks, MirrorManager)
    assert engine.tasks.mirror.store.adopted == set()


async def test_sends_that_fail_and_are_not_repeated_do_not_stay_in_memory(
    engine: TaskEngine, storage: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_args: Any, **_options: Any) -> Task:
        raise ConnectionError

    monkeypatch.setattr(mirrors, "KEPT_CONTEXTS", 3)
    monkeypatch.setattr(storage, "create_task", fail)
    for number in range(5):
        with pytest.raises(StorageUnreachable):
            await engine.tasks.send(message("Hello", str(number)), Envelope(key=str(number)))
    assert isinstance(engine.tasks, MirrorManager)
    assert len(engine.tasks.mirror._contexts) == 3


# --------------------------------------------------------------------------------------------------------------- owners


async def test_an_owner_sees_only_its_own_tasks(storage: Recorder) -> None:
    alice, bob = Principal("alice"), Principal("bob")
    async with TaskEngine.on(storage, worker) as engine:
        sent = [
            await engine.tasks.settled(
                await engine.tasks.send(message("Hello", context_id="talk"), Envelope(principal=principal))
            )
            for principal in (alice, bob)
        ]
    mine, theirs = (task.record.task_id for task in sent)
    assert mine != theirs  # although context and message id are the same
    for _ in range(2):
        async with TaskEngine.on(storage, worker) as engine:
            loaded = await engine.tasks.load(mine, alice)
            assert not (await engine.store.task(loaded)).metadata
            for stranger in (bob, Principal()):
                with pytest.raises(TaskNotFoundError):
                    await engine.tasks.load(mine, stranger)


class Versioned(Recorder):
    """Has a version for each task."""

    async def get_version(self, task_id: str) -> int | None:
        return self.calls.count("update") + 1 if task_id in self.tasks else None


async def test_a_read_of_another_owner_does_not_change_the_known_version() -> None:
    """The version belongs to the state in memory: a newer one would let a write overwrite an unseen change."""
    storage = Versioned()
    async with TaskEngine.on(storage, worker) as engine:
        sent = await engine.tasks.send(message("ask"), Envelope(principal=Principal("alice")))
        task = await engine.tasks.settled(sent)
        assert isinstance(engine.tasks, MirrorManager)
        known = dict(engine.tasks.mirror.versions)
        storage.calls += ["update"] * 5
        with pytest.raises(TaskNotFoundError):
            await engine.tasks.load(task.record.task_id, Principal("bob"))
        assert engine.tasks.mirror.versions == known


# --------------------------------------------------------------------------------------------------------------- limits


async def test_the_limits_are_logged_at_the_start(storage: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "keelbolt.tasks"):
        async with TaskEngine.on(storage, worker) as engine:
            assert [limit.partition(":")[0] for limit in engine.limits] == [
                "takeover",
                "resume",
                "sends",
                "steps",
                "follow-ups",
                "push",
                "events",
                "several engines",
                "lists",
                "erasing",
                "contexts",
            ]
            for limit in engine.limits:
                assert limit in caplog.text
            task = await done(engine, message("Hello"))
            with pytest.raises(UnsupportedOperationError, match="no list_tasks of its own"):
                await engine.tasks.list(ListTasksQuery())
            with pytest.raises(UnsupportedOperationError, match="can't delete tasks"):
                await erase_task(engine.store, engine.kernel.scoped(task_partition()), task.id)
            assert task.id in storage.tasks


def task_partition() -> str:
    return Principal().partition


@pytest.mark.parametrize("place", ["memory", "sqlite+aiosqlite:///{path}/tasks.db", InMemoryStorage()])
async def test_our_own_storages_have_no_limits(
    place: str | InMemoryStorage[Any], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    if isinstance(place, str):
        place = place.format(path=tmp_path)
    async with TaskEngine.on(place, worker) as engine:
        assert engine.limits == ()
        assert (await done(engine, message("Hello"))).status.state is TaskState.completed
    assert not caplog.records


class More(Recorder):
    """Also has the optional methods."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: dict[str, Any] = {}

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        return ListTasksResult(tasks=list(self.tasks.values()), total_size=len(self.tasks))

    async def delete_task(self, task_id: str) -> bool:
        return self.tasks.pop(task_id, None) is not None

    async def load_context(self, context_id: str) -> Any:
        return self.contexts.get(context_id)

    async def update_context(self, context_id: str, context: Any) -> None:
        self.contexts[context_id] = context


async def test_optional_methods_are_used() -> None:
    storage, task = More(), None
    for number in range(1, 4):  # the context outlives the process
        async with TaskEngine.on(storage, worker) as engine:
            task = await done(engine, message("count", str(number), context_id="talk"))
            assert texts(task)[-1] == str(number)
            assert storage.contexts == {"talk": number}
    async with TaskEngine.on(storage, worker) as engine:
        assert task is not None
        page = await engine.tasks.list(ListTasksQuery())
        assert (len(page.tasks), page.total_size) == (3, 3)
        with pytest.raises(UnsupportedOperationError, match="distinguish owners"):
            await engine.tasks.list(ListTasksQuery(), Principal("alice"))
        assert await erase_task(engine.store, engine.kernel.scoped(task_partition()), task.id)
        assert len(storage.tasks) == 2
        with pytest.raises(TaskNotFoundError):
            await engine.tasks.load(task.id)


async def test_an_owner_sees_only_its_own_contexts() -> None:
    """The context of another owner is never loaded, whatever the id of the context is."""
    storage = More()
    owners = [Principal("alice"), Principal("bob"), Principal("alice", tenant="acme"), Principal()]
    async with TaskEngine.on(storage, worker) as engine:
        for principal in owners:
            for context_id in ("talk", "alice/talk", *storage.contexts):
                sent = await engine.tasks.send(
                    message("count", context_id, context_id=context_id), Envelope(principal=principal)
                )
                assert texts(await engine.store.task(await engine.tasks.settled(sent)))[-1] == "1"
    assert set(storage.contexts.values()) == {1}


async def test_a_context_that_another_engine_changed_is_loaded_again() -> None:
    storage = More()
    async with TaskEngine.on(storage, worker) as one, TaskEngine.on(storage, worker) as two:
        for number, engine in enumerate((one, two, one, two), start=1):
            task = await done(engine, message("count", str(number), context_id="talk"))
            assert texts(task)[-1] == str(number)
    assert storage.contexts == {"talk": 4}


async def test_a_refused_change_of_a_context_is_not_stored() -> None:
    """Of two tasks that loaded the same context, one changes it; the other's value never reaches the storage."""
    loaded, refused = asyncio.Barrier(2), []

    class Slow(More):
        async def update_context(self, context_id: str, context: Any) -> None:
            await asyncio.sleep(0)
            await super().update_context(context_id, context)

    async def change(ctx: TaskContext) -> None:
        await ctx.load_context()
        await loaded.wait()
        try:
            await ctx.update_context(ctx.user_text)
        except ConcurrencyError:
            refused.append(ctx.user_text)
        await ctx.complete()

    storage = Slow()
    async with TaskEngine.on(storage, change) as engine:
        sent = [await engine.tasks.send(message(text, text, context_id="talk")) for text in ("a", "b")]
        for task in sent:
            await engine.tasks.settled(task)
    assert len(refused) == 1
    assert storage.contexts["talk"] not in refused


async def test_contexts_of_ended_tasks_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "KEEP_SECONDS", 0.05)
    storage = More()
    async with TaskEngine.on(storage, worker) as engine:
        scope = engine.kernel.scoped(task_partition())
        for number in range(3):
            await done(engine, message("count", str(number), context_id=f"talk {number}"))
        async with asyncio.timeout(20):
            while [record async for record in scope.scan(Query(CONTEXTS))]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert texts(await done(engine, message("count", "again", context_id="talk 1")))[-1] == "2"


async def test_cancel_against_complete_ends_once(engine: TaskEngine, storage: Recorder) -> None:
    """Either the cancel or the end wins, the same one in memory and in the storage."""

    async def race(number: int) -> TaskState:
        sent = await engine.tasks.send(message("Hello", f"race {number}"))
        task_id = sent.task.record.task_id
        with contextlib.suppress(TaskNotCancelableError):
            await engine.tasks.cancel(task_id)
        task = await engine.tasks.settled(sent, seconds=10)
        assert task.view.state.terminal
        assert storage.tasks[task_id].status.state is task.view.state
        return task.view.state

    for round_ in range(20):
        await asyncio.gather(*(race(round_ * 10 + number) for number in range(10)))
    ends = [call for call in storage.calls if call in ("completed", "canceled")]
    assert len(ends) == 200
