"""Erases tasks and contexts: on request, and old ones by a retention policy; trims the logs of tasks that ended.

The sweep goes through all partitions, in small commits. Any number of processes may sweep at once: finished work is
skipped, and records that changed after they were found are left alone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from pydantic_core import from_json

from keelbolt.data.erasing import erase_target
from keelbolt.data.families import EVERYTHING, SubjectLocation
from keelbolt.data.groups import Groups
from keelbolt.errors import CommitRefused, KeelboltError, StorageCorrupt, StorageUnavailable
from keelbolt.kernel import Delete, FieldIn, Head, Put, Query, Record, Scope, Trim
from keelbolt.tasks.families import CONTEXTS, EVENTS, FACE, PUSH_CURSORS, SWEEPS, TASKS
from keelbolt.tasks.pushes import push_key
from keelbolt.tasks.record import ENDED
from keelbolt.tasks.settings import RetentionPolicy
from keelbolt.tasks.stored_tasks import FIRST_PAGE, StoredTask, StoredTasks, snapshot_operations

logger = logging.getLogger("keelbolt.tasks")

BATCH = 64  # records of a page
MICROSECONDS = 1_000_000
ENTRY_BYTES = 32  # approximate overhead of an entry, and of a record
RECORD_BYTES = 256


@dataclass(slots=True)
class SweptTasks:
    """Counts of what a sweep removed, or would remove in a dry run."""

    tasks: int = 0
    logs: int = 0  # trimmed
    contexts: int = 0


async def sweep(
    store: StoredTasks,
    policy: RetentionPolicy,
    *,
    dry: bool = False,
    progress: Callable[[SweptTasks], None] | None = None,
) -> SweptTasks:
    """Sweep everything once. ``dry``: only count what would be removed."""
    removed = SweptTasks()
    async for scope in store.kernel.scopes():
        await _Sweep(store, policy, scope, removed, dry=dry).run()
        if progress is not None:
            progress(removed)
    return removed


class _Sweep:
    """The sweep of one scope."""

    def __init__(self, store: StoredTasks, policy: RetentionPolicy, scope: Scope, removed: SweptTasks, *, dry: bool):
        self.store = store
        self.policy = policy
        self.scope = scope
        self.removed = removed
        self.dry = dry
        self.now = store.clock.wall()
        self._groups = Groups()

    async def run(self) -> None:
        for state, age in self.policy.ages():
            async for records in self._found(Query(TASKS, {"state": state.name}, "updated", until=self._before(age))):
                await self._erase(records)
        if self.policy.log is not None:
            for name in ENDED:
                await self._trim(name, self._before(self.policy.log))

    def _before(self, age: float) -> int:
        return self.now - int(age * MICROSECONDS)

    async def _found(self, query: Query) -> AsyncIterator[tuple[Record, ...]]:
        cursor = None
        while True:
            page = await self.scope.find(query, limit=BATCH, cursor=cursor)
            if page.records:
                yield page.records
            cursor = page.cursor
            if cursor is None:
                return

    # ------------------------------------------------------------------------------------------------------- erase

    async def _erase(self, records: Sequence[Record]) -> None:
        if self.dry:
            self.removed.tasks += len(records)
            return
        self.removed.tasks += sum(await self._groups.each(self._erase_one, records))
        for context_id in {str(record.fields["context"]) for record in records}:
            await self._forget_context(context_id)

    async def _erase_one(self, record: Record) -> bool:
        try:
            return await erase_task(self.store, self.scope, record.key, version=record.version)
        except StorageCorrupt as error:  # continue with the other tasks
            logger.error("a task could not be erased: %s", error)  # noqa: TRY400
            return False

    async def _forget_context(self, context_id: str) -> None:
        """Delete the value of a context whose last task is gone."""
        kept = await self.scope.get(CONTEXTS, context_id)
        if kept is None:
            return
        tasks = Query(TASKS, {"context": context_id}, "updated")
        if (await self.scope.find(tasks, limit=1)).records:
            return
        with contextlib.suppress(CommitRefused):  # the context is in use again
            await self.scope.commit(Delete(CONTEXTS, context_id, kept.version))
            self.removed.contexts += 1

    # -------------------------------------------------------------------------------------------------------- trim

    async def _trim(self, state: str, before: int) -> None:
        """Trim tasks that ended since the last sweep, up to ``before``; a record stores the position."""
        mark = await self.scope.get(SWEEPS, state)
        since = from_json(mark.body)["updated"] if mark is not None else None
        async for records in self._found(Query(TASKS, {"state": state}, "updated", since=since, until=before)):
            self.removed.logs += sum(await self._groups.each(self._trim_one, records))
            if not self.dry:
                body = b'{"updated":%d}' % int(records[-1].fields["updated"])  # type: ignore[arg-type]
                await self.scope.commit(Put(SWEEPS, state, body))

    async def _trim_one(self, record: Record) -> bool:
        task_id = record.key
        try:
            if not await trimming_saves(self.store, self.scope, task_id):
                return False
            return self.dry or await trim_log(self.store, self.scope, task_id)
        except StorageUnavailable:
            raise
        except KeelboltError as error:  # one task must not block the sweep of the others
            logger.error("a log could not be trimmed: %s", error)  # noqa: TRY400
            return False


async def trimming_saves(store: StoredTasks, scope: Scope, task_id: str) -> bool:
    """Return whether the log of a finished task is larger than the snapshot that would replace it."""
    page = await scope.read_log(EVENTS, task_id, limit=FIRST_PAGE)
    if page.floor >= page.head:
        return False
    if page.floor > 0 or page.entries[-1].seq < page.head:  # such a log already has a snapshot
        return True
    task = await store.find(scope, task_id)
    if task is None:
        return False
    snapshot = snapshot_operations(task.view)
    return sum(len(entry.data) + ENTRY_BYTES for entry in page.entries) > sum(
        len(operation.body) + RECORD_BYTES for operation in snapshot if isinstance(operation, Put)
    )


async def trim_log(store: StoredTasks, scope: Scope, task_id: str) -> bool:
    """Replace the log of a finished task by its snapshot, and raise the floor. False: there is nothing to do."""
    while True:
        log = await scope.log_state(EVENTS, task_id)
        if log.floor >= log.head:
            return False
        task = await store.find(scope, task_id)
        if task is None or not task.view.state.terminal or await _awaited(task):
            return False
        snapshot = snapshot_operations(task.view)
        if not snapshot:  # too large for a snapshot: the log must stay
            return False
        try:
            await scope.commit(
                Head(EVENTS, task_id, task.view.head),
                FieldIn(TASKS, task_id, "state", ENDED),
                *snapshot,
                Trim(EVENTS, task_id, task.view.head),
            )
        except CommitRefused:  # the task was changed or erased: read it again
            continue
        return True


async def _awaited(task: StoredTask) -> bool:
    """Return whether a webhook has not received all events yet; they are delivered from the log."""
    keys = [push_key(task.task_id, config_id) for config_id in task.record.push]
    if not keys:
        return False
    found = await task.scope.get_many(PUSH_CURSORS, keys)
    cursors = [from_json(record.body) for record in found if record is not None]
    active = [cursor for cursor in cursors if cursor["status"] == "active"]
    return len(cursors) < len(keys) or any(cursor["seq"] < task.view.head for cursor in active)


# ---------------------------------------------------------------------------------------------------------------- erase


async def erase_task(store: StoredTasks, scope: Scope, task_id: str, *, version: int | None = None) -> bool:
    """Erase the task in any state; its worker can't write any more. Return False if there is none.

    With ``version``, erase it only if its record is still at this version. Every change of status changes the version.
    """
    await store.take_in(scope, task_id)
    return bool(await erase_target(FACE, SubjectLocation(scope, "task", task_id), version=version))


async def erase_context(scope: Scope, context_id: str) -> int:
    """Erase every task of the context, and the worker's value for it; return the number of tasks."""
    erased = await erase_target(FACE, SubjectLocation(scope, "context", context_id))
    return erased.records["tasks"]


async def erase_owner(scope: Scope) -> int:
    """Erase every task and context of one owner; return the number of tasks."""
    erased = await erase_target(FACE, SubjectLocation(scope, EVERYTHING))
    return erased.records["tasks"]
