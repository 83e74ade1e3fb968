"""Followers of tasks: they get the entries in the log, and then each new entry once it is committed.

The log of a task is read once per process, for any number of readers: a *feed* keeps the newest entries and shares
them. It reads when the kernel wakes it, so idle feeds cost nothing. While the task runs in this process, its journal
publishes the entries that it committed, and the feed reads nothing. A reader that is too slow for the feed reads from
the store itself: memory stays bounded, and no reader waits for another.
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
from keelbolt.kernel import Entry, Scope
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.notes import StatusNote, read_note
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks, TaskKey
from keelbolt.timers import Timer, call_later

logger = logging.getLogger("keelbolt.tasks")

RING_ENTRIES = 2048  # twice the maximum batch of a journal, so that a reader that keeps up never reads the store
RING_BYTES = 1024 * 1024
READ_BYTES = 128 * 1024  # a reader takes this much at once, and holds it while its client is slow
QUIET_SECONDS = 1.0  # delay after which the log of a local task is read if its journal published nothing
AGAIN_SECONDS = 1.0  # delay before a failed read of a log is retried


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """The task as of ``seq``; the following entries begin after it. ``gap``: the requested entries were trimmed."""

    task: StoredTask
    seq: int
    gap: bool = False


Followed = TaskSnapshot | Entry


class KnownVersion(NamedTuple):
    """A committed version of a task, and whether the task ended with it."""

    version: int
    ended: bool = False


class Feed:
    """The newest entries of one task, for all its readers in this process."""

    def __init__(self, events: TaskFeeds, scope: Scope, task_id: str, head: int) -> None:
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
        self._published = False  # whether entries were published since the timer was set
        self._timer: Timer | None = None

    # ------------------------------------------------------------------------------------------------------ reading

    def open(self) -> None:
        """Follow the log from now on."""
        self._watch.__enter__()
        self._read_soon()  # entries that were committed since the task was loaded

    async def close(self) -> None:
        self._watch.__exit__(None, None, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
            self._reading = None  # a task that had not begun does not reset it

    def _woken(self) -> None:
        """Handle a wake-up: the log grew or was dropped. A journal in this process publishes its own entries."""
        if (self.scope, self.task_id) not in self._events.running:
            self._read_soon()
        elif self._timer is None:
            self._published = False
            self._timer = call_later(QUIET_SECONDS, self._quiet)

    def _quiet(self) -> None:
        self._timer = None
        if self._published:  # if others wrote, the next published entries leave a hole, which causes a read
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
                except Exception as error:  # noqa: BLE001 - readers depend on this loop: it must not end
                    logger.warning("task %s: reading its log failed and is retried: %s", self.task_id, error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    self._again = True
        finally:
            self._reading = None

    async def _read_page(self) -> bool:
        """Read the next entries; return whether there are more."""
        try:
            page = await self.scope.read_log(EVENTS, self.task_id, after=self.head)
        except LogTrimmed as trimmed:  # the task was erased or its log trimmed: readers handle this themselves
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
        """Add committed entries, except known ones. If entries are missing in between, read the log instead."""
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
        """Wait until there is an entry after this seq, or the feed is woken."""
        if self.head > seq:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if not future.done():
                self._waiting.remove(future)


class TaskFeeds:
    """All feeds of one process."""

    def __init__(self, store: StoredTasks) -> None:
        self.store = store
        self.running: set[TaskKey] = set()  # tasks that run in this process: their journals publish all entries
        self._feeds: dict[TaskKey, Feed] = {}
        self.closing = False

    def feed(self, scope: Scope, task_id: str) -> Feed | None:
        """Return the feed of a task that has readers in this process."""
        return self._feeds.get((scope, task_id))

    def close(self) -> None:
        """End every follower; a server calls this before it stops."""
        self.closing = True
        for feed in self._feeds.values():
            feed.wake()

    async def follow(
        self, scope: Scope, task_id: str, *, after: int | None = None, known: KnownVersion | None = None
    ) -> AsyncGenerator[Followed, None]:
        """Yield a snapshot (unless ``after`` is given), then every entry up to the one that ends the task.

        ``after`` is the last seq that the reader has. If the entries after it were trimmed, a snapshot with ``gap``
        comes first. ``known`` is the version that the caller has just read or committed; the task is not loaded again
        then. Raises TaskNotFoundError, also when the task is erased meanwhile.
        """
        seq = after
        if known is None or seq is None or seq > known.version:
            task = await self.store.load(scope, task_id)
            known = KnownVersion(task.version, ended=task.view.state.terminal)
            if seq is None or seq > known.version:
                seq = known.version
                yield TaskSnapshot(task, seq)
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
                        yield TaskSnapshot(task, seq, gap=True)
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
    """Return whether this entry ends the task."""
    if entry.kind not in ("status", "said"):
        return False
    note = read_note(entry)
    return isinstance(note, StatusNote) and note.state.terminal
