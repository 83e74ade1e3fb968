"""The SDK's task store, versioned and plain, on Keelbolt's task log, and the owners of its tasks."""

from __future__ import annotations

from collections.abc import Callable

from a2a.server.cluster import ConcurrentTaskModificationError, StoredTask, TaskVersion, VersionedTaskStore
from a2a.server.context import ServerCallContext
from a2a.server.tasks.task_store import TaskStore as PlainTaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task
from a2a.utils.errors import InvalidParamsError
from pydantic import ValidationError

from keelbolt.a2a_sdk.codec import Event, event_notes, new_notes, state_named, state_of, task_of, tasks_of, whole_notes
from keelbolt.a2a_sdk.families import CONFIGS, DIRECTORY, PARTITION
from keelbolt.auth import Principal
from keelbolt.errors import CommitRefused, InvalidTaskRequest
from keelbolt.kernel import Delete, FieldNotIn, Head, Insert, Kernel, Operation, Query, Scope
from keelbolt.protocol import v1
from keelbolt.protocol.types import TaskState
from keelbolt.tasks.families import EVENTS, TASKS
from keelbolt.tasks.listing import ListTasksQuery, list_tasks
from keelbolt.tasks.notes import Note, StatusNote, append_notes
from keelbolt.tasks.record import ENDED, CurrentTurn, TaskRecord
from keelbolt.tasks.stored_tasks import StoredTask as OurTask
from keelbolt.tasks.stored_tasks import StoredTasks, snapshot_operations
from keelbolt.tasks.sweep import erase_task
from keelbolt.tasks.view import TaskView


class KeelboltTaskStore(VersionedTaskStore):
    """Versions are the entry numbers of the task's log. A terminal state can't be overwritten."""

    def __init__(self, store: StoredTasks, directory: ScopeResolver) -> None:
        self._store = store
        self._directory = directory

    async def save(
        self,
        task: Task,
        *,
        event: Event | None = None,
        prev: Task | None = None,  # noqa: ARG002 - compared with the stored task instead
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        scope = self._directory.scope(context)
        if prev_version.is_missing and state_of(task) is not TaskState.canceled:
            return await self._create(scope, task)
        found = await self._store.find(scope, task.id)
        if found is None or found.state.terminal:
            raise ConcurrentTaskModificationError(task.id)
        canceled = state_of(task) is TaskState.canceled
        if not canceled and prev_version != TaskVersion(found.version):
            raise ConcurrentTaskModificationError(task.id)
        now = self._store.clock.wall()
        if event is None or isinstance(event, Task):
            notes = whole_notes(task, task_of(await self._store.task_json(found)), now=now)
        else:
            notes = event_notes(task, event, found.view, now=now)
        return TaskVersion(await self._write(found, notes))

    async def _create(self, scope: Scope, task: Task) -> TaskVersion:
        now = self._store.clock.wall()
        notes = new_notes(task, now=now)
        status = next(note for note in reversed(notes) if isinstance(note, StatusNote))
        record = TaskRecord(task.id, task.context_id, status.state, status.status, now, now, CurrentTurn(1, ""))
        view = TaskView(task.id, task.context_id)
        view.apply(notes)
        record.metadata = view.metadata
        if not await self._directory.put(task.id, scope):
            raise ConcurrentTaskModificationError(task.id)
        try:
            await scope.commit(record.insert(), append_notes(task.id, notes))
        except CommitRefused:
            raise ConcurrentTaskModificationError(task.id) from None
        return TaskVersion(view.head)

    async def _write(self, found: OurTask, notes: list[Note]) -> int:
        record, view = found.record, found.view
        operations: list[Operation] = [Head(EVENTS, view.task_id, view.head), append_notes(view.task_id, notes)]
        status = next((note for note in reversed(notes) if isinstance(note, StatusNote)), None)
        view.apply(notes)
        if status is not None:
            record.state, record.status, record.updated = status.state, status.status, self._store.clock.wall()
        if status is not None or record.metadata != view.metadata:
            record.metadata = view.metadata
            operations.append(record.replace())
        else:
            operations.append(FieldNotIn(TASKS, view.task_id, "state", ENDED))
        if view.snapshot_due():
            operations += snapshot_operations(view)
        try:
            await found.scope.commit(*operations)
        except CommitRefused:
            raise ConcurrentTaskModificationError(view.task_id) from None
        return view.head

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        found = await self._store.find(self._directory.scope(context), task_id)
        if found is None:
            return None
        return StoredTask(task_of(await self._store.task_json(found)), TaskVersion(found.version))

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page. Raise the SDK's InvalidParamsError, which its handlers return to the client."""
        after = params.status_timestamp_after
        try:
            query = ListTasksQuery(
                context_id=params.context_id or None,
                status=state_named(params.status),
                page_size=params.page_size or 50,
                page_token=params.page_token or None,
                history_length=params.history_length if params.HasField("history_length") else None,
                status_timestamp_after=after.ToJsonString() if params.HasField("status_timestamp_after") else None,
                include_artifacts=params.include_artifacts,
            )
            page = await list_tasks(self._store, self._directory.scope(context), query)
        except ValidationError as wrong:
            raise InvalidParamsError(message=str(wrong.errors()[0]["msg"])) from wrong
        except (InvalidTaskRequest, ValueError) as wrong:
            raise InvalidParamsError(message=str(wrong)) from wrong
        return tasks_of(v1.task_list(page))

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        scope = self._directory.scope(context)
        await delete_configs(scope, task_id)
        await erase_task(self._store, scope, task_id)
        await self._directory.remove(task_id, scope)


async def delete_configs(scope: Scope, task_id: str) -> None:
    """Delete all push configs of a task."""
    keys = [record.key async for record in scope.scan(Query(CONFIGS, {"task": task_id}))]
    if keys:
        await scope.commit(*[Delete(CONFIGS, key) for key in keys])


class KeelboltPlainTaskStore(PlainTaskStore):
    """The store for handlers without versions: the last writer wins, except over a terminal state."""

    def __init__(self, versioned: KeelboltTaskStore) -> None:
        self._versioned = versioned

    async def save(self, task: Task, context: ServerCallContext) -> None:
        for _ in range(20):
            found = await self._versioned.get(task.id, context)
            version = TaskVersion.MISSING if found is None else found.version
            try:
                await self._versioned.save(task, prev_version=version, context=context)
            except ConcurrentTaskModificationError:
                if found is not None and state_of(found.task).terminal:
                    raise
                continue
            return
        raise InvalidTaskRequest("other processes keep changing the task; try again")

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        found = await self._versioned.get(task_id, context)
        return None if found is None else found.task

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        return await self._versioned.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        await self._versioned.delete(task_id, context)


# --------------------------------------------------------------------------------------------------------------- owners


Whose = Callable[[ServerCallContext], str]


def owner_partition(context: ServerCallContext) -> str:
    """Return the caller's partition: its user name and the tenant that it requests, which is not verified."""
    return Principal(owner=context.user.user_name, asked_tenant=context.tenant).partition


class ScopeResolver:
    """Returns the scope of a call, and by a directory that of a task: the SDK requests events by task id alone."""

    def __init__(self, kernel: Kernel, whose: Whose) -> None:
        self._kernel = kernel
        self._whose = whose
        self._tasks = kernel.scoped(PARTITION)

    def scope(self, context: ServerCallContext) -> Scope:
        """Return the scope of the caller."""
        return self._kernel.scoped(self._whose(context))

    async def put(self, task_id: str, scope: Scope) -> bool:
        """Store the owner of a new task. Return False if the id belongs to another owner."""
        try:
            whose = {"whose": scope.partition}
            await self._tasks.commit(Insert(DIRECTORY, task_id, scope.partition.encode(), whose))
        except CommitRefused:
            return await self.find(task_id) == scope
        return True

    async def find(self, task_id: str) -> Scope | None:
        found = await self._tasks.get(DIRECTORY, task_id)
        return self._kernel.scoped(found.body.decode()) if found is not None else None

    async def remove(self, task_id: str, scope: Scope) -> None:
        """Remove a task's entry if it belongs to this scope."""
        if await self.find(task_id) == scope:
            await self._tasks.commit(Delete(DIRECTORY, task_id))
