"""Writes to one task under its claim. Every write carries the fence, so that a holder that lost the task can't write.

Chunks of a stream are buffered while a commit is in progress and then written together: the producer waits for the disk
only when the buffer is full. Writes that must be on disk before the worker continues (a status, a step, an end) are
awaited; they include the buffered notes, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from keelbolt.errors import (
    CommitRefused,
    KeelboltError,
    LeaseLost,
    StorageBusy,
    TaskError,
    TaskNotFoundError,
    TaskTerminalStateError,
)
from keelbolt.kernel import Append, Bury, Claim, Complete, Entry, Head, Operation, Receipt
from keelbolt.protocol.types import timestamp
from keelbolt.tasks.events import TaskFeeds
from keelbolt.tasks.families import EVENTS, INBOX, TASKS
from keelbolt.tasks.lifecycle import Command, ProgressReport, apply
from keelbolt.tasks.notes import CLEANUP_KINDS, Note, OtherNote, draft
from keelbolt.tasks.pushes import nudge, nudges
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks, snapshot_operations

BUFFER_ENTRIES = 1024
BUFFER_BYTES = 1024 * 1024
RETRIES = 20


class InboxHasMore(KeelboltError):
    """Something arrived in the inbox that must be looked at first."""


class TaskJournal:
    """Writes one task, for as long as its claim holds."""

    def __init__(self, store: StoredTasks, events: TaskFeeds, task: StoredTask, claim: Claim) -> None:
        self.store = store
        self.task = task
        self.claim = claim
        self.progress = asyncio.get_running_loop().time()  # time of the last write
        self._events = events
        self._buffer: list[Note] = []
        self._buffered = 0  # bytes
        self._flight: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._room: asyncio.Event | None = None
        self._pen = asyncio.Lock()  # serialises writes by the worker and the inbox
        self.unsure = False  # the task in memory may differ from the stored one: it must be read again
        self._limbo: tuple[list[Note], int] | None = None  # notes of a canceled writer, and the head after them

    # ---------------------------------------------------------------------------------------------------- streams

    async def note(self, note: Note, size: int) -> None:
        """Write this note soon, in order; waits only while the buffer is full."""
        await self.notes((note,), size)

    async def notes(self, notes: Sequence[Note], size: int, *, instead_of: Note | None = None) -> None:
        """Write these notes soon, in one commit. ``instead_of`` is dropped if it is still last in the buffer."""
        self._check()
        if not (notes := self._writable(notes)):
            return
        if instead_of is not None and self._buffer and self._buffer[-1] is instead_of:
            self._buffer.pop()
        self._buffer += notes
        self._buffered += size
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly(), name=f"journal of {self.task.record.task_id}")
        while self._buffered > BUFFER_BYTES or len(self._buffer) > BUFFER_ENTRIES:
            self._room = self._room or asyncio.Event()
            self._room.clear()
            await self._room.wait()
            self._check()

    async def _fly(self) -> None:
        try:
            while self._buffer:
                async with self._pen:
                    await self.sure()
                    if notes := self._take():  # else another write took them
                        await self._commit(notes, ())
                if self._room is not None:
                    self._room.set()
        except Exception as error:  # noqa: BLE001 - the worker's next write raises it
            self._error = error
        finally:
            self._flight = None
            if self._room is not None:
                self._room.set()

    @property
    def broken(self) -> Exception | None:
        """The error after which no write is possible; None: writes are possible."""
        return self._error

    def _writable(self, notes: Sequence[Note]) -> Sequence[Note]:
        """Return the notes that may be written. While a worker cleans up after the end: those that no client sees."""
        if not self.task.view.cleanup:
            return notes
        return [note for note in notes if note.kind in CLEANUP_KINDS]

    def _take(self) -> list[Note]:
        notes, self._buffer, self._buffered = self._buffer, [], 0
        return notes

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def settle(self) -> None:
        """Wait until all buffered notes are committed."""
        while self._flight is not None:
            await asyncio.wait([self._flight])
        self._check()

    # --------------------------------------------------------------------------------------------------- barriers

    async def write(self, notes: Sequence[Note], *operations: Operation) -> None:
        """Write these notes and all buffered ones; return when they are committed."""
        async with self._pen:
            self._check()
            await self.sure()
            buffered = self._take()
            try:
                await self._commit([*buffered, *self._writable(notes)], operations)
            except InboxHasMore:
                self._put_back(buffered)
                raise
            except asyncio.CancelledError:
                self._limbo = (buffered, self.task.view.head)
                raise

    async def cleaned(self, done: Complete | Bury, before: Sequence[Note] = ()) -> None:
        """Record that the worker needs no further call to clean up, and end its work item."""
        record = self.task.record
        seen = [nudge(self.task.scope, record.task_id, config_id) for config_id in record.push]
        await self.write([*before, OtherNote("cleanup", {"due": False})], done, *seen)

    async def move(
        self,
        command: Command,
        *operations: Operation,
        before: Sequence[Note] = (),
        edit: Callable[[TaskRecord], None] | None = None,
    ) -> None:
        """Change the status of the task, in one commit with the buffered notes, ``before``, and the other operations.

        ``edit`` changes the record in the same commit. Raises InboxHasMore if an operation requires that the inbox was
        read to its end and it was not. Reports of a worker that cleans up after the end are dropped.
        """
        if self.task.view.cleanup and isinstance(command, ProgressReport):
            return
        async with self._pen:
            self._check()
            await self.sure()
            await self._move(command, operations, before, edit)

    async def _move(
        self,
        command: Command,
        operations: Sequence[Operation],
        before: Sequence[Note],
        edit: Callable[[TaskRecord], None] | None,
    ) -> None:
        buffered = self._take()
        for _ in range(RETRIES):
            record, view = self.task.record, self.task.view
            now = self.store.clock.wall()
            try:
                decision = apply(record.task_id, view.state, command, now=timestamp(now))
                record.stand(decision, now, view.metadata)
                if edit is not None:
                    edit(record)
                await self._try([*buffered, *before, *decision.notes], (record.replace(), *operations))
            except _Overtaken:
                continue
            except (InboxHasMore, TaskError):
                self._put_back(buffered)
                raise
            except asyncio.CancelledError:
                self._limbo = (buffered, view.head)
                raise
            record.version += 1
            return
        raise self._given_up()

    def _put_back(self, notes: list[Note]) -> None:
        self._buffer = notes + self._buffer

    def _given_up(self) -> StorageBusy:
        """Return the error for too many conflicts. Buffered notes are lost: the run must start again."""
        error = StorageBusy("concurrent changes to the task prevented this write; try again later")
        self._error = error
        return error

    async def sure(self) -> None:
        """Find out whether the write of a canceled writer happened; until then, the task in memory assumes that it did.

        The notes of a write that did not happen are written with the next one.
        """
        if self.unsure:
            await self.store.kernel.flush()
            await self._reload()
        if self._limbo is not None:
            (notes, head), self._limbo = self._limbo, None
            if self.task.view.head < head:
                self._put_back(notes)

    # ---------------------------------------------------------------------------------------------------- commits

    async def _commit(self, notes: list[Note], operations: Sequence[Operation]) -> None:
        for _ in range(RETRIES):
            try:
                return await self._try(notes, operations)
            except _Overtaken:
                continue
        raise self._given_up()

    async def _try(self, notes: list[Note], operations: Sequence[Operation]) -> None:
        view, claim = self.task.view, self.claim
        first = view.head + 1
        drafts = tuple([draft(note) for note in notes])
        view.apply(notes)
        more: list[Operation] = list(operations)
        if view.snapshot_due() and (snapshot := snapshot_operations(view)):
            more += [Head(EVENTS, view.task_id, first - 1), *snapshot]
        if not any(getattr(operation, "fence", None) for operation in more):
            more.append(claim.fenced())
        if drafts:
            more += [Append(EVENTS, view.task_id, drafts), *nudges(self.task.scope, self.task.record, notes)]
        try:
            receipt = await self.task.scope.commit(*more)
        except CommitRefused as refusal:
            await self._refused(refusal)
            raise
        except KeelboltError as error:
            self._error = error
            raise
        except asyncio.CancelledError:
            self.unsure = True
            raise
        self.progress = asyncio.get_running_loop().time()
        if drafts:
            await self._written(receipt, notes, first)

    async def _written(self, receipt: Receipt, notes: list[Note], first: int) -> None:
        view = self.task.view
        seqs = receipt.seqs(EVENTS, view.task_id)
        if seqs[0] != first:  # another process wrote in between, which a plain append allows: reload
            await self._reload()
        feed = self._events.feed(self.task.scope, view.task_id)
        if feed is not None:
            now = self.store.clock.wall()
            feed.publish([Entry(seq, note.kind, note.data, now) for seq, note in zip(seqs, notes, strict=True)])

    async def _refused(self, refusal: CommitRefused) -> None:
        """Raise the error that the refusal stands for; reload the task if others changed it."""
        if refusal.reason == "fence":
            self._error = LeaseLost()
            raise self._error from None
        await self._reload()
        check = refusal.check
        if isinstance(check, Head) and check.log == INBOX:
            raise InboxHasMore from None
        if self.task.view.state.terminal:
            self._error = TaskTerminalStateError(self.task.record.task_id, self.task.view.state)
            raise self._error from None
        if refusal.reason in ("version", "head") or getattr(check, "collection", None) == TASKS:
            raise _Overtaken from None

    async def _reload(self) -> None:
        self.unsure = True  # also if the reload fails: the task in memory may be wrong
        try:
            self.task = await self.store.load(self.task.scope, self.task.record.task_id)
        except TaskNotFoundError:  # the task was erased meanwhile
            self._error = LeaseLost()
            raise self._error from None
        self.unsure = False


class _Overtaken(KeelboltError):
    """Another writer was first; decide again."""
