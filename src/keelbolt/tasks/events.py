"""Followers of tasks: what is in the log, and then each new entry once it is committed.

However many readers a task has in this process, its log is read once: a *feed* keeps the last entries and hands them
out. While the task runs here, its journal tells the feed what was committed, and nothing is read at all. A reader that
is too slow for the feed reads from the store by itself: memory stays bounded, and nobody waits for anybody.
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
from keelbolt.storage import Entry, Kernel, LogTopic, Watch
from keelbolt.tasks.families import EVENTS
from keelbolt.tasks.notes import StatusNote, read_note
from keelbolt.tasks.store import StoredTask, TaskStore

logger = logging.getLogger("keelbolt.tasks")

RING_ENTRIES = 2048  # twice what a journal writes at once, so that a reader who keeps up never reads the store
RING_BYTES = 1024 * 1024
READ_BYTES = 128 * 1024  # what one reader takes at once, and holds while its client is slow
POLL_SECONDS = 1.0


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

    def __init__(self, partition: str, task_id: str, head: int) -> None:
        self.partition = partition
        self.task_id = task_id
        self.head = head
        self.readers = 0
        self.erased = False
        self.tail: asyncio.Task[None] | None = None
        self._ring: deque[Entry] = deque()
        self._bytes = 0
        self._waiting: list[asyncio.Future[None]] = []

    def publish(self, entries: Sequence[Entry]) -> None:
        """Take in committed entries; what is known already, or would leave a hole, is left to the tail."""
        if not entries:
            return
        for entry in entries:
            if entry.seq == self.head + 1:
                self._ring.append(entry)
                self._bytes += len(entry.data)
                self.head = entry.seq
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
        self.kernel: Kernel = store.kernel
        self.running: set[tuple[str, str]] = set()  # tasks that run in this process: their journals tell everything
        self._feeds: dict[tuple[str, str], Feed] = {}
        self.closing = False

    def feed(self, partition: str, task_id: str) -> Feed | None:
        """The feed of a task that somebody reads here."""
        return self._feeds.get((partition, task_id))

    def close(self) -> None:
        """End every follower, as a server does before it stops."""
        self.closing = True
        for feed in self._feeds.values():
            feed.wake()

    async def follow(
        self, partition: str, task_id: str, *, after: int | None = None, known: Known | None = None
    ) -> AsyncGenerator[Followed, None]:
        """A snapshot (unless ``after`` is given), then every entry up to the one that ends the task.

        ``after`` is the last seq that the reader has. If the entries after it were trimmed, a snapshot with ``gap``
        comes first. ``known`` is what the caller has just read or committed; the task is not loaded again then. Raises
        TaskNotFoundError, also when the task is erased meanwhile.
        """
        seq = after
        if known is None or seq is None or seq > known.version:
            task = await self.store.load(partition, task_id)
            known = Known(task.version, ended=task.view.state.terminal)
            if seq is None or seq > known.version:
                seq = known.version
                yield Snapshot(task, seq)
                if known.ended:
                    return
        ended = known.ended
        feed = self._open(partition, task_id, known.version)
        try:
            while True:
                entries = feed.after(seq)
                if entries is None or (ended and not entries):
                    try:
                        page = await self.kernel.read_log(partition, EVENTS, task_id, after=seq, max_bytes=READ_BYTES)
                    except LogTrimmed:
                        task = await self.store.load(partition, task_id)
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

    def _open(self, partition: str, task_id: str, head: int) -> Feed:
        key = (partition, task_id)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(partition, task_id, head)
            feed.tail = asyncio.create_task(self._tail(feed), name=f"tail {task_id}")
        feed.readers += 1
        return feed

    async def _leave(self, feed: Feed) -> None:
        feed.readers -= 1
        if feed.readers == 0 and feed.tail is not None:
            self._feeds.pop((feed.partition, feed.task_id), None)
            feed.tail.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feed.tail

    async def _tail(self, feed: Feed) -> None:
        with self.kernel.watch(LogTopic(feed.partition, EVENTS, feed.task_id)) as watch:
            while True:
                try:
                    page = await self.kernel.read_log(feed.partition, EVENTS, feed.task_id, after=feed.head)
                    feed.publish(page.entries)
                    behind = feed.head < page.head
                    if page.head == 0 < feed.head:
                        feed.erased = True
                        feed.wake()
                        return
                except LogTrimmed as trimmed:  # the task was erased or cut short: readers see it by themselves
                    feed.head = trimmed.head
                    feed.wake()
                    behind = False
                except Exception as error:  # noqa: BLE001 - readers wait for this: it must not end
                    logger.warning("reading the log of task %s again soon: %s", feed.task_id, error)
                    await asyncio.sleep(POLL_SECONDS)
                    behind = True
                if not behind:  # a hint may be lost: the poll is the guarantee
                    await self._wait(feed, watch)

    async def _wait(self, feed: Feed, watch: Watch) -> None:
        clock = asyncio.get_running_loop().time
        poll = clock() + POLL_SECONDS
        while await watch.wait(poll - clock()) and (feed.partition, feed.task_id) in self.running:
            pass  # what woke us was committed here, and published already


def ends_task(entry: Entry) -> bool:
    """Whether this entry is the terminal one."""
    if entry.kind not in ("status", "said"):
        return False
    note = read_note(entry)
    return isinstance(note, StatusNote) and note.state.terminal
