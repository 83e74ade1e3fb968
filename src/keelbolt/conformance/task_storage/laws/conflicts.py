"""Writes that are refused: they expect another version, or the task has ended."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import broken, equal, expect, raises
from keelbolt.conformance.task_storage.subject import AnyStorage, artifact, bound, law, loaded, made, new, said
from keelbolt.errors import ConcurrencyError, TaskTerminalStateError
from keelbolt.protocol.types import PAUSED, TERMINAL, TaskState
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


# -------------------------------------------------------------------------------------------------------------- endings


ENDS = sorted(TERMINAL)


@law()
async def an_ended_task_stays_ended(storage: AnyStorage) -> None:
    """A task that is completed, failed, canceled or rejected takes no other state: TaskTerminalStateError."""
    for end in ENDS:
        task = await new(storage)
        await storage.update_task(task.id, end)
        for state in TaskState:
            if state is not end:
                with raises(TaskTerminalStateError):
                    await storage.update_task(task.id, state)
        equal((await loaded(storage, task)).status.state, end, "the state")


@law()
async def an_ended_task_does_not_end_again(storage: AnyStorage) -> None:
    """The terminal state of a task can't be written a second time."""
    for end in ENDS:
        task = await new(storage)
        await storage.update_task(task.id, end)
        with raises(TaskTerminalStateError):
            await storage.update_task(task.id, end)


@law()
async def an_ended_task_is_refused_with_the_right_version_too(storage: AnyStorage) -> None:
    """A write of a state to an ended task is refused also if it expects the current version."""
    task = await new(storage)
    version = await storage.update_task(task.id, TaskState.completed)
    with raises(TaskTerminalStateError):
        await storage.update_task(task.id, TaskState.failed, expected_version=version)


@law()
async def a_refused_write_to_an_ended_task_stores_nothing(storage: AnyStorage) -> None:
    """An update that is refused because the task has ended stores nothing."""
    task = await new(storage, "1")
    await storage.update_task(task.id, TaskState.completed, task_metadata={"a": 1})
    before = await loaded(storage, task)
    with raises(TaskTerminalStateError):
        await storage.update_task(
            task.id,
            TaskState.failed,
            status_message=bound(task, "Failed"),
            messages=[bound(task, "2")],
            artifacts=[ArtifactWrite(artifact("a", "x"))],
            task_metadata={"a": 2},
        )
    equal(await loaded(storage, task), before, "the task")


@law()
async def paused_tasks_can_continue(storage: AnyStorage) -> None:
    """A task that waits for input or authorization can continue."""
    for pause in sorted(PAUSED):
        task = await new(storage)
        await storage.update_task(task.id, pause)
        await storage.update_task(task.id, TaskState.submitted)
        await storage.update_task(task.id, TaskState.completed)
        equal((await loaded(storage, task)).status.state, TaskState.completed, "the state")


@law()
async def an_ended_task_accepts_appends(storage: AnyStorage) -> None:
    """Updates without a state add messages, artifacts and metadata to an ended task."""
    for end in ENDS:
        task = await new(storage, "1")
        await storage.update_task(task.id, end, artifacts=[ArtifactWrite(artifact("a", "1"))])
        await storage.update_task(task.id, messages=[bound(task, "2")])
        await storage.update_task(task.id, artifacts=[ArtifactWrite(artifact("a", "2"), append=True)])
        await storage.update_task(task.id, task_metadata={"late": True})
        now = await loaded(storage, task)
        equal((said(now), made(now)), (["1", "2"], {"a": ["1", "2"]}), "the added values")
        equal((now.metadata, now.status.state), ({"late": True}, end), "metadata and state")


@law()
async def the_first_end_wins(storage: AnyStorage) -> None:
    """Of concurrent writers that end a task, one wins and the others get TaskTerminalStateError."""
    for _ in range(10):
        task = await new(storage)
        await storage.update_task(task.id, TaskState.working)
        answers = await asyncio.gather(
            *(storage.update_task(task.id, end, messages=[bound(task, end.name)]) for end in ENDS * 2),
            return_exceptions=True,
        )
        won = [end for end, answer in zip(ENDS * 2, answers, strict=True) if isinstance(answer, int)]
        lost = [answer for answer in answers if isinstance(answer, TaskTerminalStateError)]
        equal((len(won), len(lost)), (1, 7), "the numbers of successful and refused writes")
        now = await loaded(storage, task)
        equal((now.status.state, said(now)[1:]), (won[0], [won[0].name]), "the terminal state and its message")
