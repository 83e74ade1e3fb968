"""A task of another agent as a durable step: see `TaskContext.relay`.

A relay records these steps of the turn:

    ~relay NAME                 started (with the other agent's task, once it is known), then done with the answer
    ~.at ~relay NAME            the last event that was passed on, in the commit that passes it on
    ~.artifact ~relay NAME ID   the artifact of this task that the agent's artifact ID is passed on to
    ~.ask ~relay NAME N         the N-th question of the agent to the user, and its answer
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from keelbolt.client.events import Event
from keelbolt.client.messages import Said, message_of
from keelbolt.errors import (
    A2AConnectionError,
    A2AResponseError,
    KeelboltError,
    RelayFailed,
    StepFailed,
    TaskNotCancelableError,
)
from keelbolt.protocol.types import (
    Artifact,
    Message,
    Metadata,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
    encode,
)
from keelbolt.tasks.lifecycle import End
from keelbolt.tasks.parts import encoded_part, plain
from keelbolt.tasks.relay_output import RelayOutput
from keelbolt.tasks.steps import RELAYED, Policy, Unwind, new_deadline, seconds_left
from keelbolt.tasks.telemetry import watched_step
from keelbolt.tasks.view import StepView

if TYPE_CHECKING:
    from keelbolt.client.client import A2AClient
    from keelbolt.tasks.context import TaskContext

logger = logging.getLogger("keelbolt.tasks")

ANSWER = "answer"  # artifact id for an answer without artifacts
SPACE = uuid.UUID("6f0c4f57-6c4b-4c39-9d3e-3c1b1d8a4f0e")  # namespace of message ids, the same in every attempt
POLL_SECONDS = (0.2, 5.0)  # poll interval for an agent that does not stream: first, maximum
AGAIN_SECONDS = 1.0  # delay before a stream is reopened that ended before the task
CANCEL_SECONDS = 10.0  # timeout of the request that cancels the other agent's task


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Options of the message and of the relay; see `TaskContext.relay`."""

    name: str = "relay"
    stream: bool = True
    seconds: float | None = None
    in_doubt: Policy | None = None
    context_id: str | None = None
    metadata: Metadata | None = None
    skill: str | None = None
    accepted_output_modes: Sequence[str] = ()


class Relay:
    """One call of another agent by one run of a turn."""

    def __init__(self, ctx: TaskContext, client: A2AClient, message: Said, options: RelayOptions) -> None:
        self._ctx = ctx
        self._run = ctx._run
        self._steps = ctx._steps
        self._client = client
        self._options = options
        self._message = _without_ids(message, ctx.task_id)
        self._key = self._steps.key(f"~relay {plain(options.name)}")
        self._record: dict[str, Any] = {}  # the recorded state: the other agent's task, and the deadline
        self._output = RelayOutput(ctx, self._key, stream=options.stream)
        self._paused: Task | None = None

    async def run(self) -> Task | Message:
        """Return the answer of the other agent. Raises RelayFailed, TimeoutError, and the errors of the client."""
        known = self._known(self._key)
        if known is not None:
            recorded = await self._steps.result(self._key, known)
            if known.state in ("done", "refused"):
                self._steps.passed()
                return await self._recorded(known.state, recorded)
            self._record = recorded or {}
            if "message" in self._record:
                self._message = Message.model_validate(self._record["message"])
        self._run.relays += 1
        try:
            if self._run.cancel_requested:  # it came while the user was asked, or a crash kept it from being passed on
                await self._cancel()
            self._steps.passed()
            self._run.check_cancel()
            if known is None or known.state == "retry":
                await self._begin()
            elif self._remote is None and not await self._repeatable():
                await self._steps.ask_in_doubt(self._key)
                raise Unwind
            with watched_step(self._run.runner, self._key):
                return await self._answer()
        finally:
            self._run.relays -= 1

    # ------------------------------------------------------------------------------------------------------ record

    @property
    def _remote(self) -> str | None:
        """The id of the other agent's task."""
        return self._record.get("task")

    def _known(self, key: str) -> StepView | None:
        return self._run.journal.task.view.steps.get(key)

    async def _begin(self) -> None:
        """Record the message before it is sent, so that the next run sends the same one."""
        self._record = {"until": self._until(), "message": from_json(encode(self._message))}
        await self._steps.note(self._key, "started", result=self._record)

    def _until(self) -> dict[str, Any] | None:
        seconds = self._options.seconds
        return None if seconds is None else new_deadline(self._run.store.clock, seconds)

    async def _repeatable(self) -> bool:
        """Return whether the message may be sent again although it may have arrived."""
        return self._options.in_doubt == "retry" or (
            self._options.in_doubt is None and await self._client.deduplicates()
        )

    # ------------------------------------------------------------------------------------------------------ follow

    async def _answer(self) -> Task | Message:
        until = self._record.get("until")
        seconds = self._options.seconds
        left = None if until is None else seconds_left(self._run.store.clock, until, otherwise=seconds or 0.0)
        limit = asyncio.timeout(left)
        try:
            async with limit:
                return await self._follow()
        except TimeoutError:
            if not limit.expired():
                raise
            await self._cancel()
            raise TimeoutError(
                f"{self._client.url} did not complete its task within {self._options.seconds:g} s"
            ) from None
        except asyncio.CancelledError:
            if self._run.gives_up:
                await self._cancel()
            raise

    async def _follow(self) -> Task | Message:
        if self._remote is not None:
            await self._client.reachable()  # the agent may restart at the same time as this process
        while True:
            try:
                async with aclosing(await self._events()) as events:
                    async for event in events:
                        answer = await self._take(event)
                        if answer is not None:
                            return answer
            except A2AConnectionError:
                if self._remote is None:
                    raise
                await self._client.get_task(self._remote)  # a task that is silent for long is not a lost connection
            if self._paused is not None:
                await self._question(self._paused, None)
            if self._remote is None:
                raise A2AResponseError("the agent ended the stream without a response")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _events(self) -> AsyncGenerator[Event, None]:
        """Return the events after the last one that was passed on."""
        if self._remote is None:
            return await self._sent(self._message, **self._first())
        number = self._questions()
        if number > self._output.at.get("answered", 0):
            task = await self._client.get_task(self._remote)
            # Do not send the answer again if the agent continued by itself or has it from an earlier run.
            if task.status.state.paused and all(said.message_id != self._id(number) for said in task.history):
                return await self._reply(number)
        if await self._client.streams():
            return self._client.subscribe(self._remote, after=self._output.at.get("event"))
        return self._polled(None)

    def _first(self) -> dict[str, Any]:
        """Return the send options of the message; they are the same in every attempt."""
        options = self._options
        return {
            "message_id": self._id(0),
            "idempotency_key": self._id(0),
            "context_id": options.context_id,
            "metadata": options.metadata,
            "skill": options.skill,
            "accepted_output_modes": options.accepted_output_modes,
        }

    async def _sent(self, message: Message, **options: Any) -> AsyncGenerator[Event, None]:
        if await self._client.streams():
            return self._client.stream_message(message, **options)
        return self._polled(await self._client.send_message(message, return_immediately=True, **options))

    async def _polled(self, sent: Task | Message | None) -> AsyncGenerator[Event, None]:
        """Yield the task of an agent that does not stream, after each change."""
        if sent is not None:
            yield Event(sent, last=isinstance(sent, Message))
        shown, pause = sent, POLL_SECONDS[0]
        while self._remote is not None:
            task = await self._client.get_task(self._remote)
            if task != shown or task.status.state.paused:
                shown, pause = task, POLL_SECONDS[0]
                yield Event(task, snapshot=True, last=task.status.state.paused)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS[1])

    async def _reply(self, number: int) -> AsyncGenerator[Event, None]:
        """Send the user's answer to the other agent's task, and restart its time limit."""
        key = f"{RELAYED}{self._key} {number}"
        known = self._known(key)
        assert known is not None
        said = Message.model_validate(await self._steps.result(key, known))
        self._record = {**self._record, "until": self._until()}
        await self._steps.note(self._key, "started", result=self._record)
        return await self._sent(
            Message(message_id=self._id(number), role=Role.user, parts=said.parts, metadata=said.metadata),
            task_id=self._remote,
            context_id=self._record.get("context"),
            idempotency_key=self._id(number),
            accepted_output_modes=self._options.accepted_output_modes,
        )

    def _id(self, number: int) -> str:
        """Return the id of the message (0), or of the user's answer to a question: the same in every attempt."""
        return str(uuid.uuid5(SPACE, f"{self._ctx.task_id}/{self._ctx.turn}/{self._key}/{number}"))

    def _questions(self) -> int:
        prefix = f"{RELAYED}{self._key} "
        return sum(key.startswith(prefix) for key in self._run.journal.task.view.steps)

    async def _take(self, event: Event) -> Task | Message | None:
        value = event.value
        if isinstance(value, Message):
            return await self._finish_message(value)
        await self._attach(event)
        if isinstance(value, TaskArtifactUpdateEvent):
            self._paused = None
            await self._output.pass_on(event, value.artifact, append=bool(value.append), last=bool(value.last_chunk))
            return None
        if isinstance(value, Task):
            await self._output.compare(event, value)
        state = value.status.state
        if state.terminal:
            return await self._finish(event, value)
        # A snapshot of a paused task may come before it continues with the answer; a paused status update is a
        # question.
        self._paused = value if isinstance(value, Task) and state.paused else None
        if state.paused and (event.last or isinstance(value, TaskStatusUpdateEvent)):
            return await self._question(value, event)
        await self._output.report(event, value.status.message)
        return None

    async def _attach(self, event: Event) -> None:
        """Record the id of the other agent's task before waiting for it, and that the user's answer arrived."""
        if self._remote is None and event.task_id:
            until = self._record.get("until")
            self._record = {"until": until, "task": event.task_id, "context": event.context_id}
            await self._steps.note(self._key, "started", result=self._record)
        number = self._questions()
        if number > self._output.at.get("answered", 0):
            await self._run.journal.notes([self._output.marked(answered=number)], 100)

    # ------------------------------------------------------------------------------------------------------- end

    async def _said(self, value: Task | TaskStatusUpdateEvent) -> Message | None:
        """Return the other agent's message for a status. Some agents put it only into the history."""
        if value.status.message is not None:
            return value.status.message
        history = (await self._client.get_task(self._remote or "")).history
        return history[-1] if history and history[-1].role is Role.agent else None

    async def _question(self, value: Task | TaskStatusUpdateEvent, event: Event | None) -> Task | Message:
        """Ask the user of this task. This ends the run; the run after the answer sends it to the same remote task."""
        said = await self._said(value)
        words = None if said is None else self._output.words(said)
        number = self._questions() + 1
        marked = self._output.marked(event, said=None if said is None else said.message_id)
        await self._steps.ask(f"{RELAYED}{self._key} {number}", End(value.status.state, words), before=[marked])
        raise Unwind

    async def _finish_message(self, message: Message) -> Message:
        if self._options.stream:
            await self._output.pass_on(None, Artifact(artifact_id=ANSWER, parts=message.parts), append=False, last=True)
        await self._steps.done(self._key, {"message": from_json(encode(message))})
        return message

    async def _finish(self, event: Event, value: Task | TaskStatusUpdateEvent) -> Task:
        status = value.status
        task_id, context_id = self._remote or "", event.context_id or self._record.get("context") or ""
        if not self._options.stream:
            whole = value if isinstance(value, Task) else await self._client.get_task(task_id, history_length=0)
            answer = whole.model_copy(update={"history": []})
            await self._steps.done(self._key, {"task": from_json(encode(answer))})
            return _checked(answer)
        if status.state is TaskState.completed and self._output.names:
            await self._output.report(event, status.message)
        elif status.state is TaskState.completed and (said := await self._said(value)) is not None:
            await self._output.pass_on(None, Artifact(artifact_id=ANSWER, parts=said.parts), append=False, last=True)
        here = await self._output.passed_on()
        answer = Task(id=task_id, context_id=context_id, status=status, artifacts=list(here.values()))
        brief = answer.model_copy(update={"artifacts": []})
        # The artifacts are in this task already. Store the number of parts, because the worker may add parts later.
        parts = {artifact_id: len(artifact.parts) for artifact_id, artifact in here.items()}
        await self._steps.done(self._key, {"task": from_json(encode(brief)), "parts": parts})
        return _checked(answer)

    async def _recorded(self, state: str, recorded: Any) -> Task | Message:
        """Return the answer of an earlier run."""
        if state == "refused":
            raise StepFailed(f"the relay {self._options.name!r} was in doubt, and the user answered 'failed'")
        if isinstance(recorded, dict) and "message" in recorded:
            return Message.model_validate(recorded["message"])
        if not isinstance(recorded, dict) or "task" not in recorded:  # the client's answer about a relay in doubt
            part = Part(text=recorded or "") if isinstance(recorded, str | None) else Part(data=recorded)
            return Message(message_id=self._id(0), role=Role.agent, parts=[part])
        answer = Task.model_validate(recorded["task"])
        if "parts" in recorded:
            here = await self._output.passed_on()
            for artifact_id, count in recorded["parts"].items():
                artifact = here[artifact_id]
                artifact.parts = artifact.parts[:count]
                encoded = b",".join([encoded_part(part) for part in artifact.parts])
                self._ctx._rewind[self._output.names[artifact_id]] = encoded
            answer.artifacts = [here[artifact_id] for artifact_id in recorded["parts"]]
        return _checked(answer)

    # ------------------------------------------------------------------------------------------------------ cancel

    async def _cancel(self) -> None:
        """Cancel the other agent's task. Its response does not affect this task."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._client.reachable()
                remote = self._remote or await self._lost_task()
                if remote is not None:
                    await self._client.cancel_task(remote)
        except TaskNotCancelableError:
            pass
        except (KeelboltError, TimeoutError) as error:
            logger.warning(
                "task %s: the task %s at %s could not be canceled: %s",
                self._ctx.task_id,
                self._remote,
                self._client.url,
                str(error) or "no response in time",
            )

    async def _lost_task(self) -> str | None:
        """Return the task of a message that may have been sent when the process died."""
        if self._known(self._key) is None or not await self._client.deduplicates():
            return None
        sent = await self._client.send_message(self._message, return_immediately=True, **self._first())
        return sent.id if isinstance(sent, Task) else None


def _without_ids(said: Said, task_id: str) -> Message:
    """Return the message, without the ids of this task, which the other agent does not know."""
    message = message_of(said)
    ours = message.task_id == task_id
    fields = message.model_fields_set - {"message_id", *(("task_id", "context_id") if ours else ())}
    return Message(message_id=message.message_id, **{name: getattr(message, name) for name in fields})


def _checked(task: Task) -> Task:
    if task.status.state is TaskState.completed:
        return task
    message = task.status.message
    raise RelayFailed(task.id, task.status.state, message.text if message is not None else "")
