"""Lists the tasks of one scope, newest status first.

Pages follow the index, not an offset: every page costs the same, and a task whose status does not change while a client
reads the pages is on exactly one of them. A task whose status changes meanwhile moves to the front. A page token holds
the position and a digest of the query; a token of another query, or a foreign one, is refused.

Totals are counters kept in the commit (exact) if there is no filter or only a status; with a context or a time they are
counted, up to ``COUNT_CAP``.

A page of whole tasks, with history or artifacts, may have fewer tasks than requested: it ends at ``PAGE_BYTES``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic_core import to_json

from keelbolt.errors import BadCursor, InvalidTaskRequest
from keelbolt.kernel import Count, Page, Query, Scope
from keelbolt.protocol.requests import TaskPage
from keelbolt.tasks.families import TASKS
from keelbolt.tasks.queries import MAX_PAGE_SIZE, ListTasksQuery, moment
from keelbolt.tasks.record import TaskRecord
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
