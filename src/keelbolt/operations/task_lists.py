"""Lists of tasks: summaries, a search, and a watch that reads the index once for all readers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.errors import LogTrimmed
from keelbolt.kernel import Count, Query, Record, Scope
from keelbolt.leases import cancelled
from keelbolt.protocol.types import timestamp
from keelbolt.tasks.families import EVENTS, TASKS
from keelbolt.tasks.listing import (
    COUNT_CAP,
    ListTasksQuery,
    RecordPage,
    Texts,
    find_records,
    folded,
    kernel_query,
    list_records,
    record_json,
    without_secrets,
)
from keelbolt.tasks.record import REQUEST_METADATA, TaskRecord
from keelbolt.tasks.stored_tasks import StoredTasks, TaskKey

SAID_CHARACTERS = 200
OPENING_ENTRIES = 10  # the user's first message is among these; a fork may begin with messages of the agent
KNOWN = 4096  # maximum number of cached beginnings, which never change
READS = 16  # concurrent reads of logs: the first message may be as large as a request
CHUNK = 500  # tasks that a search reads together
LOOKED = 10_000  # tasks that one call of a search reads; the page token continues
LOOK_SECONDS = 3.0
ID_CHARACTERS = 6  # shorter words occur in too many ids by chance


class TaskFilter:
    """Filters beyond those of A2A: words, the requested skill, and the latest time; and the order.

    A task matches if it contains all words, in any order: in the request, in the answer, or (for a word of at least
    ID_CHARACTERS) in an id.
    """

    def __init__(
        self, words: str = "", skill: str = "", until: str | None = None, *, oldest_first: bool = False
    ) -> None:
        self.words = folded(words).split()
        self.skill = skill
        self.until = until
        self.oldest_first = oldest_first

    def found(self, record: Record, text: str) -> bool:
        if self.skill and skill_of(TaskRecord.of(record)) != self.skill:
            return False
        ids = f"{record.key} {record.fields['context']}".lower()
        return all(word in text or (len(word) >= ID_CHARACTERS and word in ids) for word in self.words)


class Summaries:
    """Builds the summaries."""

    def __init__(self, store: StoredTasks) -> None:
        self._store = store
        self._texts = Texts(store)
        self._known: dict[TaskKey, str] = {}
        self._reading = asyncio.Semaphore(READS)

    async def json(self, scope: Scope, record: TaskRecord) -> bytes:
        about: dict[str, Any] = {
            "partition": scope.partition,
            "created": timestamp(record.created),
            "turn": record.turn.number,
            "said": await self._said(scope, record.task_id),
        }
        if skill := skill_of(record):
            about["skill"] = skill
        return record_json(record)[:-1] + b"," + to_json(about)[1:]

    async def search(self, scope: Scope, query: ListTasksQuery, wanted: TaskFilter) -> RecordPage:
        """Return a page of the matching tasks.

        It reads at most LOOKED tasks, for about LOOK_SECONDS. Then the page may be short; its token continues.
        """
        if not wanted.words and not wanted.skill:
            return await list_records(scope, query, until=wanted.until, oldest_first=wanted.oldest_first)
        asked = kernel_query(query, wanted.until, oldest_first=wanted.oldest_first)
        if asked is None:
            return RecordPage((), "", query.page_size, Count(0, exact=True))
        total = await scope.count(asked, cap=COUNT_CAP)
        found: list[TaskRecord] = []
        token, looked, until = query.page_token or None, 0, time.monotonic() + LOOK_SECONDS
        while looked < LOOKED and (time.monotonic() < until or not looked):
            page = await find_records(scope, asked, limit=CHUNK, token=token)
            texts = await self._texts.of(scope, page.records) if wanted.words else [""] * len(page.records)
            for place, (record, text) in enumerate(zip(page.records, texts, strict=True), 1):
                if wanted.found(record, text):
                    found.append(TaskRecord.of(record))
                    if len(found) == query.page_size and place < len(page.records):
                        page = await find_records(
                            scope, asked, limit=place, token=token
                        )  # the cursor after this record
                        break
            token, looked = page.cursor, looked + CHUNK
            if token is None or len(found) == query.page_size:
                break
        return RecordPage(tuple(found), token or "", query.page_size, total)

    async def _said(self, scope: Scope, task_id: str) -> str:
        """Return the beginning of the task: the first words of its user."""
        key = (scope, task_id)
        if key not in self._known:
            async with self._reading:
                said = await self._first_words(scope, task_id)
            if len(self._known) >= KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = said
        return self._known[key]

    async def _first_words(self, scope: Scope, task_id: str) -> str:
        try:
            page = await scope.read_log(EVENTS, task_id, after=0, limit=OPENING_ENTRIES)
        except LogTrimmed:
            return ""
        for entry in page.entries:
            if entry.kind == "message" and (message := from_json(entry.data)).get("role") == "ROLE_USER":
                return _words(message)
        return ""


def skill_of(record: TaskRecord) -> str:
    """Return the skill of the task, from the metadata of the task or of the request: ``metadata.skillId``."""
    for metadata in (record.metadata, record.turn.request.get(REQUEST_METADATA)):
        skill = metadata.get("skillId") if isinstance(metadata, Mapping) else None
        if isinstance(skill, str):
            return skill
    return ""


def _words(message: Mapping[str, Any]) -> str:
    """Return the message in short: its text, or else its other parts."""
    parts = message.get("parts", [])
    text = " ".join(part["text"] for part in parts if isinstance(part.get("text"), str)).strip()
    if not text:
        text = ", ".join(_part(part) for part in parts)
    return text[:SAID_CHARACTERS]


def _part(part: Mapping[str, Any]) -> str:
    if "data" in part:
        return to_json(without_secrets(part["data"])).decode()[:SAID_CHARACTERS]
    return str(part.get("filename") or part.get("url") or part.get("mediaType") or "a file")


# ------------------------------------------------------------------------------------------------------------- watching


logger = logging.getLogger("keelbolt.server")

WATCH_SECONDS = 0.5  # poll interval of the index
OVERLAP_MICROSECONDS = 5_000_000  # changes that become visible this much after their timestamp are still reported
AHEAD_MICROSECONDS = 60_000_000  # changes of a process whose clock is further ahead are reported later
BEHIND = 10_000  # a reader with more pending changes is disconnected


@dataclass(slots=True, eq=False)
class ChangeReader:
    """The pending changes of one reader. ``lost``: it was too slow, and missed a change."""

    news: asyncio.Queue[TaskRecord] = field(default_factory=lambda: asyncio.Queue(BEHIND))
    lost: bool = False

    def tell(self, record: TaskRecord) -> None:
        if self.news.full():
            self.lost = True
        if not self.lost:
            self.news.put_nowait(record)

    async def next(self, seconds: float) -> TaskRecord | None:
        """Return the next change; None: there was none for this many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self.news.get()
        except TimeoutError:
            return None


class TaskWatcher:
    """All readers of this process."""

    def __init__(self, store: StoredTasks) -> None:
        self._store = store
        self._readers: dict[Scope, set[ChangeReader]] = {}
        self._looking: dict[Scope, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def reader(self, scope: Scope) -> AsyncIterator[ChangeReader]:
        """Return a reader that gets each change from now on."""
        reader = ChangeReader()
        self._readers.setdefault(scope, set()).add(reader)
        if scope not in self._looking:
            self._looking[scope] = asyncio.create_task(self._look(scope), name=f"watching {scope.partition}")
        try:
            yield reader
        finally:
            self._readers[scope].discard(reader)
            if not self._readers[scope]:
                del self._readers[scope]
                await cancelled(self._looking.pop(scope))

    async def _look(self, scope: Scope) -> None:
        start = newest = self._store.clock.wall() - 1_000_000
        query = self._since(start)
        reported: set[tuple[str, int]] = set()
        cursor: str | None = None
        while True:
            try:
                page = await scope.find(query, limit=100, cursor=cursor)
            except Exception as error:  # noqa: BLE001 - readers depend on this loop: it must not end
                logger.warning("reading changes of tasks failed and is retried: %s", error)
                await asyncio.sleep(WATCH_SECONDS)
                continue
            for record in map(TaskRecord.of, page.records):
                newest = max(newest, record.updated)
                if (record.task_id, record.updated) not in reported:
                    reported.add((record.task_id, record.updated))
                    for reader in self._readers.get(scope, ()):
                        reader.tell(record)
            cursor = page.cursor
            if cursor is None:  # a commit may become visible after one with a later timestamp, of any process
                await asyncio.sleep(WATCH_SECONDS)
                wall = self._store.clock.wall()
                if wall < start:  # the wall clock was set back
                    start = wall - OVERLAP_MICROSECONDS
                newest = min(newest, wall)
                since = max(start, newest - OVERLAP_MICROSECONDS)
                reported = {key for key in reported if key[1] >= since}
                query = self._since(since)

    def _since(self, since: int) -> Query:
        """Return the query of changes since then. Records from before a clock was set back are not read every time."""
        return Query(TASKS, order="updated", since=since, until=self._store.clock.wall() + AHEAD_MICROSECONDS)
