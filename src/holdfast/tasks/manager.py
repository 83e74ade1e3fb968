"""What clients do with tasks: send, look, wait, cancel, steer. Every call names its principal and sees only its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from holdfast.auth.principal import ANONYMOUS, Principal
from holdfast.errors import (
    CommitRefused,
    ContextMismatchError,
    InvalidTaskRequest,
    StorageBusy,
    TaskNotAcceptingMessagesError,
    TaskNotCancelableError,
    TaskTerminalStateError,
    TooLarge,
)
from holdfast.protocol.requests import TaskPage
from holdfast.protocol.types import Message, Role, TaskState, encode, timestamp
from holdfast.storage import Claim, Enqueue, Entry, FieldIn, Head, Operation, Remove, new_id
from holdfast.tasks.context import agent_message, text_part
from holdfast.tasks.dead import drop, owner_of, second_try
from holdfast.tasks.events import Events, Followed, Snapshot
from holdfast.tasks.families import EVENTS, INBOX, QUEUE, SENDS, TASKS, lane_of
from holdfast.tasks.fork import forked
from holdfast.tasks.inbox import STEERING, SteeringKind, cancelled, post
from holdfast.tasks.journal import Journal
from holdfast.tasks.json import json_bytes
from holdfast.tasks.lifecycle import Answer, Cancel, Start, apply
from holdfast.tasks.listing import list_tasks, newest_record
from holdfast.tasks.notes import MessageNote, Note, OtherNote, StatusNote, append_notes
from holdfast.tasks.pushes import NewPush, nudge, nudges
from holdfast.tasks.queries import ListTasksQuery
from holdfast.tasks.record import TaskRecord, Turn
from holdfast.tasks.run import Run
from holdfast.tasks.runner import Runner
from holdfast.tasks.sends import Send
from holdfast.tasks.settings import TaskSettings
from holdfast.tasks.steps import ANSWERS, read_answer
from holdfast.tasks.store import StoredTask, TaskStore
from holdfast.tasks.view import TaskView

RETRIES = 50
MAX_WAITING = 100  # messages that wait for a running task
MAX_CONTEXT_ID = 1000  # characters
RUNNING = (TaskState.submitted.name, TaskState.working.name)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was taken: its task as of then, and its run if that is in this process."""

    task: StoredTask
    run: Run | None = None
    repeated: bool = False
    opening: Sequence[Note] = ()  # what a new task began with

    def submitted(self) -> tuple[bytes, int] | None:
        """A new task as it was submitted, and the seq of that; a run that began at once may be further already."""
        messages: list[bytes] = []
        for seq, note in enumerate(self.opening, 1):
            if isinstance(note, StatusNote):
                ids = to_json(self.task.record.task_id), to_json(self.task.record.context_id)
                history = b",".join(messages)
                return b'{"id":%b,"contextId":%b,"status":%b,"history":[%b]}' % (*ids, note.status, history), seq
            if isinstance(note, MessageNote):
                messages.append(note.data)
        return None


@dataclass(frozen=True, slots=True)
class Envelope:
    """What comes with a message: who sends it, what they take as an answer, what middleware adds."""

    principal: Principal = ANONYMOUS
    accepts: Sequence[str] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the task that the message makes
    before: Sequence[Note] = ()  # what the log of the task that the message makes begins with
    push: NewPush | None = None  # a push config that the task is made with

    @property
    def lane(self) -> str:
        """Tenants take turns; where there is only one, its owners do."""
        return lane_of(self.principal.partition)

    def turn(self, number: int, message_id: str) -> Turn:
        who = {name: value for name, value in self.principal.to_json().items() if value}
        return Turn(number, message_id, list(self.accepts), dict(self.request), who)


ALONE = Envelope()


class TaskManager:
    """The operations of the engine."""

    def __init__(
        self, store: TaskStore, events: Events, *, settings: TaskSettings, runner: Runner | None = None
    ) -> None:
        self.store = store
        self.kernel = store.kernel
        self.events = events
        self.settings = settings
        self.runner = runner

    # -------------------------------------------------------------------------------------------------------- send

    async def send(self, message: Message, envelope: Envelope = ALONE, *, task_id: str | None = None) -> Sent:
        """Take a message: it makes a task, or goes to the one that it names. Returns when that is committed.

        ``task_id`` names that task where the message does not: a repeat is known by what its client wrote.
        """
        text = checked_message(message)
        if task_id is not None and message.task_id is None:
            message = message.model_copy(update={"task_id": task_id})
        send = Send(message.message_id, text, once=self.settings.repeated_send == "same")
        partition = envelope.principal.partition
        try:
            if message.task_id is None:
                return await self._create(partition, message, send, envelope)
            return await self._continue(partition, message, send, envelope)
        except TooLarge as error:
            raise InvalidTaskRequest("the message is too large; send large files by URL") from error

    async def _create(
        self, partition: str, message: Message, send: Send, envelope: Envelope, ids: tuple[str, str] | None = None
    ) -> Sent:
        """``ids`` are those of task and context, where somebody else gives them out."""
        task_id, context_id = ids or (new_id(), message.context_id or new_id())
        runner = self.runner
        worker = runner.reserve() if runner is not None else None
        try:
            now = self.store.clock.wall()
            submitted = StatusNote.of(TaskState.submitted, timestamp(now))
            notes: list[Note] = [*envelope.before, MessageNote(_bound(message, send.text, task_id, context_id))]
            if envelope.metadata:
                notes.append(OtherNote("metadata", dict(envelope.metadata)))
            notes.append(submitted)
            turn = envelope.turn(1, message.message_id)
            record = TaskRecord(task_id, context_id, submitted.state, submitted.status, now, now, turn)
            record.metadata = dict(envelope.metadata)
            record.push = (envelope.push.config_id,) if envelope.push is not None else ()
            task = StoredTask(partition, record, TaskView(task_id, context_id))
            if worker is not None:
                self._start(task, notes, now)
            operations: list[Operation] = [*send.insert(task_id), record.insert()]
            operations += [self._enqueue(task_id, envelope, worker), append_notes(task_id, notes)]
            if envelope.push is not None:
                operations += [envelope.push.put(task_id), nudge(partition, task_id, envelope.push.config_id)]
            task.view.apply(notes)
            try:
                receipt = await self.kernel.commit(partition, *operations)
            except CommitRefused as refusal:
                if getattr(refusal.check, "collection", None) != SENDS:
                    raise
                return await self._repeated(partition, send)
            except asyncio.CancelledError:
                self._orphaned(partition, task_id)
                raise
            record.version = 1
            run = self._run(task, receipt.fence(QUEUE, task_id), envelope, message, worker)
        finally:
            if worker is not None and runner is not None:
                runner.unreserve()
        return Sent(task, run, opening=notes)

    def _start(self, task: StoredTask, notes: list[Note], now: int) -> None:
        """The task is begun in the commit that submits it."""
        assert self.runner is not None
        notes.append(self.runner.attempt_note(task.record.turn.number, None))
        decision = apply(task.record.task_id, TaskState.submitted, Start(), now=timestamp(now))
        task.record.stand(decision, now, task.record.metadata)
        notes += decision.notes

    def _enqueue(self, task_id: str, envelope: Envelope, worker: str | None) -> Enqueue:
        return Enqueue(QUEUE, task_id, lane=envelope.lane, max_attempts=self.settings.max_attempts, worker=worker)

    def _run(
        self, task: StoredTask, fence: int, envelope: Envelope, message: Message, worker: str | None
    ) -> Run | None:
        """Run what was claimed as ``worker``; nothing, where nothing was."""
        if worker is None:
            return None
        assert self.runner is not None
        claim = Claim(
            task.partition, QUEUE, task.record.task_id, fence, 1, self.settings.max_attempts, envelope.lane, 0
        )
        if worker != self.runner.name:  # the lease was given up meanwhile: nobody would renew it for this task
            self.runner.give_back_later(claim)
            return None
        self.runner.told(task)
        return self.runner.run(Journal(self.store, self.events, task, claim), message)

    async def _repeated(self, partition: str, send: Send) -> Sent:
        task_id = await send.reached(self.kernel, partition)
        if task_id is None:
            raise StorageBusy("the message was sent and erased at the same time; send it again")
        task = await self.store.load(partition, task_id)
        return Sent(task, self._local(partition, task_id), repeated=True)

    def _orphaned(self, partition: str, task_id: str) -> None:
        """Who sent the message did not wait for it; the task may be claimed for this process, and must not be lost."""
        if self.runner is not None:
            self.runner.orphaned(partition, task_id)

    def _local(self, partition: str, task_id: str) -> Run | None:
        return self.runner.runs.get((partition, task_id)) if self.runner is not None else None

    # --------------------------------------------------------------------------------------------------- follow-up

    async def _continue(self, partition: str, message: Message, send: Send, envelope: Envelope) -> Sent:
        assert message.task_id is not None
        here = True  # whether it may be begun in this process at once
        for _ in range(RETRIES):
            task = await self.store.load(partition, message.task_id)
            if await send.reached(self.kernel, partition) is not None:
                return await self._repeated(partition, send)
            if message.context_id is not None and message.context_id != task.record.context_id:
                raise ContextMismatchError(message.task_id, message.context_id)
            state = task.view.state
            try:
                if state.terminal:
                    raise TaskTerminalStateError(message.task_id, state)
                if state.paused:
                    return await self._answer(task, message, send, envelope, here=here)
                return await self._double_text(task, message, send, envelope)
            except CommitRefused as refusal:
                # The task moved on, or the same message came at the same time: look again. If somebody else still
                # holds its work item (a nudge that came late), that one, or whoever follows it, begins the turn.
                here = here and refusal.reason != "held"
        raise StorageBusy("the task changes all the time; send the message again")

    async def _answer(self, task: StoredTask, message: Message, send: Send, envelope: Envelope, *, here: bool) -> Sent:
        record, view = task.record, task.view
        text = _bound(message, send.text, record.task_id, record.context_id)
        now = self.store.clock.wall()
        decision = apply(record.task_id, view.state, Answer(text), now=timestamp(now))
        notes = list(decision.notes)
        asked = record.turn.asked
        if asked is not None:  # the same turn goes on, and knows about its step
            notes.insert(1, _answered(asked, message))
            record.turn.asked = None
        else:
            record.turn = envelope.turn(record.turn.number + 1, message.message_id)
        record.stand(decision, now, view.metadata)
        runner = self.runner
        worker = runner.reserve() if runner is not None and asked is None and here else None
        try:
            if worker is not None:
                self._start(task, notes, now)
            operations: list[Operation] = [
                Head(EVENTS, record.task_id, view.head),
                *send.insert(record.task_id),
                record.replace(),
                self._enqueue(record.task_id, envelope, worker),
                append_notes(record.task_id, notes),
                *nudges(task.partition, record, notes),
            ]
            try:
                receipt = await self.kernel.commit(task.partition, *operations)
            except asyncio.CancelledError:
                self._orphaned(task.partition, record.task_id)
                raise
            view.apply(notes)
            record.version += 1
            fence = receipt.fence(QUEUE, record.task_id)
            run = self._run(task, fence, envelope, message, worker)
        finally:
            if worker is not None and runner is not None:
                runner.unreserve()
        return Sent(task, run)

    async def _double_text(self, task: StoredTask, message: Message, send: Send, envelope: Envelope) -> Sent:
        record = task.record
        if self.settings.double_text == "reject":
            raise TaskNotAcceptingMessagesError(record.task_id, task.view.state)
        inbox = await self.kernel.log_state(task.partition, INBOX, record.task_id)
        if len(task.view.pending) + inbox.head - task.view.inbox >= MAX_WAITING:
            words = "Too many messages wait for this task already; wait for its answer."
            raise TaskNotAcceptingMessagesError(record.task_id, task.view.state, words)
        body = {
            "message": from_json(_bound(message, send.text, record.task_id, record.context_id)),
            "policy": self.settings.double_text,
            "source": envelope.principal.owner,
            **envelope.turn(0, message.message_id).json(),
        }
        await self._post(
            task, "message", body, FieldIn(TASKS, record.task_id, "state", RUNNING), *send.insert(record.task_id)
        )
        return Sent(task, self._local(task.partition, record.task_id))

    async def _post(self, task: StoredTask, kind: str, body: dict[str, Any], *operations: Operation) -> None:
        task_id = task.record.task_id
        item = await self.kernel.work(task.partition, QUEUE, task_id)
        priority = item.priority if item is not None else 0  # a nudge does not change it
        if kind == "prioritise":
            priority = body["payload"].get("priority", 1)
        lane = lane_of(task.partition)
        attempts = self.settings.max_attempts
        posted = post(task_id, kind, body, lane=lane, priority=priority, max_attempts=attempts)
        await self.kernel.commit(task.partition, *operations, *posted)
        if (run := self._local(task.partition, task_id)) is not None:
            run.ear.poke()

    # -------------------------------------------------------------------------------------------------------- look

    async def load(self, task_id: str, principal: Principal = ANONYMOUS) -> StoredTask:
        """The task; raises TaskNotFoundError."""
        return await self.store.load(principal.partition, task_id)

    async def knows(self, message: Message, principal: Principal = ANONYMOUS) -> bool:
        """Whether this very message was sent before. Raises MessageReused if its id was, with another body."""
        send = Send(message.message_id, checked_message(message), once=self.settings.repeated_send == "same")
        return await send.reached(self.kernel, principal.partition) is not None

    async def waiting(self, context_id: str, principal: Principal = ANONYMOUS) -> str | None:
        """The task of this context that waits for its user; of several, the one that asked last."""
        query = ListTasksQuery(context_id=context_id, status=TaskState.input_required)
        found = await newest_record(self.store, principal.partition, query)
        return found.task_id if found is not None else None

    async def list(self, query: ListTasksQuery, principal: Principal = ANONYMOUS) -> TaskPage:
        """A page of the caller's tasks, newest status first; see `holdfast.tasks.listing`."""
        return await list_tasks(self.store, principal.partition, query)

    def follow(
        self, task_id: str, principal: Principal = ANONYMOUS, *, after: int | None = None
    ) -> AsyncGenerator[Followed, None]:
        """See `Events.follow`."""
        return self.events.follow(principal.partition, task_id, after=after)

    async def settled(self, sent: Sent, *, seconds: float | None = None) -> StoredTask:
        """The task when its turn is over (terminal or paused), or as it is after so many seconds."""
        if seconds is None:
            return await self._settled(sent)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._settled(sent)
        return await self.store.load(sent.task.partition, sent.task.record.task_id)

    async def _settled(self, sent: Sent) -> StoredTask:
        if sent.run is not None:
            task = await sent.run.settled()
            if task is not None:
                return task
        return await self._settled_elsewhere(sent.task)

    async def _settled_elsewhere(self, task: StoredTask) -> StoredTask:
        partition, task_id = task.partition, task.record.task_id
        async with contextlib.aclosing(self.events.follow(partition, task_id)) as followed:
            async for event in followed:
                state = event.task.view.state if isinstance(event, Snapshot) else _state_of(event)
                if state is not None and (state.terminal or state.paused):
                    break
        return await self.store.load(partition, task_id)

    # ------------------------------------------------------------------------------------------------------ cancel

    async def cancel(
        self,
        task_id: str,
        principal: Principal = ANONYMOUS,
        *,
        source: str = "",
        reason: str = "",
        metadata: Mapping[str, Any] | None = None,
        words: str = "",
        seconds: float = 5.0,
    ) -> StoredTask:
        """Cancel the task, wherever it runs. Waits up to ``seconds`` for a worker that must stop first.

        ``metadata`` is for that worker, which sees it as ``ctx.cancel_metadata``; ``words`` are what the status says.
        Raises TaskNotCancelableError when the task ended otherwise before.
        """
        partition = principal.partition
        for _ in range(RETRIES):
            task = await self.store.load(partition, task_id)
            if task.view.state.terminal:
                raise TaskNotCancelableError(task_id, task.view.state)
            item = await self.kernel.work(partition, QUEUE, task_id)
            try:
                if item is not None and item.holder is not None:
                    body = {"source": source or principal.owner, "reason": reason, "metadata": dict(metadata or {})}
                    body["words"] = words
                    await self._post(task, "cancel", body, FieldIn(TASKS, task_id, "state", RUNNING))
                    break
                return await self._cancel_idle(task, source or principal.owner, reason, words)
            except CommitRefused:
                continue
        else:
            raise StorageBusy("the task changes all the time; cancel it again")
        ended = await self.settled(Sent(task, self._local(partition, task_id)), seconds=seconds)
        if ended.view.state.terminal and ended.view.state is not TaskState.canceled:
            raise TaskNotCancelableError(task_id, ended.view.state)
        return ended

    async def _cancel_idle(self, task: StoredTask, source: str, reason: str, words: str) -> StoredTask:
        """Nobody works on it: end it here."""
        record, view = task.record, task.view
        now = self.store.clock.wall()
        said = agent_message(record.task_id, record.context_id, text_part(words)) if words else None
        decision = apply(record.task_id, view.state, Cancel(said), now=timestamp(now))
        record.stand(decision, now, view.metadata)
        notes: list[Note] = [*decision.notes]
        if source or reason:
            notes.insert(0, cancelled(view.inbox, source, reason))
        await self.kernel.commit(
            task.partition,
            Head(EVENTS, record.task_id, view.head),
            record.replace(),
            Remove(QUEUE, record.task_id),
            append_notes(record.task_id, notes),
            *nudges(task.partition, record, notes),
        )
        view.apply(notes)
        record.version += 1
        if self.runner is not None:
            self.runner.told(task)
        return task

    # ----------------------------------------------------------------------------------------------------- requeue

    async def requeue(self, task_id: str, principal: Principal = ANONYMOUS) -> Sent:
        """Try a task anew that ended without an answer: its last message makes a new task, which refers to it.

        The old one stays as it is, and its dead letter is removed. Requeued again, it answers the same new task.
        """
        task = await self.store.load(principal.partition, task_id)
        message = await second_try(self.store, task)
        turn = task.record.turn
        who = owner_of(task.partition, task.record) or principal
        envelope = Envelope(who, turn.accepts, turn.request, task.view.metadata)
        send = Send(message.message_id, checked_message(message))  # once, whatever repeated_send says
        sent = await self._create(task.partition, message, send, envelope)
        await drop(self.store, task.partition, task_id)
        return sent

    async def fork(self, task_id: str, seq: int, principal: Principal = ANONYMOUS) -> Sent:
        """A new task that goes on from a point of this one's log; this one stays as it is."""
        task = await self.store.load(principal.partition, task_id)
        message, before = await forked(self.store, task, seq)
        turn = task.record.turn
        origin = {"forkedFrom": {"taskId": task_id, "seq": seq}}
        metadata = {**task.view.metadata, **origin}
        return await self.send(message, Envelope(principal, turn.accepts, turn.request, metadata, before))

    # ------------------------------------------------------------------------------------------------------- steer

    async def steer(
        self,
        task_id: str,
        kind: SteeringKind,
        principal: Principal = ANONYMOUS,
        *,
        source: str = "",
        reason: str = "",
        payload: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell a running task something: its worker hears it in ``ctx.inbox``, and the log keeps it with its reason.

        ``prioritise`` moves a task that waits for a worker before those of its tenant with a smaller ``priority``.
        """
        if kind not in STEERING:
            raise InvalidTaskRequest(f"a task is steered by {', '.join(STEERING)}, not by {kind!r}")
        task = await self.store.load(principal.partition, task_id)
        if task.view.state.name not in RUNNING:
            raise TaskNotAcceptingMessagesError(task_id, task.view.state)
        given = dict(payload or {})
        if kind == "prioritise" and type(given.get("priority", 1)) is not int:
            raise InvalidTaskRequest("the priority of a task is an integer: the larger goes first")
        body = {"source": source or principal.owner, "reason": reason, "payload": given}
        json_bytes(body, "what the task is steered with")
        try:
            await self._post(task, kind, body, FieldIn(TASKS, task_id, "state", RUNNING))
        except CommitRefused:
            raise TaskNotAcceptingMessagesError(task_id) from None


def checked_message(message: Message) -> bytes:
    """The message as JSON; raises InvalidTaskRequest if it can't start or continue a task."""
    if message.role is not Role.user:
        raise InvalidTaskRequest("a message that is sent has the role user")
    if not message.parts:
        raise InvalidTaskRequest("a message has at least one part")
    context_id = message.context_id or ""
    if len(context_id) > MAX_CONTEXT_ID or "\0" in context_id:
        raise InvalidTaskRequest(f"a context id has at most {MAX_CONTEXT_ID} characters, and no NUL among them")
    try:
        return encode(message)
    except ValueError as error:
        raise InvalidTaskRequest(f"the message is not JSON: {str(error).splitlines()[0][:200]}") from None


def _bound(message: Message, text: bytes, task_id: str, context_id: str) -> bytes:
    """The message with the ids of its task and context."""
    if not message.model_fields_set & {"task_id", "context_id"}:  # a null that was set is written too
        return b'%b,"contextId":%b,"taskId":%b}' % (text[:-1], to_json(context_id), to_json(task_id))
    return encode(message.model_copy(update={"task_id": task_id, "context_id": context_id}))


def _answered(step: str, message: Message) -> OtherNote:
    answer = read_answer(message.parts)
    if answer is None:
        raise InvalidTaskRequest(f"the task asks about the step {step!r}; answer with one of {', '.join(ANSWERS)}")
    word, result = answer
    state = {"retry": "retry", "done": "done", "failed": "refused"}[word]
    return OtherNote("step", {"step": step, "state": state, "result": result})


def _state_of(event: Entry) -> TaskState | None:
    if event.kind not in ("status", "said"):
        return None
    return TaskState(from_json(event.data)["status"]["state"])
