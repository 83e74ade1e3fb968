"""Turns a message into a task, or passes it to the task that it names."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.auth.principal import Principal
from keelbolt.errors import (
    CommitInDoubt,
    CommitRefused,
    ContextMismatchError,
    InvalidTaskRequest,
    StorageBusy,
    TaskGenerationMismatchError,
    TaskNotAcceptingMessagesError,
    TaskTerminalStateError,
    TooLarge,
)
from keelbolt.kernel import Claim, Enqueue, FieldIn, Head, Operation, Scope, WorkItem, new_id
from keelbolt.protocol.types import Message, Role, TaskState, encode, timestamp
from keelbolt.tasks.events import TaskFeeds
from keelbolt.tasks.families import EVENTS, INBOX, QUEUE, SENDS, TASKS, lane_of
from keelbolt.tasks.inbox import post
from keelbolt.tasks.journal import TaskJournal
from keelbolt.tasks.lifecycle import UserAnswer, WorkerStart, apply
from keelbolt.tasks.notes import MessageNote, Note, OtherNote, StatusNote, append_notes
from keelbolt.tasks.parts import check_depth
from keelbolt.tasks.pushes import nudge, nudges
from keelbolt.tasks.record import TaskRecord, check_context_id
from keelbolt.tasks.run import TaskRun
from keelbolt.tasks.runner import Runner
from keelbolt.tasks.sends import ALONE, Envelope, Send, Sent, being_erased
from keelbolt.tasks.settings import TaskSettings
from keelbolt.tasks.steps import ANSWERS, QUESTION, RELAYED, read_answer
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks
from keelbolt.tasks.view import TaskView

RETRIES = 50
MAX_WAITING = 100  # maximum number of messages that wait for a running task
RUNNING = (TaskState.submitted.name, TaskState.working.name)


class Intake:
    """The part of the manager that accepts messages: it creates and continues tasks."""

    def __init__(
        self, store: StoredTasks, events: TaskFeeds, *, settings: TaskSettings, runner: Runner | None = None
    ) -> None:
        self.store = store
        self.kernel = store.kernel
        self.events = events
        self.settings = settings
        self.runner = runner

    def scope(self, principal: Principal) -> Scope:
        """Return the scope of this principal: its tasks and contexts, and no others."""
        return self.kernel.scoped(principal.partition)

    # -------------------------------------------------------------------------------------------------------- send

    async def send(self, message: Message, envelope: Envelope = ALONE, *, task_id: str | None = None) -> Sent:
        """Accept a message: create a task, or continue the one that it names. Returns after the commit.

        ``task_id`` names the task if the message does not. A repeat is recognised by the message as the client wrote
        it, without this id.
        """
        text = checked_message(message)
        send = self.send_of(message, text, envelope.principal, envelope.key)
        if task_id is not None and message.task_id is None:
            message = message.model_copy(update={"task_id": task_id})
        scope = self.scope(envelope.principal)
        try:
            if message.task_id is None:
                return await self._create(scope, message, send, envelope)
            return await self._continue(scope, message, send, envelope)
        except TooLarge as error:
            raise InvalidTaskRequest("the message is too large; send large files by URL") from error

    def send_of(self, message: Message, text: bytes, principal: Principal, key: str | None = None) -> Send:
        """Return the message as a send, with the keys by which a repeat is recognised."""
        return Send.of(message, text, principal, repeated=self.settings.repeated_send, key=key)

    async def _create(
        self, scope: Scope, message: Message, send: Send, envelope: Envelope, ids: tuple[str, str] | None = None
    ) -> Sent:
        """``ids`` are the ids of task and context, if the caller assigns them."""
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
            task = StoredTask(scope, record, TaskView(task_id, context_id))
            if worker is not None:
                self._start(task, notes, now)
            operations: list[Operation] = [*send.insert(task_id), record.insert()]
            operations += [self._enqueue(scope, task_id, worker), append_notes(task_id, notes)]
            if envelope.push is not None:
                operations += [envelope.push.put(task_id), nudge(scope, task_id, envelope.push.config_id)]
            task.view.apply(notes)
            self._keep_request(scope, task_id, message, envelope)
            try:
                receipt = await scope.commit(*operations)
            except CommitRefused as refusal:
                self._drop_request(scope, task_id, message)
                if getattr(refusal.check, "collection", None) != SENDS:
                    raise
                return await self._repeated(scope, send)
            except (asyncio.CancelledError, CommitInDoubt):
                self._orphaned(scope, task_id)
                raise
            record.version = 1
            run = self._run(task, receipt.fence(QUEUE, task_id), message, worker)
        finally:
            if worker is not None and runner is not None:
                runner.unreserve()
        return Sent(task, run, opening=notes)

    def _start(self, task: StoredTask, notes: list[Note], now: int) -> None:
        """Start the task in the commit that submits it."""
        assert self.runner is not None
        notes.append(self.runner.attempt_note(task.record.turn.number, None))
        decision = apply(task.record.task_id, TaskState.submitted, WorkerStart(), now=timestamp(now))
        task.record.stand(decision, now, task.record.metadata)
        notes += decision.notes

    def _enqueue(self, scope: Scope, task_id: str, worker: str | None) -> Enqueue:
        return Enqueue(QUEUE, task_id, lane=lane_of(scope), max_attempts=self.settings.max_attempts, worker=worker)

    def _run(self, task: StoredTask, fence: int, message: Message, worker: str | None) -> TaskRun | None:
        """Run the task that was claimed as ``worker``; None: no task was claimed."""
        if worker is None:
            return None
        assert self.runner is not None
        lane, attempts = lane_of(task.scope), self.settings.max_attempts
        claim = Claim(task.scope, QUEUE, task.record.task_id, fence, 1, attempts, lane, 0)
        if worker != self.runner.name:  # the lease was given up meanwhile, so it is not renewed for this task
            self.runner.give_back_later(claim)
            return None
        self.runner.status_committed(task)
        return self.runner.run(TaskJournal(self.store, self.events, task, claim), message)

    def _keep_request(self, scope: Scope, task_id: str, message: Message, envelope: Envelope) -> None:
        """Store the request before the commit: the turn may start in this process before `send` continues."""
        if envelope.request and self.runner is not None:
            self.runner.requests.put((scope, task_id, message.message_id), envelope.request)

    def _drop_request(self, scope: Scope, task_id: str, message: Message) -> None:
        if self.runner is not None:
            self.runner.requests.take((scope, task_id, message.message_id))

    async def _repeated(self, scope: Scope, send: Send) -> Sent:
        task_id = await send.reached(scope)
        task = await self.store.find(scope, task_id) if task_id is not None else None
        if task_id is None or task is None:  # an erasure removes the task first, and then the keys of its messages
            raise being_erased()
        return Sent(task, self._local(scope, task_id), repeated=True)

    def _orphaned(self, scope: Scope, task_id: str) -> None:
        """Handle a send whose outcome is unknown: the task may be claimed for this process, and must not be lost."""
        if self.runner is not None:
            self.runner.orphaned(scope, task_id)

    def _local(self, scope: Scope, task_id: str) -> TaskRun | None:
        return self.runner.runs.get((scope, task_id)) if self.runner is not None else None

    # --------------------------------------------------------------------------------------------------- follow-up

    async def _continue(self, scope: Scope, message: Message, send: Send, envelope: Envelope) -> Sent:
        assert message.task_id is not None
        here = True  # whether the turn may start in this process immediately
        for _ in range(RETRIES):
            task = await self.store.load(scope, message.task_id)
            if await send.reached(scope) is not None:
                return await self._repeated(scope, send)
            if message.context_id is not None and message.context_id != task.record.context_id:
                raise ContextMismatchError(message.task_id, message.context_id)
            state = task.view.state
            if envelope.generation is not None and envelope.generation != task.view.generation:
                raise TaskGenerationMismatchError(
                    message.task_id, expected=envelope.generation, found=task.view.generation
                )
            try:
                if state.terminal:
                    raise TaskTerminalStateError(message.task_id, state)
                if state.paused:
                    return await self._answer(task, message, send, envelope, here=here)
                return await self._double_text(task, message, send, envelope)
            except CommitRefused as refusal:
                self._drop_request(scope, message.task_id, message)
                # The task changed, or the same message came at the same time: read it again. If another process still
                # holds its work item (after a late nudge), that process or the next holder starts the turn.
                here = here and refusal.reason != "held"
        raise StorageBusy("concurrent changes to the task prevented this write; send the message again")

    async def _answer(self, task: StoredTask, message: Message, send: Send, envelope: Envelope, *, here: bool) -> Sent:
        record, view = task.record, task.view
        text = _bound(message, send.text, record.task_id, record.context_id)
        now = self.store.clock.wall()
        decision = apply(record.task_id, view.state, UserAnswer(text), now=timestamp(now))
        notes = list(decision.notes)
        asked = record.turn.asked
        if asked is not None:  # the same turn continues, with the answer to its step
            notes.insert(1, _answered(asked, message))
            record.turn.asked = None
        else:
            record.turn = envelope.turn(record.turn.number + 1, message.message_id)
        record.stand(decision, now, view.metadata)
        # A copy, because a run that starts immediately changes the original. The scope is not data and is shared.
        opened = StoredTask(task.scope, copy.deepcopy(record), copy.deepcopy(view))
        opened.view.apply(notes)
        runner = self.runner
        worker = runner.reserve() if runner is not None and asked is None and here else None
        try:
            if worker is not None:
                self._start(task, notes, now)
            operations: list[Operation] = [
                Head(EVENTS, record.task_id, view.head),
                *send.insert(record.task_id),
                record.replace(),
                self._enqueue(task.scope, record.task_id, worker),
                append_notes(record.task_id, notes),
                *nudges(task.scope, record, notes),
            ]
            self._keep_request(task.scope, record.task_id, message, envelope)
            try:
                receipt = await task.scope.commit(*operations)
            except (asyncio.CancelledError, CommitInDoubt):
                self._orphaned(task.scope, record.task_id)
                raise
            view.apply(notes)
            record.version += 1
            run = self._run(task, receipt.fence(QUEUE, record.task_id), message, worker)
        finally:
            if worker is not None and runner is not None:
                runner.unreserve()
        return Sent(task, run, opened=opened)

    async def _double_text(self, task: StoredTask, message: Message, send: Send, envelope: Envelope) -> Sent:
        record = task.record
        if self.settings.double_text == "reject":
            raise TaskNotAcceptingMessagesError(record.task_id, task.view.state)
        inbox = await task.scope.log_state(INBOX, record.task_id)
        if len(task.view.pending) + inbox.head - task.view.inbox >= MAX_WAITING:
            words = "Too many messages are already waiting for this task; wait for its response."
            raise TaskNotAcceptingMessagesError(record.task_id, task.view.state, words)
        body = {
            "message": from_json(_bound(message, send.text, record.task_id, record.context_id)),
            "policy": self.settings.double_text,
            "source": envelope.principal.owner,
            **envelope.turn(0, message.message_id).json(),
        }
        self._keep_request(task.scope, record.task_id, message, envelope)
        checks: list[Operation] = [FieldIn(TASKS, record.task_id, "state", RUNNING)]
        if envelope.generation is not None:
            checks.append(Head(EVENTS, record.task_id, task.view.head))
        item = await task.scope.work(QUEUE, record.task_id)
        await self._post(task, item, "message", body, *checks, *send.insert(record.task_id))
        return Sent(task, self._local(task.scope, record.task_id), opened=task)

    async def _post(
        self, task: StoredTask, item: WorkItem | None, kind: str, body: dict[str, Any], *operations: Operation
    ) -> None:
        """Write to the inbox of a task. ``item`` is its work item."""
        task_id = task.record.task_id
        priority = item.priority if item is not None else 0  # an inbox entry does not change the priority
        if kind == "prioritise":
            priority = body["payload"].get("priority", 1)
        lane = lane_of(task.scope)
        attempts = self.settings.max_attempts
        posted = post(task_id, kind, body, lane=lane, priority=priority, max_attempts=attempts)
        await task.scope.commit(*operations, *posted)
        if (run := self._local(task.scope, task_id)) is not None:
            run.ear.poke()


def checked_message(message: Message) -> bytes:
    """Return the message as JSON; raise InvalidTaskRequest if it can't start or continue a task."""
    if message.role is not Role.user:
        raise InvalidTaskRequest("a sent message must have the role user")
    if not message.parts:
        raise InvalidTaskRequest("a message must have at least one part")
    if message.context_id:
        check_context_id(message.context_id)
    try:
        text = encode(message)
        check_depth(text)
    except ValueError as error:
        raise InvalidTaskRequest(f"the message is not JSON: {str(error).splitlines()[0][:200]}") from None
    return text


def _bound(message: Message, text: bytes, task_id: str, context_id: str) -> bytes:
    """Return the JSON of the message with the ids of its task and context."""
    if not message.model_fields_set & {"task_id", "context_id"}:  # an explicit null is written, too
        return b'%b,"contextId":%b,"taskId":%b}' % (text[:-1], to_json(context_id), to_json(task_id))
    return encode(message.model_copy(update={"task_id": task_id, "context_id": context_id}))


def _answered(step: str, message: Message) -> OtherNote:
    if step.startswith((QUESTION, RELAYED)):  # any message answers a question or a relayed question
        return OtherNote("step", {"step": step, "state": "answered", "result": from_json(encode(message))})
    answer = read_answer(message.parts)
    if answer is None:
        raise InvalidTaskRequest(f"the task asks about the step {step!r}; answer with one of {', '.join(ANSWERS)}")
    word, result = answer
    state = {"retry": "retry", "done": "done", "failed": "refused"}[word]
    return OtherNote("step", {"step": step, "state": state, "result": result})
