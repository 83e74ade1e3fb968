"""Followers of tasks: the entries in the log, and then each new entry once it is committed.

However many readers a task has in this process, its log is read once: a *feed* keeps the last entries and hands them
out. It reads when the kernel wakes it, so idle feeds cost nothing. While the task runs here, its journal publishes what
it committed, and nothing is read at all. A reader that is too slow for the feed reads from the store by itself: memory
stays bounded, and no reader waits for another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from keelbolt.errors import LogTrimmed, TaskNotFoundError
from keelbolt.storage import Entry, Scope
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.notes import StatusNote, read_note
from keelbolt.tasks.store import StoredTask, TaskKey, TaskStore
from keelbolt.timers import Timer, call_later

logger = logging.getLogger("keelbolt.tasks")

RING_ENTRIES = 2048  # twice what a journal writes at once, so that a reader who keeps up never reads the store
RING_BYTES = 1024 * 1024
READ_BYTES = 128 * 1024  # what one reader takes at once, and holds while its client is slow
QUIET_SECONDS = 1.0  # the log of a task that runs here is read when its journal published nothing for so long
AGAIN_SECONDS = 1.0  # a log that can't be read is read again after so long


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The task as it was at ``seq``; the entries that follow begin after it. ``gap``: the asked ones were trimmed."""

    task: StoredTask
    seq: int
    gap: bool = False


Followed = Snapshot | Entry


class Known(NamedTuple):
    """A committed version of a task, and whether that one is its end."""

    version: int
    ended: bool = False


class Feed:
    """The newest entries of one task, for all its readers in this process."""

    def __init__(self, events: Events, scope: Scope, task_id: str, head: int) -> None:
        self.scope = scope
        self.task_id = task_id
        self.head = head
        self.readers = 0
        self.erased = False
        self._events = events
        self._ring: deque[Entry] = deque()
        self._bytes = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._watch = scope.watch(EVENTS, task_id, self._woken)
        self._reading: asyncio.Task[None] | None = None
        self._again = False
        self._published = False  # since the timer was set
        self._timer: Timer | None = None

    # ------------------------------------------------------------------------------------------------------ reading

    def open(self) -> None:
        """Follow the log from now on."""
        self._watch.__enter__()
        self._read_soon()  # what was committed since the task was loaded

    async def close(self) -> None:
        self._watch.__exit__(None, None, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    def _woken(self) -> None:
        """The log has grown, or was dropped. A commit of the journal here wakes this too, and is published already."""
        if (self.scope, self.task_id) not in self._events.running:
            self._read_soon()
        elif self._timer is None:
            self._published = False
            self._timer = call_later(QUIET_SECONDS, self._quiet)

    def _quiet(self) -> None:
        self._timer = None
        if self._published:  # other writers leave a hole before what the journal publishes next
            self._published = False
            self._timer = call_later(QUIET_SECONDS, self._quiet)
        else:
            self._read_soon()

    def _read_soon(self) -> None:
        self._again = True
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name=f"reader of {self.task_id}")

    async def _read(self) -> None:
        try:
            while self._again and not self.erased:
                self._again = False
                try:
                    self._again = await self._read_page() or self._again
                except Exception as error:  # noqa: BLE001 - readers wait for this: it must not end
                    logger.warning("reading the log of task %s again soon: %s", self.task_id, error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    self._again = True
        finally:
            self._reading = None

    async def _read_page(self) -> bool:
        """Take in the next entries; return whether there are more."""
        try:
            page = await self.scope.read_log(EVENTS, self.task_id, after=self.head)
        except LogTrimmed as trimmed:  # the task was erased or cut short: readers see it by themselves
            self.head = trimmed.head
            self.wake()
            return False
        self.publish(page.entries)
        if page.head == 0 < self.head:
            self.erased = True
            self.wake()
        return self.head < page.head

    # ---------------------------------------------------------------------------------------------------- publishing

    def publish(self, entries: Sequence[Entry]) -> None:
        """Take in committed entries, except those that are known. After a hole, the log is read instead."""
        if not entries:
            return
        self._published = True
        for entry in entries:
            if entry.seq == self.head + 1:
                self._ring.append(entry)
                self._bytes += len(entry.data)
                self.head = entry.seq
        if entries[-1].seq > self.head:
            self._read_soon()
        while len(self._ring) > RING_ENTRIES or (self._bytes > RING_BYTES and len(self._ring) > 1):
            self._bytes -= len(self._ring.popleft().data)
        self.wake()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def after(self, seq: int) -> list[Entry] | None:
        """Return the next entries after this seq, up to `READ_BYTES`; None: the feed no longer has them."""
        if seq >= self.head:
            return []
        if not self._ring or self._ring[0].seq > seq + 1:
            return None
        found: list[Entry] = []
        size = 0
        for entry in islice(self._ring, seq + 1 - self._ring[0].seq, None):
            size += len(entry.data)
            if found and size > READ_BYTES:
                break
            found.append(entry)
        return found

    async def more(self, seq: int) -> None:
        """Return when there is something after this seq, or the feed was woken."""
        if self.head > seq:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if not future.done():
                self._waiting.remove(future)


class Events:
    """All feeds of one process."""

    def __init__(self, store: TaskStore) -> None:
        self.store = store
        self.running: set[TaskKey] = set()  # tasks that run in this process: their journals tell everything
        self._feeds: dict[TaskKey, Feed] = {}
        self.closing = False

    def feed(self, scope: Scope, task_id: str) -> Feed | None:
        """Return the feed of a task that has readers in this process."""
        return self._feeds.get((scope, task_id))

    def close(self) -> None:
        """End every follower, as a server does before it stops."""
        self.closing = True
        for feed in self._feeds.values():
            feed.wake()

    async def follow(
        self, scope: Scope, task_id: str, *, after: int | None = None, known: Known | None = None
    ) -> AsyncGenerator[Followed, None]:
        """A snapshot (unless ``after`` is given), then every entry up to the one that ends the task.

        ``after`` is the last seq that the reader has. If the entries after it were trimmed, a snapshot with ``gap``
        comes first. ``known`` is what the caller has just read or committed; the task is not loaded again then. Raises
        TaskNotFoundError, also when the task is erased meanwhile.
        """
        seq = after
        if known is None or seq is None or seq > known.version:
            task = await self.store.load(scope, task_id)
            known = Known(task.version, ended=task.view.state.terminal)
            if seq is None or seq > known.version:
                seq = known.version
                yield Snapshot(task, seq)
                if known.ended:
                    return
        ended = known.ended
        feed = self._open(scope, task_id, known.version)
        try:
            while True:
                entries = feed.after(seq)
                if entries is None or (ended and not entries):
                    try:
                        page = await scope.read_log(EVENTS, task_id, after=seq, max_bytes=READ_BYTES)
                    except LogTrimmed:
                        task = await self.store.load(scope, task_id)
                        seq = task.version
                        yield Snapshot(task, seq, gap=True)
                        if task.view.state.terminal:
                            return
                        continue
                    entries = list(page.entries)
                    if not entries and ended:
                        return
                for entry in entries:
                    seq = entry.seq
                    yield entry
                    if ends_task(entry):
                        return
                if not entries:
                    if feed.erased:
                        raise TaskNotFoundError(task_id)
                    if self.closing:
                        return
                    await feed.more(seq)
        finally:
            await self._leave(feed)

    def _open(self, scope: Scope, task_id: str, head: int) -> Feed:
        key = (scope, task_id)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(self, scope, task_id, head)
            feed.open()
        feed.readers += 1
        return feed

    async def _leave(self, feed: Feed) -> None:
        feed.readers -= 1
        if feed.readers == 0:
            self._feeds.pop((feed.scope, feed.task_id), None)
            await feed.close()


def ends_task(entry: Entry) -> bool:
    """Whether this entry is the terminal one."""
    if entry.kind not in ("status", "said"):
        return False
    note = read_note(entry)
    return isinstance(note, StatusNote) and note.state.terminal
