"""Versions: a write that expects another version is refused."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import broken, equal, expect, raises
from keelbolt.conformance.task_storage.samples import artifact, bound, loaded, made, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.errors import ConcurrencyError
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.storage import ArtifactWrite


@law()
async def every_write_returns_a_new_version(storage: AnyStorage) -> None:
    """Each update returns an integer that is larger than the one before."""
    task = await new(storage)
    last = await storage.update_task(task.id, TaskState.working)
    expect(type(last) is int, f"the version is {last!r}")
    for change in (
        {"messages": [bound(task, "x")]},
        {"artifacts": [ArtifactWrite(artifact("a", "x"))]},
        {"task_metadata": {"a": 1}},
        {},
        {"state": TaskState.completed},
        {"messages": [bound(task, "y")]},
    ):
        version = await storage.update_task(task.id, **change)
        expect(type(version) is int and version > last, f"the version after {last} is {version!r}")
        last = version


@law()
async def the_returned_version_can_be_expected(storage: AnyStorage) -> None:
    """The next write can expect the version that a write returned."""
    task = await new(storage)
    version = await storage.update_task(task.id, TaskState.working)
    for number in range(5):
        version = await storage.update_task(task.id, task_metadata={"n": number}, expected_version=version)
    version = await storage.update_task(task.id, messages=[bound(task, "x")], expected_version=version)
    await storage.update_task(task.id, TaskState.completed, expected_version=version)
    equal((await loaded(storage, task)).status.state, TaskState.completed, "the state")


@law()
async def a_stale_version_is_refused(storage: AnyStorage) -> None:
    """A write that expects an older version raises ConcurrencyError, with any content."""
    task = await new(storage)
    stale = await storage.update_task(task.id, TaskState.working)
    await storage.update_task(task.id, messages=[bound(task, "x")])
    for change in (
        {"state": TaskState.completed},
        {"messages": [bound(task, "y")]},
        {"artifacts": [ArtifactWrite(artifact("a", "x"))]},
        {"task_metadata": {"a": 1}},
        {},
    ):
        with raises(ConcurrencyError):
            await storage.update_task(task.id, expected_version=stale, **change)


@law()
async def a_future_version_is_refused(storage: AnyStorage) -> None:
    """A write that expects a version which does not exist yet raises ConcurrencyError."""
    task = await new(storage)
    version = await storage.update_task(task.id, TaskState.working)
    with raises(ConcurrencyError):
        await storage.update_task(task.id, TaskState.completed, expected_version=version + 1000)


@law()
async def a_write_refused_for_its_version_stores_nothing(storage: AnyStorage) -> None:
    """An update with a stale version stores nothing."""
    task = await new(storage, "1")
    stale = await storage.update_task(task.id, TaskState.working)
    await storage.update_task(task.id, task_metadata={"a": 1})
    before = await loaded(storage, task)
    with raises(ConcurrencyError):
        await storage.update_task(
            task.id,
            TaskState.completed,
            status_message=bound(task, "Done"),
            messages=[bound(task, "2")],
            artifacts=[ArtifactWrite(artifact("a", "x"))],
            task_metadata={"a": 2},
            expected_version=stale,
        )
    equal(await loaded(storage, task), before, "the task")


@law()
async def one_of_many_writers_of_a_version_wins(storage: AnyStorage) -> None:
    """Of ten concurrent writers that expect the same version, one writes and nine get ConcurrencyError."""
    task = await new(storage, "0")
    version = await storage.update_task(task.id, TaskState.working)
    for change in ("state", "append"):
        answers = await asyncio.gather(
            *(
                storage.update_task(
                    task.id,
                    TaskState.working if change == "state" else None,
                    messages=[bound(task, f"{change} {number}")],
                    expected_version=version,
                )
                for number in range(10)
            ),
            return_exceptions=True,
        )
        won = [answer for answer in answers if isinstance(answer, int)]
        lost = [answer for answer in answers if isinstance(answer, ConcurrencyError)]
        equal((len(won), len(lost)), (1, 9), "the numbers of successful and refused writes")
        version = won[0]
    equal(len(said(await loaded(storage, task))), 3, "the number of messages")


@law()
async def without_an_expected_version_nothing_is_refused(storage: AnyStorage) -> None:
    """A write without an expected version is never refused for its version."""
    task = await new(storage)
    await storage.update_task(task.id, TaskState.working)
    await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "x"))])
    await storage.update_task(task.id, TaskState.completed)
    equal(made(await loaded(storage, task)), {"a": ["x"]}, "the artifacts")


@law("get_version")
async def get_version_returns_the_last_version(storage: AnyStorage) -> None:
    """get_version returns the version that the last write returned."""
    task = await new(storage)
    first = await storage.get_version(task.id)
    if type(first) is not int:
        broken(f"the version of a new task is {first!r}")
    version = await storage.update_task(task.id, TaskState.working, expected_version=first)
    equal(await storage.get_version(task.id), version, "the version")


@law("get_version")
async def an_unknown_task_has_no_version(storage: AnyStorage) -> None:
    """The version of a task that does not exist is None."""
    await new(storage)
    equal(await storage.get_version("no-such-task"), None, "the version of an unknown task")


@law("get_version")
async def a_refused_write_keeps_the_version(storage: AnyStorage) -> None:
    """A refused update leaves the version unchanged."""
    task = await new(storage)
    version = await storage.update_task(task.id, TaskState.working)
    with raises(ConcurrencyError):
        await storage.update_task(task.id, TaskState.completed, expected_version=version + 5)
    equal(await storage.get_version(task.id), version, "the version")
