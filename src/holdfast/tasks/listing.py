"""Lists the tasks of one partition, newest status first.

Pages go by the index, never by an offset: a page costs the same wherever it lies, and a task that did not move while
somebody turned the pages is on exactly one of them. One whose status changes meanwhile moves to the front. A page token
holds the place and a digest of the query; with another query, or from elsewhere, it is refused.

Totals are counters kept in the commit (exact) when the filter is nothing or the status alone; with a context or a time
they are counted, up to ``COUNT_CAP``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic_core import to_json

from holdfast.errors import BadCursor, InvalidTaskRequest
from holdfast.protocol.requests import TaskPage
from holdfast.storage import Count, Query
from holdfast.tasks.families import TASKS
from holdfast.tasks.queries import MAX_PAGE_SIZE, ListTasksQuery, moment
from holdfast.tasks.record import TaskRecord
from holdfast.tasks.store import TaskStore

COUNT_CAP = 10_000


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of task records. ``total`` says itself whether it is exact."""

    records: tuple[TaskRecord, ...]
    next_page_token: str
    page_size: int
    total: Count


async def list_records(store: TaskStore, partition: str, query: ListTasksQuery) -> RecordPage:
    """A page of what stands in the records alone: state, status, metadata. Raises InvalidTaskRequest."""
    if not 1 <= query.page_size <= MAX_PAGE_SIZE:
        raise InvalidTaskRequest(f"a page has 1 to {MAX_PAGE_SIZE} tasks, not {query.page_size}")
    wanted = _query(query)
    if wanted is None:
        return RecordPage((), "", query.page_size, Count(0, exact=True))
    try:
        page, total = await asyncio.gather(
            store.kernel.find(partition, wanted, limit=query.page_size, cursor=query.page_token or None),
            store.kernel.count(partition, wanted, cap=COUNT_CAP),
        )
    except BadCursor:
        raise InvalidTaskRequest("this page token belongs to another list of tasks, or is none at all") from None
    records = tuple([TaskRecord.of(record) for record in page.records])
    return RecordPage(records, page.cursor or "", query.page_size, total)


async def list_tasks(store: TaskStore, partition: str, query: ListTasksQuery) -> TaskPage:
    """A page of tasks, each as the JSON of version 1.0. Raises InvalidTaskRequest."""
    if query.history_length is not None and query.history_length < 0:
        raise InvalidTaskRequest("history_length is not negative")
    page = await list_records(store, partition, query)
    if query.history_length == 0 and not query.include_artifacts:
        tasks: list[bytes | None] = [record_json(record) for record in page.records]
    else:
        tasks = await asyncio.gather(*(_task_json(store, partition, record, query) for record in page.records))
    found = [task for task in tasks if task is not None]
    return TaskPage(found, page.next_page_token, page.page_size, page.total.value)


def record_json(record: TaskRecord) -> bytes:
    """The task without history and artifacts, which needs nothing but its record."""
    metadata = b',"metadata":' + to_json(record.metadata) if record.metadata else b""
    return b'{"id":%b,"contextId":%b,"status":%b%b}' % (
        to_json(record.task_id),
        to_json(record.context_id),
        record.status,
        metadata,
    )


async def _task_json(store: TaskStore, partition: str, record: TaskRecord, query: ListTasksQuery) -> bytes | None:
    task = await store.find(partition, record.task_id)
    if task is None:  # erased meanwhile
        return None
    return await store.task_json(task, history_length=query.history_length, include_artifacts=query.include_artifacts)


def _query(query: ListTasksQuery) -> Query | None:
    """The same in the words of the kernel; None: nothing can match."""
    equal: dict[str, str] = {}
    if query.context_id is not None:
        if len(query.context_id) > 4000 or "\0" in query.context_id or not _valid(query.context_id):
            return None
        equal["context"] = query.context_id
    if query.status is not None:
        equal["state"] = query.status.name
    since = moment(query.status_timestamp_after) if query.status_timestamp_after is not None else None
    return Query(TASKS, equal, order="updated", since=since, newest_first=True)


def _valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
