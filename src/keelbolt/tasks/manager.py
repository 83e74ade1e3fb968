"""The operations of clients: send, get, wait, cancel, steer. Every call names its principal and sees only its tasks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic_core import from_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import (
    CommitRefused,
    InvalidTaskRequest,
    LogTrimmed,
    StorageBusy,
    TaskNotAcceptingMessagesError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from keelbolt.kernel import Enqueue, Entry, FieldIn, Head, Operation, Release, Remove, WorkItem, new_id
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import Message, Role, TaskState, timestamp
from keelbolt.tasks.dead import drop, owner_of, second_try
from keelbolt.tasks.events import Followed, TaskSnapshot
from keelbolt.tasks.families import EVENTS, QUEUE, TASKS, lane_of
from keelbolt.tasks.inbox import STEERING, SteeringKind, cancelled
from keelbolt.tasks.intake import RETRIES, RUNNING, Intake, checked_message
from keelbolt.tasks.lifecycle import ClientCancel, PassOnCancel, apply
from keelbolt.tasks.listing import ListTasksQuery, list_tasks, newest_record
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote, append_notes, read_note
from keelbolt.tasks.parts import json_bytes
from keelbolt.tasks.pushes import nudges
from keelbolt.tasks.sends import Envelope, Send, Sent, named
from keelbolt.tasks.steps import RELAYED
from keelbolt.tasks.stored_tasks import StoredTask
from keelbolt.timers import within

ANSWER_SECONDS = 2.8  # the official SDK clients give up after 5 s
HEARD_SECONDS = 0.5  # time for the holder of the task to record a cancel and write the end
MAX_PRIORITY = 2**31 - 1


class TaskManager(Intake):
    """The client operations of the engine."""

    # -------------------------------------------------------------------------------------------------------- read

    async def load(self, task_id: str, principal: Principal = ANONYMOUS) -> StoredTask:
        """Return the task; raise TaskNotFoundError."""
        return await self.store.load(self.scope(principal), task_id)

    async def knows(self, message: Message, principal: Principal = ANONYMOUS, *, key: str | None = None) -> bool:
        """Return whether a send of this message is a repeat. Raises IdempotencyKeyReused or MessageReused."""
        send = self.send_of(message, checked_message(message), principal, key)
        return await send.reached(self.scope(principal)) is not None

    async def waiting(self, context_id: str, principal: Principal = ANONYMOUS) -> str | None:
        """Return the id of the context's task that waits for its user; of several, the one that asked last."""
        query = ListTasksQuery(context_id=context_id, status=TaskState.input_required)
        found = await newest_record(self.scope(principal), query)
        return found.task_id if found is not None else None

    async def list(self, query: ListTasksQuery, principal: Principal = ANONYMOUS) -> TaskPage:
        """Return a page of the caller's tasks, newest status first; see `keelbolt.tasks.listing`."""
        return await list_tasks(self.store, self.scope(principal), query)

    def follow(
        self, task_id: str, principal: Principal = ANONYMOUS, *, after: int | None = None
    ) -> AsyncGenerator[Followed, None]:
        """See `Events.follow`."""
        return self.events.follow(self.scope(principal), task_id, after=after)

    async def settled(self, sent: Sent, *, seconds: float | None = None) -> StoredTask:
        """Return the task when its turn is over (terminal or paused), or as it is after this many seconds."""
        if seconds is None:
            return await self._settled(sent)
        with contextlib.suppress(TimeoutError), within(seconds):
            return await self._settled(sent)
        return await self.store.load(sent.task.scope, sent.task.record.task_id)

    async def _settled(self, sent: Sent) -> StoredTask:
        if sent.run is not None:
            task = await sent.run.settled()
            if task is not None:
                return task
        return await self._settled_elsewhere(sent.task)

    async def _settled_elsewhere(self, task: StoredTask) -> StoredTask:
        scope, task_id = task.scope, task.record.task_id
        async with contextlib.aclosing(self.events.follow(scope, task_id)) as followed:
            async for event in followed:
                if isinstance(event, TaskSnapshot):
                    if event.task.view.state.terminal or event.task.view.state.paused:
                        return event.task
                elif (state := _state_of(event)) is not None and (state.terminal or state.paused):
                    break
        return await self.store.load(scope, task_id)

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
        seconds: float = ANSWER_SECONDS,
    ) -> StoredTask:
        """Cancel the task, in any process. Waits up to ``seconds`` for the worker to stop.

        The worker gets ``metadata`` as ``ctx.cancel_metadata``; ``words`` is the text of the status message. A worker
        whose process does not react within ``cancel_seconds`` loses the task. Raises TaskNotCancelableError if the task
        ended in another way first.
        """
        scope = self.scope(principal)
        body = {"source": source or principal.owner, "reason": reason, "metadata": dict(metadata or {}), "words": words}
        for _ in range(RETRIES):
            task = await self.store.load(scope, task_id)
            if task.view.state.terminal:
                raise TaskNotCancelableError(task_id, task.view.state)
            item = await scope.work(QUEUE, task_id)
            try:
                if item is not None and item.holder is not None:
                    await self._post(task, item, "cancel", body, FieldIn(TASKS, task_id, "state", RUNNING))
                    break
                if task.view.state.paused and (task.record.turn.asked or "").startswith(RELAYED):
                    await self._pass_on_cancel(task, body)
                    break
                return await self._cancel_here(task, item, words, body)
            except CommitRefused:
                continue
        else:
            raise StorageBusy("concurrent changes to the task prevented the cancel; cancel it again")
        ended = await self._stopped(task, words, seconds)
        if ended.view.state.terminal and ended.view.state is not TaskState.canceled:
            raise TaskNotCancelableError(task_id, ended.view.state)
        return ended

    async def _stopped(self, task: StoredTask, words: str, seconds: float) -> StoredTask:
        """Return the task when its worker has stopped, or as it is after this many seconds."""
        scope, task_id = task.scope, task.record.task_id
        sent = Sent(task, self._local(scope, task_id))
        grace = self.settings.cancel_seconds + HEARD_SECONDS
        ended = await self.settled(sent, seconds=min(seconds, grace))
        if seconds < grace or ended.view.state.terminal:
            return ended
        for _ in range(RETRIES):
            if ended.view.cancel is not None or ended.view.state.terminal:
                return await self.settled(sent, seconds=seconds - grace)  # its worker recorded the cancel and ends it
            try:
                # Its process hangs or died. It loses the work item, so its later writes are refused.
                return await self._cancel_here(ended, await scope.work(QUEUE, task_id), words)
            except CommitRefused:
                ended = await self.store.load(scope, task_id)
        return ended

    async def _pass_on_cancel(self, task: StoredTask, body: dict[str, Any]) -> None:
        """Call the worker once more, so that it cancels the task of the agent whose question the user was asked."""
        record, view = task.record, task.view
        now = self.store.clock.wall()
        decision = apply(record.task_id, view.state, PassOnCancel(), now=timestamp(now))
        record.stand(decision, now, view.metadata)
        record.turn.asked = None
        notes: list[Note] = [cancelled(view.inbox, body), *decision.notes]
        await task.scope.commit(
            Head(EVENTS, record.task_id, view.head),
            record.replace(),
            Enqueue(QUEUE, record.task_id, lane=lane_of(task.scope), max_attempts=self.settings.max_attempts),
            append_notes(record.task_id, notes),
            *nudges(task.scope, record, notes),
        )

    async def _cancel_here(
        self, task: StoredTask, item: WorkItem | None, words: str, body: dict[str, Any] | None = None
    ) -> StoredTask:
        """End a task that no process works on, or whose process does not react.

        If a worker started the turn, the work item outlives the task: the next process that claims it calls the worker
        once more, to clean up. ``body`` is the content of the cancel, unless it is in the inbox.
        """
        record, view = task.record, task.view
        now = self.store.clock.wall()
        said = record.message(words) if words else None
        decision = apply(record.task_id, view.state, ClientCancel(said), now=timestamp(now))
        record.stand(decision, now, view.metadata)
        notes: list[Note] = [*decision.notes]
        if body is not None and any(body.values()):
            notes.insert(0, cancelled(view.inbox, body))
        over: Operation = Remove(QUEUE, record.task_id)
        if view.state is TaskState.working and item is not None and item.state != "dead":
            notes.insert(0, OtherNote("cleanup", {"due": True}))
            over = _left_for_cleanup(item)
        await task.scope.commit(
            Head(EVENTS, record.task_id, view.head),
            record.replace(),
            over,
            append_notes(record.task_id, notes),
            *nudges(task.scope, record, notes),
        )
        view.apply(notes)
        record.version += 1
        if self.runner is not None:
            self.runner.status_committed(task)
        return task

    # ----------------------------------------------------------------------------------------------------- requeue

    async def requeue(self, task_id: str, principal: Principal = ANONYMOUS) -> Sent:
        """Requeue a task that ended without an answer: its last message creates a new task, which refers to it.

        The old task does not change, and its dead letter is removed. A repeated requeue returns the same new task.
        """
        task = await self.store.load(self.scope(principal), task_id)
        message = await second_try(self.store, task)
        turn = task.record.turn
        who = owner_of(task.scope, task.record) or principal
        envelope = Envelope(who, turn.accepts, turn.request, task.view.metadata)
        send = Send(checked_message(message), (named("requeue", task_id),))  # independent of the setting repeated_send
        sent = await self._create(task.scope, message, send, envelope)
        await drop(task.scope, task_id)
        return sent

    async def fork(self, task_id: str, seq: int, principal: Principal = ANONYMOUS) -> Sent:
        """Create a task that continues from a point in this task's log; this task does not change."""
        task = await self.store.load(self.scope(principal), task_id)
        message, before = await forked(task, seq)
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
        """Send steering to a running task: its worker reads it from ``ctx.inbox``, and the log keeps it with a reason.

        ``prioritise`` moves a waiting task ahead of those of its tenant with a smaller ``priority``.
        """
        if kind not in STEERING:
            raise InvalidTaskRequest(f"the kind of steering must be one of {', '.join(STEERING)}, not {kind!r}")
        task = await self.store.load(self.scope(principal), task_id)
        if task.view.state.name not in RUNNING:
            raise TaskNotAcceptingMessagesError(task_id, task.view.state)
        given = dict(payload or {})
        if kind == "prioritise":
            priority = given.get("priority", 1)
            if type(priority) is not int or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
                raise InvalidTaskRequest(
                    f"the priority must be an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}; higher runs first"
                )
        body = {"source": source or principal.owner, "reason": reason, "payload": given}
        json_bytes(body, "the steering request")
        try:
            item = await task.scope.work(QUEUE, task_id)
            await self._post(task, item, kind, body, FieldIn(TASKS, task_id, "state", RUNNING))
        except CommitRefused:
            raise TaskNotAcceptingMessagesError(task_id) from None


def _left_for_cleanup(item: WorkItem) -> Operation:
    """Return the operation that takes the work item from its holder, if it has one, and makes it ready."""
    if item.holder is not None:
        return Release(QUEUE, item.key, item.fence)
    return Enqueue(QUEUE, item.key, lane=item.lane, priority=item.priority, max_attempts=item.max_attempts)


def _state_of(event: Entry) -> TaskState | None:
    if event.kind not in ("status", "said"):
        return None
    return TaskState(from_json(event.data)["status"]["state"])


# ----------------------------------------------------------------------------------------------------------------- fork


async def forked(task: StoredTask, seq: int) -> tuple[Message, list[Note]]:
    """Return the message of a fork (the user's last up to ``seq``), and the notes before it that the fork keeps."""
    if not 1 <= seq <= task.version:
        raise InvalidTaskRequest(f"seq must be from 1 to {task.version}, the last entry of this task's log, not {seq}")
    notes = await _notes(task, seq)
    for place in range(len(notes) - 1, -1, -1):
        note = notes[place]
        if isinstance(note, MessageNote) and from_json(note.data)["role"] == Role.user:
            return _again(task, note), _kept(notes[:place])
    raise UnsupportedOperationError("the log has no user message up to this entry; choose a later one")


async def _notes(task: StoredTask, seq: int) -> list[Note]:
    notes: list[Note] = []
    while len(notes) < seq:
        try:
            page = await task.scope.read_log(EVENTS, task.record.task_id, after=len(notes), before=seq + 1)
        except LogTrimmed:
            raise UnsupportedOperationError(
                "the first entries of this task's log were trimmed; it can't be forked"
            ) from None
        if not page.entries:  # the task was erased meanwhile
            raise TaskNotFoundError(task.record.task_id)
        notes += map(read_note, page.entries)
    return notes


def _again(task: StoredTask, note: MessageNote) -> Message:
    message = Message.model_validate_json(note.data)
    return message.model_copy(
        update={
            "message_id": new_id(),
            "task_id": None,
            "context_id": task.record.context_id,
            "reference_task_ids": [*(message.reference_task_ids or []), task.record.task_id],
        }
    )


def _kept(notes: list[Note]) -> list[Note]:
    """Copy messages, artifacts and the state; statuses, attempts and steps belong to the old task."""
    kept: list[Note] = []
    for note in notes:
        if isinstance(note, MessageNote | ArtifactNote) or (isinstance(note, OtherNote) and note.kind == "state"):
            kept.append(note)
        elif isinstance(note, StatusNote) and note.said is not None:
            kept.append(MessageNote(note.said))
    return kept
