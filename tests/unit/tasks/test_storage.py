"""Keelbolt's task storages beyond their laws: names and opening, owners, bad input, complete deletion."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keelbolt.auth.principal import Principal
from keelbolt.errors import ConcurrencyError, InvalidTaskRequest, InvalidValue, StorageClosed, UnknownScheme
from keelbolt.kernel import Patch, Remove, open_storage
from keelbolt.protocol.types import Artifact, Message, Part, Role, Task, TaskState
from keelbolt.tasks import Envelope, TaskContext, TaskEngine
from keelbolt.tasks.families import SNAPSHOTS, TASKS, WEBHOOKS
from keelbolt.tasks.pushes import push_key
from keelbolt.tasks.record import push_field
from keelbolt.tasks.storage import (
    ArtifactWrite,
    InMemoryStorage,
    KernelStorage,
    ListTasksQuery,
    PostgreSQLStorage,
    RedisStorage,
    SQLiteStorage,
    Storage,
    storage_of,
)
from tests.conformance.three_methods import ThreeMethods

ALICE, BOB = Principal("alice"), Principal("bob", "acme")


def message(text: str = "Hello", message_id: str = "1", **more: Any) -> Message:
    return Message(message_id=message_id, role=Role.user, parts=[Part(text=text)], **more)


def chunk(text: str) -> ArtifactWrite:
    return ArtifactWrite(Artifact(artifact_id="a", parts=[Part(text=text)]), append=True)


# -------------------------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("memory", InMemoryStorage),
        ("memory:", InMemoryStorage),
        ("sqlite:///tasks.db", SQLiteStorage),
        ("sqlite+aiosqlite:///tasks.db", SQLiteStorage),
        ("postgresql://user:pass@localhost/db", PostgreSQLStorage),
        ("postgresql+asyncpg://user:pass@localhost/db", PostgreSQLStorage),
        ("redis://localhost:6379/0", RedisStorage),
        ("valkey://localhost:6379/0", RedisStorage),
    ],
)
def test_a_string_names_a_storage(given: str, kind: type) -> None:
    assert type(storage_of(given)) is kind


def test_a_storage_object_is_used_unchanged() -> None:
    storage = ThreeMethods()
    assert storage_of(storage) is storage


def test_invalid_storages_are_refused() -> None:
    with pytest.raises(UnknownScheme):
        storage_of("mysql://localhost/db")
    with pytest.raises(InvalidValue, match="not ThreeMethods"):
        storage_of(ThreeMethods)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="begins with postgresql:"):
        PostgreSQLStorage("sqlite:///tasks.db")


async def test_sqlite_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "what? #1%.db"
    async with SQLiteStorage(path) as storage:
        task = await storage.create_task("talk", message())
    assert path.exists()
    async with SQLiteStorage(str(path)) as storage:
        assert await storage.load_task(task.id) == task


async def test_a_storage_is_closed_at_exit() -> None:
    storage = InMemoryStorage()
    with pytest.raises(StorageClosed):
        await storage.load_task("x")
    async with storage:
        async with storage:  # a second entry does not close it for the others
            pass
        await storage.create_task("talk", message())
    assert (await storage.health_check())["status"] == "down"


async def test_an_open_kernel_is_left_open() -> None:
    async with open_storage("memory:") as kernel:
        async with KernelStorage(kernel) as storage:
            await storage.create_task("talk", message())
        assert (await kernel.health()).writes


async def test_the_defaults_of_the_contract() -> None:
    storage: Storage[Any] = ThreeMethods()
    page = await storage.list_tasks(ListTasksQuery())
    assert (page.tasks, page.next_page_token, page.page_size, page.total_size) == ([], "", 50, 0)
    with pytest.raises(NotImplementedError):
        await storage.delete_task("x")
    with pytest.raises(NotImplementedError):
        await storage.delete_context("x")
    assert await storage.get_version("x") is None
    assert await storage.load_context("x") is None
    assert await storage.update_context("x", 1) is None
    assert await storage.load_context("x") is None
    assert await storage.health_check() == {"status": "ok"}


def test_three_methods_are_required() -> None:
    assert Storage.__abstractmethods__ == {"load_task", "create_task", "update_task"}


# --------------------------------------------------------------------------------------------------------------- owners


async def test_an_owner_sees_only_its_own_tasks() -> None:
    async with InMemoryStorage() as storage:
        alice, bob = storage.scoped(ALICE), storage.scoped(BOB)
        task = await alice.create_task("talk", message(), idempotency_key="k")
        await alice.update_context("talk", {"secret": 1})
        assert await bob.load_task(task.id) is None
        assert await bob.get_version(task.id) is None
        assert await bob.load_context("talk") is None
        assert (await bob.list_tasks(ListTasksQuery())).total_size == 0
        assert not await bob.delete_task(task.id)
        assert await bob.delete_context("talk") == 0
        assert (await bob.create_task("talk", message(), idempotency_key="k")).id != task.id
        assert await alice.load_task(task.id) == task
        token = await _token(alice)
        with pytest.raises(InvalidTaskRequest):
            await bob.list_tasks(ListTasksQuery(page_size=1, page_token=token))


async def _token(storage: KernelStorage[Any]) -> str:
    await storage.create_task("talk", message())
    return (await storage.list_tasks(ListTasksQuery(page_size=1))).next_page_token


# ------------------------------------------------------------------------------------------------------------ bad input

DEEP: Any = 1
for _ in range(250):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "given",
    [
        message("\ud800"),
        Message(message_id="1", role=Role.user, parts=[Part(data={"x": "\ud800"})]),
        Message(message_id="1", role=Role.user, parts=[Part(data=DEEP)]),
        Message(message_id="1", role=Role.user, parts=[Part(data=object())]),
        message("x" * 17_000_000),
    ],
    ids=["surrogate", "surrogate in data", "too deep", "no JSON", "too large"],
)
async def test_values_that_could_not_be_read_again_are_refused(given: Message) -> None:
    """One such stored message would break every list that contains it."""
    async with InMemoryStorage() as storage:
        good = await storage.create_task("talk", message())
        with pytest.raises(InvalidTaskRequest):
            await storage.create_task("talk", given)
        with pytest.raises(InvalidTaskRequest):
            await storage.update_task(good.id, messages=[given])
        with pytest.raises(InvalidTaskRequest):
            await storage.update_task(good.id, TaskState.working, status_message=given)
        assert (await storage.list_tasks(ListTasksQuery())).tasks == [good]


async def test_wrong_arguments_are_typed_errors() -> None:
    async with InMemoryStorage() as storage:
        task = await storage.create_task("talk", message())
        for context_id in ("", "a\0b", "\ud800", "x" * 1001, None):
            with pytest.raises(InvalidTaskRequest):
                await storage.create_task(context_id, message())  # type: ignore[arg-type]
        for length in (-1, 1.5, True, "1"):
            with pytest.raises(InvalidTaskRequest):
                await storage.load_task(task.id, length)  # type: ignore[arg-type]
        for version in (-1, "1", 1.0):
            with pytest.raises(InvalidTaskRequest):
                await storage.update_task(task.id, expected_version=version)  # type: ignore[arg-type]
        with pytest.raises(InvalidTaskRequest):
            await storage.update_task(task.id, "unknown")  # type: ignore[arg-type]
        for metadata in ({"x": "\ud800"}, {"x": object()}, {"x": float("nan")}):
            with pytest.raises(InvalidTaskRequest):
                await storage.update_task(task.id, task_metadata=metadata)
        for nothing in ("", "\0", "\ud800", "x" * 5000, None, 7):
            assert await storage.load_task(nothing) is None  # type: ignore[arg-type]
            assert await storage.get_version(nothing) is None  # type: ignore[arg-type]
            assert not await storage.delete_task(nothing)  # type: ignore[arg-type]
        for nowhere in ("\0", "\ud800", "x" * 5000):
            assert (await storage.list_tasks(ListTasksQuery(context_id=nowhere))).total_size == 0
        assert await storage.load_task(task.id) == task


async def test_states_may_be_spelled_in_common_forms() -> None:
    async with InMemoryStorage() as storage:
        task = await storage.create_task("talk", message())
        await storage.update_task(task.id, "input-required")  # type: ignore[arg-type]
        loaded = await storage.load_task(task.id)
        assert loaded is not None
        assert loaded.status.state is TaskState.input_required


# ------------------------------------------------------------------------------------------------------- with an engine


async def worker(ctx: TaskContext) -> None:
    if ctx.user_text == "ask":
        await ctx.request_input("Which one?")
        return
    for number in range(400):
        await ctx.emit_text_artifact("x" * 200, append=number > 0)
    await ctx.complete("done")


async def test_nothing_is_left_of_a_deleted_task() -> None:
    """Record, log, inbox, snapshot, segments, keys of its sends and work item are removed."""
    async with InMemoryStorage() as storage, TaskEngine(storage.kernel, worker) as engine:
        kept = await engine.tasks.settled(
            await engine.tasks.send(message("ask", "kept", context_id="other"), Envelope(key="kept"))
        )
        before = await storage.kernel.stats()
        long = await engine.tasks.settled(
            await engine.tasks.send(message("long", "m1", context_id="talk"), Envelope(key="1"))
        )
        asked = await engine.tasks.settled(await engine.tasks.send(message("ask", "m2", context_id="talk")))
        follow = message("long", "m3", task_id=asked.record.task_id)
        await engine.tasks.settled(await engine.tasks.send(follow, Envelope(key="2")))
        made = await storage.create_task("talk", message("x", "m4"), idempotency_key="key")
        await storage.update_task(made.id, messages=[message("x", "kept")])  # the id of another task's send
        await storage.update_context("talk", {"a": 1})
        assert await storage.scope.get(SNAPSHOTS, long.record.task_id) is not None
        assert await storage.delete_task(long.record.task_id)
        assert await storage.delete_context("talk") == 2
        after = await storage.kernel.stats()
        assert (after.records, after.streams, after.entries) == (before.records, before.streams, before.entries)
        again = await engine.tasks.send(message("ask", "kept", context_id="other"), Envelope(key="kept"))
        assert again.task.record.task_id == kept.record.task_id


async def test_a_running_task_that_is_deleted_stops_writing() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def endless(ctx: TaskContext) -> None:
        started.set()
        try:
            while True:
                await ctx.emit_text_artifact("x", append=True)
                await ctx.send_status("on it")
                await asyncio.sleep(0.001)
        finally:
            stopped.set()

    async with InMemoryStorage() as storage, TaskEngine(storage.kernel, endless) as engine:
        sent = await engine.tasks.send(message())
        await started.wait()
        assert await storage.delete_task(sent.task.record.task_id)
        await asyncio.wait_for(stopped.wait(), 10)
        assert await storage.load_task(sent.task.record.task_id) is None
        assert (await storage.kernel.stats()).entries == 0


async def test_storage_and_engine_see_the_same_task() -> None:
    async with InMemoryStorage() as storage, TaskEngine(storage.kernel, worker) as engine:
        sent = await engine.tasks.settled(await engine.tasks.send(message("ask", context_id="talk")))
        task = await storage.load_task(sent.record.task_id)
        assert task is not None
        assert task.status.state is TaskState.input_required
        version = await storage.get_version(task.id)
        assert version == sent.version
        await storage.update_task(task.id, TaskState.canceled, expected_version=version)
        listed = await engine.tasks.list(ListTasksQuery(status=TaskState.canceled))
        assert [Task.model_validate_json(entry).id for entry in listed.tasks if isinstance(entry, bytes)] == [task.id]


async def test_webhooks_are_notified() -> None:
    """A status or artifact that is written through the storage wakes the task's webhooks."""
    async with InMemoryStorage() as storage:
        task = await storage.create_task("talk", message())
        pushed = Patch(TASKS, task.id, {"push": push_field(["config"])})
        await storage.scope.commit(pushed)
        key = push_key(task.id, "config")
        await storage.update_task(task.id, messages=[message("nothing that a client streams")])
        assert await storage.scope.work(WEBHOOKS, key) is None
        for change in ({"artifacts": [chunk("x")]}, {"state": TaskState.completed}):
            await storage.update_task(task.id, **change)
            assert await storage.scope.work(WEBHOOKS, key) is not None
            await storage.scope.commit(Remove(WEBHOOKS, key))


# ----------------------------------------------------------------------------------------------------------------- cost


async def test_appends_write_snapshots() -> None:
    """Loading a task reads a snapshot and a few entries, for any number of writes."""
    async with InMemoryStorage() as storage:
        task = await storage.create_task("talk", message())
        for number in range(1000):
            await storage.update_task(task.id, artifacts=[chunk(str(number))])
        stored = await storage.scope.get(SNAPSHOTS, task.id)
        assert stored is not None
        assert stored.version >= 2
        loaded = await storage.load_task(task.id)
        assert loaded is not None
        assert [part.text for part in loaded.artifacts[0].parts] == [str(number) for number in range(1000)]


async def test_many_versions_of_a_context_stay_consistent() -> None:
    async with InMemoryStorage() as storage:
        assert await storage.update_context("talk", None, version=0) == 1
        with pytest.raises(ConcurrencyError) as caught:
            await storage.update_context("talk", {"a": 1}, version=0)
        assert (caught.value.expected, caught.value.found) == (0, 1)
