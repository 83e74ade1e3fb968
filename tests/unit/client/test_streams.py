"""Streams of agents without event ids, and the states in which a stream ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from keelbolt.client.events import Event
from keelbolt.client.streams import Backoff, Frames, TaskStream
from keelbolt.client.transport import StreamFrame, StreamHints
from keelbolt.errors import (
    A2AConnectionError,
    A2AResponseError,
    InvalidParamsError,
    KeelboltError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from keelbolt.protocol.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from keelbolt.protocol.versions import ProtocolVersion


def task(state: TaskState = TaskState.working, text: str = "") -> Task:
    artifacts = [Artifact(artifact_id="a", parts=[Part(text=each) for each in text])] if text else []
    return Task(id="t", context_id="c", status=TaskStatus(state=state), artifacts=artifacts)


def status(state: TaskState) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(task_id="t", context_id="c", status=TaskStatus(state=state))


def chunk(text: str) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id="a", parts=[Part(text=text)])
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=True)


class Agent:
    """Plays the next script for each connection: frames, then an exception or a clean end."""

    def __init__(self, *scripts: list[Any], tasks: list[Task] | None = None) -> None:
        self.scripts = list(scripts)
        self.tasks = tasks or []
        self.sent = 0
        self.subscribed: list[str | None] = []

        self.version = ProtocolVersion.v1_0

    async def send(self, hints: StreamHints) -> Frames:
        self.sent += 1
        hints.version = self.version
        return self._next()

    async def subscribe(self, _task_id: str, after: str | None, hints: StreamHints) -> Frames:
        self.subscribed.append(after)
        hints.version = self.version
        return self._next()

    async def get(self, _task_id: str) -> Task:
        if not self.tasks:
            raise TaskNotFoundError("t")
        return self.tasks.pop(0)

    @asynccontextmanager
    async def _next(self) -> AsyncIterator[AsyncGenerator[StreamFrame, None]]:
        script = self.scripts.pop(0)

        async def frames() -> AsyncGenerator[StreamFrame, None]:
            for each in script:
                if isinstance(each, Exception):
                    raise each
                yield each if isinstance(each, StreamFrame) else StreamFrame(each)

        yield frames()

    async def events(self, version: ProtocolVersion = ProtocolVersion.v1_0, *, resumes: bool = False) -> list[Event]:
        self.version = version
        now = iter(range(1000))
        backoff = Backoff(30.0, lambda: float(next(now)), lambda: 0.0)
        stream = TaskStream(
            send=self.send,
            subscribe=self.subscribe,
            get=self.get,
            resumes=resumes,
            again=resumes,
            backoff=backoff,
        )
        return [event async for event in stream.events()]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_seconds: float) -> None:
        pass

    monkeypatch.setattr("keelbolt.client.streams.asyncio.sleep", at_once)


CUT = A2AConnectionError("cut")


def shown(events: list[Event]) -> list[tuple[str, bool]]:
    return [(event.text or str(event.state and event.state.name), event.snapshot) for event in events]


async def test_after_a_break_comes_a_marked_snapshot() -> None:
    """The stream also ends with a snapshot, which corrects repeated and missing events."""
    agent = Agent(
        [task(), chunk("w"), CUT],
        [task(text="wx"), chunk("x"), chunk("z"), status(TaskState.completed)],
        tasks=[task(TaskState.completed, "wxyz")],
    )
    found = await agent.events()
    assert shown(found) == [
        ("working", False),
        ("w", False),
        ("wx", True),
        ("x", False),
        ("z", False),
        ("wxyz", True),
    ]
    assert [event.last for event in found] == [False] * 5 + [True]
    assert agent.sent == 1


async def test_a_task_older_than_its_stream_is_followed_by_the_last_event() -> None:
    ending = [task(text="x"), status(TaskState.completed)]
    agent = Agent([task(), CUT], ending, tasks=[task(text="xy")])
    assert shown(await agent.events()) == [("working", False), ("x", True), ("xy", True), ("completed", False)]


async def test_a_task_that_can_not_be_loaded_does_not_break_the_end() -> None:
    agent = Agent([task(), CUT], [task(text="x"), status(TaskState.completed)], tasks=[])
    assert shown(await agent.events()) == [("working", False), ("x", True), ("completed", False)]


@pytest.mark.parametrize(("first", "comes"), [(chunk("y"), False), (chunk("z"), True)])
async def test_in_0_3_the_task_is_loaded_and_its_content_is_not_repeated(
    first: TaskArtifactUpdateEvent, comes: bool
) -> None:
    tasks = [task(text="xy"), task(TaskState.completed, "xyz")]
    agent = Agent([task(), chunk("x"), CUT], [first, status(TaskState.completed)], tasks=tasks)
    found = shown(await agent.events(ProtocolVersion.v0_3))
    assert found[:3] == [("working", False), ("x", False), ("xy", True)]
    assert (found[3] == ("z", False)) is comes


@pytest.mark.parametrize(
    "answer",
    [
        [UnsupportedOperationError("over")],
        [InvalidParamsError("Task is in terminal state: completed")],
        [TaskNotFoundError("t")],
        [MethodNotFoundError("what?")],
        [A2AResponseError("no such path", status=404)],
        [],
    ],
    ids=["1.0", "0.3", "no queue", "no method", "no path", "an empty stream"],
)
async def test_a_task_that_ended_meanwhile_is_loaded(answer: list[KeelboltError]) -> None:
    agent = Agent([task(), CUT], answer, tasks=[task(TaskState.completed, "xyz")])
    found = await agent.events()
    assert shown(found)[-1] == ("xyz", True)
    assert found[-1].last
    assert len(agent.subscribed) == 1


async def test_a_subscription_that_breaks_at_once_may_be_to_an_ended_task() -> None:
    """The official server of 0.3 starts a response over REST before it finds that the task has ended."""
    over = task(TaskState.completed, "xyz")
    agent = Agent([task(), CUT], [CUT], tasks=[over, over])
    assert shown(await agent.events())[-1] == ("xyz", True)


async def test_without_subscriptions_a_task_is_polled_until_it_ends() -> None:
    tasks = [task(text="x"), task(text="x"), task(text="xy"), task(TaskState.completed, "xyz")]
    agent = Agent([task(), CUT], [MethodNotFoundError("what?")], tasks=tasks)
    assert shown(await agent.events()) == [("working", False), ("x", True), ("xy", True), ("xyz", True)]


async def test_ids_are_sent_to_every_agent_and_the_next_number_is_not_a_gap() -> None:
    """An agent may continue a stream without declaring it."""
    agent = Agent(
        [StreamFrame(task()), StreamFrame(chunk("x"), "7"), CUT],
        [StreamFrame(chunk("y"), "8"), StreamFrame(status(TaskState.completed), "9")],
    )
    assert shown(await agent.events()) == [("working", False), ("x", False), ("y", False), ("completed", False)]
    assert agent.subscribed == ["7"]


async def test_a_gap_is_corrected_at_the_end() -> None:
    agent = Agent(
        [StreamFrame(task()), StreamFrame(chunk("x"), "7"), CUT],
        [StreamFrame(task(text="xy")), StreamFrame(chunk("y"), "8"), CUT],
        [StreamFrame(chunk("z"), "9"), StreamFrame(status(TaskState.completed), "10")],
        tasks=[task(TaskState.completed, "xyz")],
    )
    assert shown(await agent.events())[-3:] == [("y", False), ("z", False), ("xyz", True)]


async def test_a_break_after_an_old_question_does_not_end_the_stream() -> None:
    """The first event of a message to a waiting task may show the previous state."""
    agent = Agent([task(TaskState.input_required), CUT], [task(), status(TaskState.completed)], tasks=[])
    assert (await agent.events())[-1].state is TaskState.completed


async def test_another_number_than_the_next_one_is_a_gap() -> None:
    agent = Agent(
        [StreamFrame(task()), StreamFrame(chunk("x"), "7"), CUT],
        [StreamFrame(chunk("z"), "9"), StreamFrame(status(TaskState.completed), "10")],
        tasks=[task(text="xyz"), task(TaskState.completed, "xyz")],
    )
    assert shown(await agent.events()) == [("working", False), ("x", False), ("xyz", True), ("xyz", True)]


async def test_an_agent_that_lost_its_task_is_given_up() -> None:
    scripts: list[list[Any]] = [[UnsupportedOperationError("who?")] for _ in range(100)]
    agent = Agent([task(), CUT], *scripts, tasks=[task() for _ in range(100)])
    with pytest.raises(A2AConnectionError, match="does not resume"):
        await agent.events()
    assert len(agent.subscribed) < 40


@pytest.mark.parametrize("ending", [[], [CUT]])
async def test_a_question_ends_a_stream(ending: list[Exception]) -> None:
    agent = Agent([task(), status(TaskState.input_required), *ending])
    found = await agent.events()
    assert (found[-1].state, found[-1].last) == (TaskState.input_required, True)


async def test_a_task_that_waits_for_a_login_may_continue_by_itself() -> None:
    agent = Agent([task(), status(TaskState.auth_required), status(TaskState.completed)])
    assert (await agent.events())[-1].state is TaskState.completed
    closed = Agent([task(), status(TaskState.auth_required)])
    assert (await closed.events())[-1].state is TaskState.auth_required
    cut = Agent([task(), status(TaskState.auth_required), CUT], [task(TaskState.completed)])
    assert (await cut.events())[-1].state is TaskState.completed


async def test_in_0_3_a_question_always_ends_the_stream() -> None:
    agent = Agent([task(), status(TaskState.input_required), chunk("never read")])
    assert (await agent.events(ProtocolVersion.v0_3))[-1].state is TaskState.input_required


async def test_a_message_is_a_complete_stream() -> None:
    message = Message(message_id="m", role=Role.agent, parts=[Part(text="Hi")])
    assert shown(await Agent([message, chunk("never read")]).events()) == [("Hi", False)]


async def test_an_unsent_message_is_sent_again_without_a_snapshot() -> None:
    agent = Agent([A2AConnectionError("refused", sent=False)], [task(TaskState.completed)])
    assert shown(await agent.events()) == [("completed", False)]
    lost = Agent([CUT])
    with pytest.raises(A2AConnectionError):
        await lost.events()
    silent = Agent([])
    with pytest.raises(A2AResponseError):
        await silent.events()


async def test_with_ids_the_stream_continues_after_the_last_event() -> None:
    agent = Agent(
        [StreamFrame(task(), "1"), StreamFrame(chunk("x"), "4"), CUT],
        [CUT],
        [StreamFrame(chunk("x"), "4"), StreamFrame(chunk("y"), "5")],
        [StreamFrame(status(TaskState.completed), "6")],
    )
    found = await agent.events(resumes=True)
    assert [event.id for event in found] == ["1", "4", "5", "6"]
    assert agent.subscribed == ["4", "4", "5"]


async def test_a_restored_storage_is_shown_as_a_snapshot() -> None:
    """After a restore from a backup, the agent has fewer events than the client saw."""
    agent = Agent(
        [StreamFrame(task(), "1"), StreamFrame(chunk("x"), "9"), CUT],
        [StreamFrame(task(), "5"), StreamFrame(chunk("y"), "6"), StreamFrame(status(TaskState.completed), "7")],
    )
    found = await agent.events(resumes=True)
    assert [(event.id, event.snapshot) for event in found] == [
        ("1", False),
        ("9", False),
        ("5", True),
        ("6", False),
        ("7", False),
    ]


async def test_a_task_that_ends_after_an_empty_subscription_keeps_its_last_events() -> None:
    """A stopping server closes a quiet stream, and the task ends before the client loads it."""
    agent = Agent(
        [StreamFrame(task(), "1"), CUT],
        [],
        [StreamFrame(chunk("x"), "2"), StreamFrame(status(TaskState.completed), "3")],
        tasks=[task(TaskState.completed, "x")],
    )
    found = await agent.events(resumes=True)
    assert [(event.id, event.last) for event in found] == [("1", False), ("2", False), ("3", True)]
    assert agent.subscribed == ["1", "1"]


async def test_a_subscription_after_the_last_event_ends() -> None:
    agent = Agent([StreamFrame(task(), "3"), CUT], [], [], tasks=[task(TaskState.completed)])
    assert [event.id for event in await agent.events(resumes=True)] == ["3"]
    assert agent.subscribed == ["3", "3"]
