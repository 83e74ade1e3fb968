"""Erases tasks: record, log, inbox, snapshot, segments, send keys, push configs, files, work item: nothing is left.

A task vanishes in one commit. What does not fit into it (the segments of a very large one) is listed in the place of
its snapshot, together with a work item that says so, and removed in further commits, as its files are: an erasure that
is interrupted is finished by the next one in the same partition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pydantic_core import from_json, to_json

from keelbolt.errors import CommitRefused, StorageBusy
from keelbolt.protocol.types import timestamp
from keelbolt.storage import Delete, Drop, Enqueue, Head, Operation, Put, Query, Remove
from keelbolt.tasks.families import (
    CONTEXTS,
    ERASURES,
    EVENTS,
    INBOX,
    PUSH_CONFIGS,
    PUSH_CURSORS,
    QUEUE,
    SEGMENTS,
    SENDS,
    SNAPSHOTS,
    TASKS,
    WEBHOOKS,
)
from keelbolt.tasks.files import drop_files, has_files
from keelbolt.tasks.lifecycle import Cancel, apply
from keelbolt.tasks.notes import append_notes
from keelbolt.tasks.store import StoredTask, TaskStore

BATCH = 500  # operations of one commit
TRIES = 20


async def erase_task(store: TaskStore, partition: str, task_id: str, *, version: int | None = None) -> bool:
    """Erase the task, in whatever state it is: who runs it is fenced off. False: there is none.

    With ``version`` only if its record is still at this version, which every change of its status changes.
    """
    for _ in range(TRIES):
        task = await store.find(partition, task_id)
        if task is None:
            await _finish(store, partition, task_id)
            await drop_files(store.kernel, partition, task_id)
            return False
        if version is not None and task.record.version != version:
            return False
        try:
            await _remove(store, task)
        except (CommitRefused, LookupError):  # it was written meanwhile: look again
            if version is None and not task.view.state.terminal:
                await _end(store, task)
            continue
        return True
    raise StorageBusy("the task is written all the time; cancel it first, then erase it")


async def _end(store: TaskStore, task: StoredTask) -> None:
    """Cancel a task that its worker writes all the time: without its work item, the worker can write no more."""
    record, now = task.record, store.clock.wall()
    decision = apply(record.task_id, task.view.state, Cancel(), now=timestamp(now))
    record.stand(decision, now, task.view.metadata)
    with contextlib.suppress(CommitRefused):
        await store.kernel.commit(
            task.partition,
            record.replace(),
            Remove(QUEUE, record.task_id),
            append_notes(record.task_id, decision.notes),
        )


async def erase_context(store: TaskStore, partition: str, context_id: str) -> int:
    """Erase every task of the context, and what the worker kept about it; answers how many tasks that were."""
    count = await _erase_found(store, partition, Query(TASKS, {"context": context_id}, order="updated"))
    await store.kernel.commit(partition, Delete(CONTEXTS, context_id))
    return count


async def erase_owner(store: TaskStore, partition: str) -> int:
    """Erase every task and every context of a partition, which is all that one owner has; answers how many tasks."""
    count = await _erase_found(store, partition, Query(TASKS, order="updated"))
    contexts = Query(CONTEXTS)
    while records := (await store.kernel.find(partition, contexts, limit=BATCH)).records:
        await store.kernel.commit(partition, *(Delete(CONTEXTS, record.key) for record in records))
    await finish_erasures(store, partition)
    return count


async def finish_erasures(store: TaskStore, partition: str) -> int:
    """Finish what interrupted erasures left over."""
    count = 0
    while items := (await store.kernel.list_work(partition, ERASURES, state="waiting")).items:
        for item in items:
            await _finish(store, partition, item.key)
            count += 1
    return count


async def _erase_found(store: TaskStore, partition: str, query: Query) -> int:
    count = 0
    while records := (await store.kernel.find(partition, query, limit=100)).records:
        for record in records:
            count += await erase_task(store, partition, record.key)
    return count


async def _remove(store: TaskStore, task: StoredTask) -> None:
    task_id, view = task.record.task_id, task.view
    inbox = await store.kernel.log_state(task.partition, INBOX, task_id)
    deletes = await _push_configs(store, task)  # first: they are few, and their work can't be listed for later
    deletes += await _sends(store, task)
    deletes += [Delete(SEGMENTS, key) for key in dict.fromkeys(view.segment_keys())]
    here, left = deletes[:BATCH], deletes[BATCH:]
    unfinished = bool(left) or await has_files(store.kernel, task.partition, task_id)
    await store.kernel.commit(
        task.partition,
        Head(EVENTS, task_id, view.head),
        Head(INBOX, task_id, inbox.head),  # a message that came meanwhile would leave its key behind
        Delete(TASKS, task_id, task.record.version),
        Drop(EVENTS, task_id),
        Drop(INBOX, task_id),
        Remove(QUEUE, task_id),
        *(_leave(task_id, left) if unfinished else [Delete(SNAPSHOTS, task_id)]),
        *here,
    )
    if unfinished:
        await _finish(store, task.partition, task_id)
    if late := await _push_configs(store, task):  # made while this was being written
        await store.kernel.commit(task.partition, *late)
    await drop_files(store.kernel, task.partition, task_id)  # those too that were kept meanwhile


async def _push_configs(store: TaskStore, task: StoredTask) -> list[Operation]:
    query, cursor = Query(PUSH_CONFIGS, {"task": task.record.task_id}), None
    found: list[Operation] = []
    while True:
        page = await store.kernel.find(task.partition, query, cursor=cursor)
        for record in page.records:
            found += [Delete(PUSH_CONFIGS, record.key), Delete(PUSH_CURSORS, record.key), Remove(WEBHOOKS, record.key)]
        cursor = page.cursor
        if cursor is None:
            return found


def _leave(task_id: str, left: Sequence[Operation]) -> list[Operation]:
    names = [[delete.collection, delete.key] for delete in left if isinstance(delete, Delete)]
    return [Put(SNAPSHOTS, task_id, to_json({"erase": names})), Enqueue(ERASURES, task_id)]


async def _finish(store: TaskStore, partition: str, task_id: str) -> None:
    if await store.kernel.work(partition, ERASURES, task_id) is None:
        return
    listed = await store.kernel.get(partition, SNAPSHOTS, task_id)
    names = from_json(listed.body)["erase"] if listed is not None else []
    for first in range(0, len(names), BATCH):
        deletes = [Delete(collection, key) for collection, key in names[first : first + BATCH]]
        await store.kernel.commit(partition, *deletes)
    await drop_files(store.kernel, partition, task_id)
    await store.kernel.commit(partition, Delete(SNAPSHOTS, task_id), Remove(ERASURES, task_id))


async def _sends(store: TaskStore, task: StoredTask) -> list[Operation]:
    """Deletes the keys under which this task was made or reached."""
    query, cursor = Query(SENDS, {"task": task.record.task_id}), None
    found: list[Operation] = []
    while True:
        page = await store.kernel.find(task.partition, query, cursor=cursor)
        found += [Delete(SENDS, record.key) for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return found
