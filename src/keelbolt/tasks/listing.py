"""Lists the tasks of one scope, newest status first, and finds them by their text.

Pages follow the index, not an offset: every page costs the same, and a task whose status does not change while a client
reads the pages is on exactly one of them. A task whose status changes meanwhile moves to the front. A page token holds
the position and a digest of the query; a token of another query, or a foreign one, is refused.

Totals are counters kept in the commit (exact) if there is no filter or only a status; with a context or a time they are
counted, up to ``COUNT_CAP``. A page of whole tasks, with history or artifacts, may have fewer tasks than requested: it
ends at ``PAGE_BYTES``.

The text of a task is read from its log at its first search. The text of an ended task can't change, so it is kept in a
record, which is erased with the task. Sending costs nothing, and later searches read one small record per task. A
search compares substrings and needs no word boundaries, so it also works for languages that do not write them.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import from_json, to_json

from keelbolt.errors import BadCursor, InvalidTaskRequest, LogTrimmed
from keelbolt.kernel import Count, Operation, Page, Put, Query, Receipt, Record, Scope, Version
from keelbolt.observability.logs import MASK, SECRET_NAME
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import Task, TaskState
from keelbolt.tasks.families import EVENTS, TASKS, TEXTS
from keelbolt.tasks.record import ENDED, TaskRecord
from keelbolt.tasks.stored_tasks import StoredTasks

COUNT_CAP = 10_000
PAGE_BYTES = 4 * 1024 * 1024  # a page of whole tasks ends with the task that reaches this size


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of task records. ``total`` states whether it is exact."""

    records: tuple[TaskRecord, ...]
    next_page_token: str
    page_size: int
    total: Count


async def list_records(
    scope: Scope, query: ListTasksQuery, *, until: str | None = None, oldest_first: bool = False
) -> RecordPage:
    """Return a page from the records alone: state, status, metadata. Raises InvalidTaskRequest.

    ``until`` is an exclusive upper bound of the status timestamp. ``oldest_first`` reverses the order.
    """
    if not 1 <= query.page_size <= MAX_PAGE_SIZE:
        raise InvalidTaskRequest(f"the page size must be 1 to {MAX_PAGE_SIZE}, not {query.page_size}")
    wanted = kernel_query(query, until, oldest_first=oldest_first)
    if wanted is None:
        return RecordPage((), "", query.page_size, Count(0, exact=True))
    page, total = await asyncio.gather(
        find_records(scope, wanted, limit=query.page_size, token=query.page_token),
        scope.count(wanted, cap=COUNT_CAP),
    )
    records = tuple([TaskRecord.of(record) for record in page.records])
    return RecordPage(records, page.cursor or "", query.page_size, total)


async def find_records(scope: Scope, query: Query, *, limit: int, token: str | None) -> Page:
    """Return a page of the kernel. Raises InvalidTaskRequest for a token of another list."""
    try:
        return await scope.find(query, limit=limit, cursor=token or None)
    except BadCursor:
        raise InvalidTaskRequest("the page token is invalid or belongs to another list of tasks") from None


async def newest_record(scope: Scope, query: ListTasksQuery) -> TaskRecord | None:
    """Return the first matching record, without a total."""
    wanted = kernel_query(query)
    if wanted is None:
        return None
    found = (await scope.find(wanted, limit=1)).records
    return TaskRecord.of(found[0]) if found else None


async def list_tasks(store: StoredTasks, scope: Scope, query: ListTasksQuery) -> TaskPage:
    """Return a page of tasks, each as JSON of protocol version 1.0. Raises InvalidTaskRequest."""
    if query.history_length is not None and query.history_length < 0:
        raise InvalidTaskRequest("history_length must not be negative")
    if query.history_length == 0 and not query.include_artifacts:
        page = await list_records(scope, query)
        return TaskPage(list(map(record_json, page.records)), page.next_page_token, page.page_size, page.total.value)
    # Whole tasks may be large: load one at a time, each with the position after it, so that the page can end anywhere.
    one = await list_records(scope, query.model_copy(update={"page_size": 1}))
    total, tasks, size, left = one.total.value, list[bytes](), 0, query.page_size
    while True:
        for record in one.records:
            if (task := await _task_json(store, scope, record, query)) is not None:
                tasks.append(task)
                size += len(task)
        left -= 1
        token = one.next_page_token
        if not token or not left or size >= PAGE_BYTES:
            return TaskPage(tasks, token, query.page_size, total)
        one = await _next_record(scope, query, token, one.total)


async def _next_record(scope: Scope, query: ListTasksQuery, token: str, total: Count) -> RecordPage:
    wanted = kernel_query(query)
    assert wanted is not None
    page = await scope.find(wanted, limit=1, cursor=token)
    return RecordPage(tuple([TaskRecord.of(record) for record in page.records]), page.cursor or "", 1, total)


def record_json(record: TaskRecord) -> bytes:
    """Return the JSON of the task without history and artifacts, from its record alone."""
    metadata = b',"metadata":' + to_json(record.metadata) if record.metadata else b""
    return b'{"id":%b,"contextId":%b,"status":%b%b}' % (
        to_json(record.task_id),
        to_json(record.context_id),
        record.status,
        metadata,
    )


async def _task_json(store: StoredTasks, scope: Scope, record: TaskRecord, query: ListTasksQuery) -> bytes | None:
    task = await store.find(scope, record.task_id)
    if task is None:  # the task was erased meanwhile
        return None
    return await store.task_json(task, history_length=query.history_length, include_artifacts=query.include_artifacts)


def kernel_query(query: ListTasksQuery, until: str | None = None, *, oldest_first: bool = False) -> Query | None:
    """Return the query of the kernel; None: no task can match."""
    equal: dict[str, str] = {}
    if query.context_id is not None:
        if len(query.context_id) > 4000 or "\0" in query.context_id or not _valid(query.context_id):
            return None
        equal["context"] = query.context_id
    if query.status is not None:
        equal["state"] = query.status.name
    since = moment(query.status_timestamp_after) if query.status_timestamp_after is not None else None
    before = moment(until) if until is not None else None
    return Query(TASKS, equal, order="updated", since=since, until=before, newest_first=not oldest_first)


def _valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -------------------------------------------------------------------------------------------------------------- queries


MAX_PAGE_SIZE = 100


class ListTasksQuery(BaseModel):
    """Filters, and where to go on. ``status_timestamp_after`` (ISO 8601) includes the moment itself."""

    context_id: str | None = None
    status: TaskState | None = None
    page_size: int = Field(default=50, ge=1, le=MAX_PAGE_SIZE)
    page_token: str | None = None
    history_length: int | None = Field(default=None, ge=0)
    status_timestamp_after: str | None = None
    include_artifacts: bool = False


class ListTasksResult(BaseModel):
    """A page of tasks, newest status first. ``next_page_token`` is empty on the last one.

    ``total_size`` counts all tasks that match, on every page.
    """

    tasks: list[Task] = Field(default_factory=list)
    next_page_token: str = ""
    page_size: int = 50
    total_size: int = 0


def moment(text: str) -> int:
    """Return a timestamp as microseconds since 1970; raise InvalidTaskRequest. Without an offset it is UTC."""
    try:
        read = datetime.fromisoformat(text)
        if read.tzinfo is None:
            read = read.replace(tzinfo=UTC)
        since = read - datetime(1970, 1, 1, tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise InvalidTaskRequest(f"{text!r} is not a timestamp; write it as 2026-01-31T12:00:00.000Z") from None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# ---------------------------------------------------------------------------------------------------------------- texts


ASKED_CHARACTERS = 4_000
ANSWERED_CHARACTERS = 4_000
LOG_ENTRIES = 500  # limits of the log that is read per task
LOG_BYTES = 256 * 1024
READS = 64  # concurrent reads of logs
WRITES = 50  # texts per commit
KINDS = ("message", "status", "said", "artifact")


def folded(text: str) -> str:
    """Return the text for comparison: without case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text)
    return "".join(one for one in text if not unicodedata.combining(one)).casefold()


class Texts:
    """Finds the text of tasks."""

    def __init__(self, store: StoredTasks) -> None:
        self._store = store
        self._reading = asyncio.Semaphore(READS)

    async def of(self, scope: Scope, records: Sequence[Record]) -> list[str]:
        """Return the text of these tasks, folded."""
        kept = await scope.get_many(TEXTS, [record.key for record in records])
        missing = [record for record, text in zip(records, kept, strict=True) if text is None]
        read = await asyncio.gather(*(self._read(scope, record) for record in missing))
        self._keep(scope, [pair for pair in zip(missing, read, strict=True) if pair[0].fields["state"] in ENDED])
        found = iter(read)
        return [next(found) if text is None else text.body.decode() for text in kept]

    def _keep(self, scope: Scope, texts: Sequence[tuple[Record, str]]) -> None:
        """Start to write the texts of ended tasks. The search does not wait for the writes."""
        for first in range(0, len(texts), WRITES):
            operations: list[Operation] = []
            for record, text in texts[first : first + WRITES]:
                operations.append(Version(TASKS, record.key, record.version))  # the task may be erased meanwhile
                operations.append(Put(TEXTS, record.key, text.encode(errors="replace")))
            asyncio.ensure_future(scope.commit(*operations)).add_done_callback(_ignore)

    async def _read(self, scope: Scope, record: Record) -> str:
        async with self._reading:
            try:
                page = await scope.read_log(EVENTS, record.key, after=0, limit=LOG_ENTRIES, max_bytes=LOG_BYTES)
                bodies = [from_json(entry.data) for entry in page.entries if entry.kind in KINDS]
            except LogTrimmed:  # only its snapshot is left
                task = await self._store.find(scope, record.key)
                bodies = [] if task is None else [from_json(await self._store.task_json(task))]
            return folded(_words(bodies))


def _ignore(written: asyncio.Future[Receipt]) -> None:
    """Ignore a refused or failed write: the next search repeats it."""
    if not written.cancelled():
        written.exception()


def _words(bodies: Sequence[Any]) -> str:
    asked: list[str] = []
    answered: list[str] = []
    for body in bodies:
        for parts, user in _parts(body, user=False):
            (asked if user else answered).extend(map(_text, parts))
    return f"{' '.join(asked)[:ASKED_CHARACTERS]}\n{' '.join(answered)[:ANSWERED_CHARACTERS]}"


def _parts(body: Any, *, user: bool) -> Iterator[tuple[list[Any], bool]]:
    """Yield the lists of parts in a message, status, artifact or task, and whether the user wrote them."""
    if isinstance(body, dict):
        user = user or body.get("role") == "ROLE_USER"
        if isinstance(body.get("parts"), list):
            yield body["parts"], user
            return
        body = list(body.values())
    if isinstance(body, list):
        for each in body:
            yield from _parts(each, user=user)


def _text(part: Mapping[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if "data" in part:
        return to_json(without_secrets(part["data"])).decode()
    return str(part.get("filename") or part.get("url") or part.get("mediaType") or "")


def without_secrets(value: Any, name: str = "") -> Any:
    """Return the value with secrets masked, which are recognised by their names."""
    if isinstance(value, dict):
        return {key: without_secrets(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each, name) for each in value]
    return MASK if isinstance(value, str) and SECRET_NAME.search(name) else value
