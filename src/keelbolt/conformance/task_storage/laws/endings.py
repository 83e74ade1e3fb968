"""Tasks end once."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import equal, raises
from keelbolt.conformance.task_storage.samples import artifact, bound, loaded, made, new, said
from keelbolt.conformance.task_storage.subject import AnyStorage, law
from keelbolt.errors import TaskTerminalStateError
from keelbolt.protocol.types import PAUSED, TERMINAL, TaskState
from keelbolt.tasks.storage import ArtifactWrite

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
