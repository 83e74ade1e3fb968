"""Operators' view of a storage: the tasks of all owners, dead letters, and reports. On every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import TaskNotFoundError, UnsupportedOperationError
from keelbolt.kernel import Kernel, open_storage
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import Envelope, TaskContext, TaskEngine, TaskSettings
from keelbolt.tasks.dead import dead_letters, drop
from keelbolt.tasks.families import QUEUE
from keelbolt.tasks.report import report
from keelbolt.tasks.runner import EXHAUSTED
from tests.integration.tasks.stage import message

ADA = Principal(owner="ada", tenant="acme", roles=frozenset({"admin"}))
QUICK = TaskSettings(drain_seconds=0.0)


async def worker(ctx: TaskContext) -> None:
    if ctx.user_text == "fail":
        await ctx.fail("no")
    else:
        await ctx.complete(",".join(ctx.reference_task_ids) or "nothing")


@pytest.fixture
async def kernel(url: str) -> AsyncIterator[Kernel]:
    async with open_storage(url) as kernel:
        yield kernel


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[TaskEngine]:
    """An engine without a worker."""
    async with TaskEngine(kernel, settings=QUICK) as engine:
        yield engine


async def create_dead_letter(client: TaskEngine, principal: Principal) -> str:
    """Create a task with a dead letter: each process that ran it died."""
    words = message("try me", metadata={"from": "the client"})
    sent = await client.tasks.send(words, Envelope(principal, accepts=["text/plain"], metadata={"of": "the task"}))
    task_id = sent.task.record.task_id
    for number in range(5):
        claims = await client.kernel.claim(QUEUE, f"mortal-{number}", lease_seconds=0.01)
        assert [claim.key for claim in claims] == [task_id]
        await asyncio.sleep(0.03)
    async with TaskEngine(client.kernel, worker, settings=QUICK):
        assert (await client.tasks.settled(sent)).view.state is TaskState.failed
    return task_id


async def test_a_dead_letter_names_its_owner_and_reason(client: TaskEngine) -> None:
    task_id = await create_dead_letter(client, ADA)
    [letter] = (await dead_letters(client.store, client.tasks.scope(ADA))).letters
    assert (letter.task_id, letter.reason, letter.principal) == (task_id, EXHAUSTED, ADA)
    found = await report(client.store, client.tasks.scope(ADA), task_id)
    assert found.item is not None
    assert found.item.state == "dead"


async def test_requeue_creates_one_new_task(client: TaskEngine, kernel: Kernel) -> None:
    """Concurrent requests create one task. It has the message and its metadata; the old task stays failed."""
    old = await create_dead_letter(client, ADA)
    sent = await asyncio.gather(*(client.tasks.requeue(old, ADA) for _ in range(8)))
    [new] = {each.task.record.task_id for each in sent}
    assert (await dead_letters(client.store, client.tasks.scope(ADA))).letters == ()

    async with TaskEngine(kernel, worker, settings=QUICK):
        task = await client.tasks.settled(sent[0])
    whole = await client.store.task(task)
    assert whole.artifacts is not None
    assert whole.artifacts[0].parts[0].text == old
    assert whole.metadata == {"of": "the task"}
    assert whole.history is not None
    assert whole.history[0].metadata == {"from": "the client"}
    assert (task.record.turn.accepts, task.record.turn.principal["roles"]) == (["text/plain"], ["admin"])
    before = await client.tasks.load(old, ADA)
    assert before.view.state is TaskState.failed
    assert task.record.context_id == before.record.context_id
    assert (await client.tasks.requeue(old, ADA)).task.record.task_id == new


async def test_requeue_creates_one_new_task_even_where_sending_is_not_idempotent(
    client: TaskEngine, kernel: Kernel
) -> None:
    old = await create_dead_letter(client, ADA)
    async with TaskEngine(kernel, settings=TaskSettings(repeated_send="new")) as other:
        again = [(await other.tasks.requeue(old, ADA)).task.record.task_id for _ in range(2)]
    assert again[0] == again[1]


async def test_only_tasks_that_ended_without_a_result_are_requeued(client: TaskEngine, kernel: Kernel) -> None:
    waiting = await client.tasks.send(message("waits"))
    with pytest.raises(UnsupportedOperationError, match="the task is submitted"):
        await client.tasks.requeue(waiting.task.record.task_id)
    async with TaskEngine(kernel, worker, settings=QUICK):
        done = await client.tasks.settled(waiting)
        failed = await client.tasks.settled(await client.tasks.send(message("fail")))
    with pytest.raises(UnsupportedOperationError, match="the task is completed"):
        await client.tasks.requeue(done.record.task_id)
    again = await client.tasks.requeue(failed.record.task_id)
    assert again.task.view.state is TaskState.submitted


async def test_tasks_of_another_owner_can_not_be_requeued_or_dropped(client: TaskEngine) -> None:
    task_id = await create_dead_letter(client, ADA)
    with pytest.raises(TaskNotFoundError):
        await client.tasks.requeue(task_id)
    assert not await drop(client.tasks.scope(ANONYMOUS), task_id)
    assert await drop(client.tasks.scope(ADA), task_id)
    assert not await drop(client.tasks.scope(ADA), task_id)
