"""Reads tasks from the kernel: a record, a snapshot if there is one, and the entries after it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from pydantic_core import from_json, to_json

from keelbolt.errors import (
    InvalidName,
    InvalidTaskRequest,
    KeelboltError,
    LogTrimmed,
    StorageCorrupt,
    TaskNotFoundError,
)
from keelbolt.kernel import Clock, Delete, Kernel, Operation, Put, Scope
from keelbolt.protocol.extensions import GENERATION
from keelbolt.protocol.types import Message, Task, TaskState
from keelbolt.tasks.families import EVENTS, SEGMENTS, SNAPSHOTS, TASKS
from keelbolt.tasks.notes import read_note
from keelbolt.tasks.record import TaskRecord, is_task_id
from keelbolt.tasks.view import SNAPSHOT_ENTRIES, SegmentedList, TaskView, step_key

FIRST_PAGE = SNAPSHOT_ENTRIES + 44  # most tasks fit in one page, and then need no snapshot
LOAD_TRIES = 5

TaskKey = tuple[Scope, str]  # a task of any owner


class StoredTask(Struct):
    """A task as it was read: its record, and the view of its log."""

    scope: Scope
    record: TaskRecord
    view: TaskView

    @property
    def task_id(self) -> str:
        return self.record.task_id

    @property
    def state(self) -> TaskState:
        return self.view.state

    @property
    def version(self) -> int:
        return self.view.head


class StoredTasks:
    """The tasks of one kernel."""

    def __init__(self, kernel: Kernel, *, clock: Clock | None = None) -> None:
        self.kernel = kernel
        self.clock = clock or Clock()
        self.tell_transitions = False  # add the history of states to the task's metadata

    async def record(self, scope: Scope, task_id: str) -> TaskRecord | None:
        try:
            found = await scope.get(TASKS, task_id)
        except InvalidName:  # not a valid task id
            return None
        return TaskRecord.of(found) if found is not None else None

    async def take_in(self, scope: Scope, task_id: str) -> None:
        """Load the task into the kernel, if another storage keeps it."""

    async def find(self, scope: Scope, task_id: str) -> StoredTask | None:
        """Return the task, or None. The result is a state that was stored at one moment, despite concurrent writes."""
        for _ in range(LOAD_TRIES):
            record = await self.record(scope, task_id)
            if record is None:
                return None
            view = await self._view(scope, record)
            if view is not None:
                return StoredTask(scope, record, view)
        raise StorageCorrupt(f"task {task_id}: its log and its snapshot are inconsistent")

    async def load(self, scope: Scope, task_id: str) -> StoredTask:
        """Return the task; raise TaskNotFoundError."""
        if not isinstance(task_id, str) or not task_id:
            raise InvalidTaskRequest("a task id must be a non-empty string")
        found = await self.find(scope, task_id) if is_task_id(task_id) else None
        if found is None:
            raise TaskNotFoundError(task_id)
        return found

    async def _view(self, scope: Scope, record: TaskRecord) -> TaskView | None:
        page = await scope.read_log(EVENTS, record.task_id, limit=FIRST_PAGE)
        if page.floor == 0 and (not page.entries or page.entries[-1].seq >= page.head):
            view = TaskView(record.task_id, record.context_id)
            view.apply(map(read_note, page.entries))
            return view
        snapshot = await scope.get(SNAPSHOTS, record.task_id)
        if snapshot is None and page.floor > 0:
            return None
        if snapshot is None:
            view = TaskView(record.task_id, record.context_id)
        else:
            view = TaskView.from_index(record.task_id, record.context_id, snapshot.body)
        while True:
            try:
                page = await scope.read_log(EVENTS, view.task_id, after=view.head)
            except LogTrimmed:
                return None
            view.apply(map(read_note, page.entries))
            if view.head >= page.head:
                return view

    # ----------------------------------------------------------------------------------------------------- spools

    async def values(self, task: StoredTask, spool: SegmentedList, *, last: int | None = None) -> list[bytes]:
        """Return the values of a spool, as pieces of comma-separated JSON.

        With ``last``, return only the pieces that hold that many last values. Raises LookupError if the spool was
        replaced meanwhile.
        """
        keys = spool.keys(task.record.task_id)
        if last is not None:
            wanted = last - len(spool.tail)
            number = len(keys)
            while wanted > 0 and number > 0:
                number -= 1
                wanted -= spool.segments[number]
            keys = keys[number:]
        segments = [] if not keys else await task.scope.get_many(SEGMENTS, keys)
        found = [zlib.decompress(segment.body) for segment in segments if segment is not None]
        if len(found) < len(keys):
            raise LookupError
        return found + spool.tail

    async def rewound(self, task: StoredTask) -> dict[str, bytes]:
        """Return the artifacts that an earlier run of this turn wrote to, as they were before the turn."""
        return {
            key: await self._before_turn(task, artifact.parts)
            for key, artifact in task.view.artifacts.items()
            if artifact.turn == task.view.turn and artifact.run < task.view.run
        }

    async def _before_turn(self, task: StoredTask, spool: SegmentedList) -> bytes:
        """Return the content of a spool before the turn that wrote to it last, as the inside of a JSON array."""
        number, place = spool.mark
        earlier = SegmentedList(spool.name, spool.segments[:number], spool.tail[:place])
        return b",".join(await self.values(task, earlier))

    async def step_result(self, task: StoredTask, step: str) -> Any:
        """Return the large result of a step of the current turn, which is stored outside the snapshot."""
        found = await task.scope.get(SEGMENTS, step_key(task.task_id, task.view.turn, step))
        if found is None:
            raise StorageCorrupt(f"task {task.task_id}: the result of the step {step!r} is missing")
        return from_json(zlib.decompress(found.body))

    async def artifacts_json(self, task: StoredTask) -> list[bytes]:
        artifacts = list(task.view.artifacts.values())
        if not any(artifact.parts.segments for artifact in artifacts):  # the usual case: everything is in memory
            return [artifact.json() for artifact in artifacts]
        values = await asyncio.gather(*(self.values(task, artifact.parts) for artifact in artifacts))
        return [
            b'{%b,"parts":[%b]}' % (artifact.about, b",".join(parts))
            for artifact, parts in zip(artifacts, values, strict=True)
        ]

    async def turn_message(self, task: StoredTask) -> Message:
        """Return the message of the task's current turn, from its history."""
        wanted = task.record.turn.message_id
        for texts in (task.view.history.tail, [await self.history_json(task, None)]):
            for text in reversed(texts):
                for body in reversed(from_json(b"[%b]" % text)):
                    if body["messageId"] == wanted:
                        return Message.model_validate(body)
        raise KeelboltError(f"the message of turn {task.record.turn.number} is not in the history")

    async def history_json(self, task: StoredTask, length: int | None) -> bytes:
        """Return the last ``length`` messages (None: all), as the inside of a JSON array."""
        view = task.view
        if length == 0:
            return b""
        values = await self.values(task, view.history, last=length)
        total = sum(view.history.segments) + len(view.history.tail)
        if length is None or length >= total:
            return b",".join(values)
        if length <= len(view.history.tail):
            return b",".join(view.history.tail[-length:])
        messages = from_json(b"[%b]" % b",".join(values))
        return to_json(messages[-length:])[1:-1]

    async def task_json(
        self,
        task: StoredTask,
        *,
        history_length: int | None = None,
        include_artifacts: bool = True,
        generation: bool = False,
    ) -> bytes:
        """Return the JSON of the task in protocol version 1.0; stored bytes are joined, not decoded.

        With ``generation``, its metadata includes the value of the generation extension.
        """
        for _ in range(LOAD_TRIES):
            try:
                return await self._task_json(task, history_length, include_artifacts, generation)
            except LookupError:  # an artifact was replaced meanwhile
                task = await self.load(task.scope, task.record.task_id)
        raise StorageCorrupt(f"task {task.record.task_id}: segments are missing")

    async def _task_json(
        self,
        task: StoredTask,
        history_length: int | None,
        include_artifacts: bool,  # noqa: FBT001
        generation: bool,  # noqa: FBT001
    ) -> bytes:
        view = task.view
        more = b""
        if history_length != 0:
            history = await self.history_json(task, history_length)
            more += b',"history":[%b]' % history if history else b""
        if include_artifacts and view.artifacts:
            more += b',"artifacts":[%b]' % b",".join(await self.artifacts_json(task))
        metadata = view.metadata or task.record.metadata
        if self.tell_transitions:
            changes = [{"state": state.replace("_", "-"), "timestamp": moment} for state, moment in view.transitions]
            metadata = {**metadata, "stateTransitionHistory": changes}
        if generation:
            metadata = {**metadata, GENERATION: {"generation": view.generation}}
        if metadata:
            more += b',"metadata":' + to_json(metadata)
        return b'{"id":%b,"contextId":%b,"status":%b%b}' % (
            to_json(view.task_id),
            to_json(view.context_id),
            view.status,
            more,
        )

    async def task(
        self, task: StoredTask, *, history_length: int | None = None, include_artifacts: bool = True
    ) -> Task:
        """Return the task as a model."""
        text = await self.task_json(task, history_length=history_length, include_artifacts=include_artifacts)
        return Task.model_validate_json(text)


def snapshot_operations(view: TaskView) -> list[Operation]:
    """Return the operations that write the snapshot that is due, together with the new entries."""
    snapshot = view.snapshot()
    if snapshot is None:
        return []
    # Segments repeat the log until it is trimmed. Compressed, they cost a third of that for ordinary text.
    written: Sequence[Operation] = [
        Put(SEGMENTS, key, zlib.compress(body, 1), {"task": view.task_id}) for key, body in snapshot.segments.items()
    ]
    removed = [Delete(SEGMENTS, key) for key in snapshot.obsolete]
    return [Put(SNAPSHOTS, view.task_id, snapshot.index), *written, *removed]
