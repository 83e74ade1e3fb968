"""Several engines on one user-defined storage, and the health that the storage reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from keelbolt.errors import TaskNotAcceptingMessagesError
from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks import Envelope, Sent, TaskContext, TaskEngine, TaskSettings
from tests.conformance.three_methods import ThreeMethods
from tests.integration.server.actor import agent
from tests.integration.server.asgi import ask

ROUNDS = 20
REPEATS = 4  # each waits until the other engine's poll sees the end


def message(text: str, message_id: str, **more: Any) -> Message:
    return Message(message_id=message_id, role=Role.user, parts=[Part(text=text)], **more)


class Versioned(ThreeMethods):
    """Has versions, and responds slowly."""

    status: Any = "ok"

    async def get_version(self, task_id: str) -> int | None:
        await asyncio.sleep(0.001)
        return self.versions.get(task_id)

    async def update_task(self, *given: Any, **more: Any) -> int:
        await asyncio.sleep(0.001)
        return await super().update_task(*given, **more)

    async def health_check(self) -> dict[str, Any]:
        if isinstance(self.status, Exception):
            raise self.status
        return {"status": self.status, "detail": "as it is"}


runs: Counter[str] = Counter()


async def worker(ctx: TaskContext) -> None:
    runs[ctx.message_id] += 1
    if ctx.turn == 1 and ctx.user_text == "ask":
        await ctx.request_input("Which one?")
    elif ctx.user_text == "wait":
        await asyncio.sleep(60)
    else:
        await asyncio.sleep(0.005)
        await ctx.complete(f"You said: {ctx.user_text}")


@pytest.fixture
async def storage() -> Versioned:
    runs.clear()
    return Versioned()


@pytest.fixture
async def engines(storage: Versioned) -> AsyncIterator[list[TaskEngine]]:
    async with AsyncExitStack() as stack:
        settings = TaskSettings(drain_seconds=0.0)
        yield [await stack.enter_async_context(TaskEngine.on(storage, worker, settings=settings)) for _ in range(2)]


async def settled(engine: TaskEngine, sent: Sent) -> TaskState:
    return (await engine.tasks.settled(sent, seconds=10)).view.state


async def test_two_concurrent_follow_ups(engines: list[TaskEngine], storage: Versioned) -> None:
    """Each engine gets one message: one is accepted and in the task, the other is refused."""
    for number in range(ROUNDS):
        sent = await engines[0].tasks.send(message("ask", f"{number}"))
        assert await settled(engines[0], sent) is TaskState.input_required
        task_id = sent.task.record.task_id
        answers = await asyncio.gather(
            *(
                engine.tasks.send(message("it", f"{number}.{each}", task_id=task_id))
                for each, engine in enumerate(engines)
            ),
            return_exceptions=True,
        )
        accepted = [each for each, answer in enumerate(answers) if isinstance(answer, Sent)]
        assert len(accepted) == 1  # its answer ends the task
        for answer in answers:
            assert isinstance(answer, Sent) or type(answer).__name__ in (
                "TaskNotAcceptingMessagesError",
                "TaskTerminalStateError",
            ), answer
        for each in accepted:
            answer = answers[each]
            assert isinstance(answer, Sent)
            assert await settled(engines[each], answer) is TaskState.completed
        messages = [entry.message_id for entry in storage.tasks[task_id].history if entry.role is Role.user]
        assert messages == [f"{number}", *(f"{number}.{each}" for each in accepted)]
    assert max(runs.values()) == 1


async def test_the_same_message_to_both_engines_runs_once(engines: list[TaskEngine], storage: Versioned) -> None:
    for number in range(REPEATS):
        given, key = message("Hello", f"{number}", context_id="c"), Envelope(key=f"key {number}")
        sent = await asyncio.gather(*(engine.tasks.send(given, key) for engine in engines))
        assert sent[0].task.record.task_id == sent[1].task.record.task_id
        states = await asyncio.gather(*(settled(*pair) for pair in zip(engines, sent, strict=True)))
        assert states == [TaskState.completed] * 2
    assert set(runs.values()) == {1}
    assert len(storage.tasks) == REPEATS


async def test_a_message_to_a_task_that_another_engine_runs(engines: list[TaskEngine], storage: Versioned) -> None:
    """The other engine refuses the message; a cancel there stops the worker here."""
    sent = await engines[0].tasks.send(message("wait", "1"))
    task_id = sent.task.record.task_id
    with pytest.raises(TaskNotAcceptingMessagesError, match="Another process"):
        await engines[1].tasks.send(message("more", "2", task_id=task_id))
    assert (await engines[1].tasks.cancel(task_id)).view.state is TaskState.canceled
    assert storage.tasks[task_id].status.state is TaskState.canceled
    assert runs == {"1": 1}


async def test_writes_of_others_into_a_running_task_stay(engines: list[TaskEngine], storage: Versioned) -> None:
    """A write with another version does not end the task: it is read, and the worker continues."""

    sent = await engines[0].tasks.send(message("Hello", "1"))
    task_id = sent.task.record.task_id
    await storage.update_task(task_id, task_metadata={"seen": True})
    assert await settled(engines[0], sent) is TaskState.completed
    assert (storage.tasks[task_id].metadata or {})["seen"] is True


async def test_a_storage_with_versions_has_one_limit_fewer(engines: list[TaskEngine]) -> None:
    assert not any(limit.startswith("several engines") for limit in engines[0].limits)


@pytest.mark.parametrize(
    ("status", "reads", "writes"),
    [("ok", True, True), ("read-only", True, False), ("down", False, False), (ValueError("secret"), False, False)],
)
async def test_health(engines: list[TaskEngine], storage: Versioned, status: Any, reads: bool, writes: bool) -> None:
    """`/health` and `/ready` report the result of the storage's `health_check`."""
    storage.status = status
    health = await engines[0].kernel.health()
    assert (health.reads, health.writes) == (reads, writes)
    assert "secret" not in health.detail
    async with agent(storage) as server:  # type: ignore[arg-type]
        for path in ("/health", "/ready"):
            assert (await ask(server.app, "GET", path)).status == (200 if reads and writes else 503)
