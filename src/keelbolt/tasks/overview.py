"""Lists the tasks and the dead letters of all partitions, for whoever runs the storage: callers see only their own."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from keelbolt.errors import InvalidTaskRequest
from keelbolt.tasks.dead import DeadLetter, dead_letters
from keelbolt.tasks.listing import list_records
from keelbolt.tasks.partitions import all_partitions
from keelbolt.tasks.queries import ListTasksQuery
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.store import TaskStore


@dataclass(frozen=True, slots=True)
class Overview:
    """A page of tasks, each with its partition: the partitions in order, in each of them the newest status first."""

    tasks: tuple[tuple[str, TaskRecord], ...]
    next_page_token: str


async def list_everywhere(store: TaskStore, query: ListTasksQuery) -> Overview:
    """A page of the tasks of all partitions. Raises InvalidTaskRequest."""
    tasks: list[tuple[str, TaskRecord]] = []
    begun, token = _read(query.page_token) if query.page_token else ("", "")
    async for partition in _from(store, begun):
        while len(tasks) < query.page_size:
            wanted = {"page_size": query.page_size - len(tasks), "page_token": token or None}
            page = await list_records(store, partition, query.model_copy(update=wanted))
            tasks += [(partition, record) for record in page.records]
            token = page.next_page_token
            if not token:
                break
        if token:
            return Overview(tuple(tasks), _token(partition, token))
        if len(tasks) >= query.page_size:
            async for following in all_partitions(store, after=partition):
                return Overview(tuple(tasks), _token(following, ""))
    return Overview(tuple(tasks), "")


async def dead_everywhere(store: TaskStore) -> AsyncGenerator[DeadLetter, None]:
    """The dead letters of all partitions."""
    async for partition in all_partitions(store):
        async for letter in all_dead(store, partition):
            yield letter


async def all_dead(store: TaskStore, partition: str) -> AsyncGenerator[DeadLetter, None]:
    """The dead letters of one partition, by task id."""
    cursor = None
    while True:
        page = await dead_letters(store, partition, cursor=cursor)
        for letter in page.letters:
            yield letter
        cursor = page.cursor
        if cursor is None:
            return


async def _from(store: TaskStore, partition: str) -> AsyncIterator[str]:
    """The partitions from this one on, itself included."""
    if partition:
        yield partition
    async for following in all_partitions(store, after=partition):
        yield following


def _token(partition: str, token: str) -> str:
    return urlsafe_b64encode(to_json([partition, token])).decode()


def _read(text: str) -> tuple[str, str]:
    try:
        partition, token = from_json(urlsafe_b64decode(text))
        if isinstance(partition, str) and isinstance(token, str):
            return partition, token
    except ValueError:
        pass
    raise InvalidTaskRequest("this page token belongs to another list of tasks, or is none at all")
