"""Data of sessions: tasks, their updates, and steering events; and the lists of sessions and traces.

The context with which a task was started is a separate record, written only when it changes: a task that reports
progress rewrites a few hundred bytes, regardless of the size of its context. The order of tasks is a log of their ids.

Updates and steering events are two logs of a session. A cursor is the id of the last item seen.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import Any

from keelbolt.errors import InvalidState
from keelbolt.kernel import Append, Draft, Entry, FieldIn, Operation, Put, Query, Record, Scope
from keelbolt.state.codec import decode, dump_fields
from keelbolt.state.engine.writes import Saved
from keelbolt.state.events.steering import checked
from keelbolt.state.events.streams import read_all, read_some
from keelbolt.state.families import SESSIONS, SNAPSHOTS, STEERING, TASK_ORDER, TASKS, TRACES, UPDATES
from keelbolt.state.names import digest, joined, name
from keelbolt.state.store_context import StoreContext, wanted

KNOWN = 4096  # tasks whose stored context this process remembers


class Tasks:
    """``save_task`` and ``list_tasks``."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk
        self._known: OrderedDict[str, str] = OrderedDict()  # key → digest of the written context

    def save(self, state: Any, *, checks: tuple[Operation, ...] = ()) -> Saved:
        """Save the current state of the task, if these checks hold."""
        wanted(state, "TaskState", "task_id", "session_id", "context_snapshot", "__dataclass_fields__")
        fields = dump_fields(state)
        snapshot = fields.pop("context_snapshot")
        wanted(snapshot, "TaskContextSnapshot", "model_dump")
        context = self._desk.encode(dump_fields(snapshot))
        body = self._desk.encode(fields)
        session, key, mark = name(state.session_id), joined(state.session_id, state.task_id), digest(context)
        task = Put(TASKS, key, body, {"session": session, "saved": self._desk.tick()})
        lives, notes = self._desk.note(session_id=state.session_id)
        whole: tuple[Operation, ...] = (
            task,
            Put(SNAPSHOTS, key, context, {"session": session, "hash": mark}),
            Append(TASK_ORDER, session, (Draft("task", name(state.task_id).encode(), name(state.task_id)),)),
            *notes,
        )
        operations, alternative = whole, None
        if self._known.get(key) == mark:
            # Refused if another process changed or removed the context; then the whole task is written.
            operations, alternative = (FieldIn(SNAPSHOTS, key, "hash", (mark,)), task, *notes), whole
        self._know(key, mark)
        return self._desk.save(
            "save_task",
            operations,
            len(body) + len(context),
            trace_id=state.trace_id,
            vital=True,
            alternative=alternative,
            checks=checks,
            lives=lives,
        )

    async def load(self, session_id: str) -> list[Any]:
        """Return the tasks of a session in order of arrival. After an erasure, the session starts empty."""
        session = name(session_id)

        async def read(scope: Scope) -> list[tuple[Any, Any]]:
            tasks, snapshots, came, _ = await asyncio.gather(
                _all(scope, TASKS, session),
                _all(scope, SNAPSHOTS, session),
                read_all(scope, TASK_ORDER, session),
                self._desk.session(session_id).begin(scope),
            )
            contexts = {record.key: record for record in snapshots}
            if missing := [record.key for record in tasks if record.key not in contexts]:  # saved between the reads
                later = await scope.get_many(SNAPSHOTS, missing)
                contexts.update({record.key: record for record in later if record is not None})
            order = {entry.data.decode(): entry.seq for entry in came}
            tasks.sort(key=lambda record: order.get(record.key.rpartition("/")[2], math.inf))
            return [(decode(record.body), _context(contexts.get(record.key))) for record in tasks]

        found = await self._desk.load("list_tasks", read, key=session_id)
        return [self._task(fields, context) for fields, context in found]

    def _task(self, fields: dict[str, Any], context: dict[str, Any] | None) -> Any:
        ids = {"session_id": fields["session_id"], "task_id": fields["task_id"]}
        snapshot = self._desk.types.make("TaskContextSnapshot", context if context is not None else ids)
        return self._desk.types.make("TaskState", {**fields, "context_snapshot": snapshot})

    def _know(self, key: str, mark: str) -> None:
        self._known[key] = mark
        self._known.move_to_end(key)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)


def _context(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    context = decode(record.body)
    if not isinstance(context, dict):
        raise InvalidState(f"the record {record.key!r} is not the context of a task")
    return context


async def _all(scope: Scope, collection: str, session: str) -> list[Record]:
    return [record async for record in scope.scan(Query(collection, {"session": session}), page=1000)]


# -------------------------------------------------------------------------------------------------------------- updates


class SessionLog:
    """A log of items with an id that is unique in the session."""

    def __init__(self, desk: StoreContext, log: str, kind: str, id_field: str, *, save: str, load: str) -> None:
        self._desk = desk
        self._log = log
        self._kind = kind
        self._id = id_field
        self._save = save
        self._load = load

    def append(self, item: Any, *, behind: bool, checks: tuple[Operation, ...] = (), invalid: Any = None) -> Saved:
        """Save an item, with its ``invalid`` reasons, if these checks hold; a repeat of its id is the same item."""
        wanted(item, self._kind, "session_id", "task_id", self._id)
        body = self._desk.encode({**dump_fields(item), **({"invalid": invalid} if invalid else {})})
        draft = Draft(name(item.task_id), body, name(getattr(item, self._id)))
        lives, notes = self._desk.note(session_id=item.session_id)
        operations: tuple[Operation, ...] = (Append(self._log, name(item.session_id), (draft,)), *notes)
        return self._desk.save(
            self._save,
            operations,
            len(body),
            trace_id=getattr(item, "trace_id", None),
            key=item.session_id,
            behind=behind,
            checks=checks,
            lives=lives,
        )

    async def list(self, session_id: str, task_id: str | None, since_id: str | None, limit: int) -> list[Any]:
        """Return the first ``limit`` items after the cursor; without a cursor, the last ``limit``."""
        task = name(task_id) if task_id is not None else None

        def of_task(entry: Entry) -> bool:
            return entry.kind == task

        async def read(scope: Scope) -> list[Any]:
            entries = await read_some(
                scope,
                self._log,
                name(session_id),
                since=name(since_id) if since_id is not None else None,
                limit=limit,
                keep=of_task if task is not None else None,
            )
            return [decode(entry.data) for entry in entries]

        stored = await self._desk.load(self._load, read, key=session_id)
        return [self._desk.types.make(self._kind, fields) for fields in stored]


class Updates(SessionLog):
    """``save_update`` and ``list_updates``."""

    def __init__(self, desk: StoreContext) -> None:
        super().__init__(desk, UPDATES, "StateUpdate", "update_id", save="save_update", load="list_updates")

    def save(self, update: Any, *, checks: tuple[Operation, ...] = ()) -> Saved:
        """Save an update, if these checks hold."""
        return self.append(update, behind=True, checks=checks)


class SteeringLog(SessionLog):
    """``save_steering`` and ``list_steering``. Stored events are truncated."""

    def __init__(self, desk: StoreContext) -> None:
        super().__init__(desk, STEERING, "SteeringEvent", "event_id", save="save_steering", load="list_steering")

    def save(self, event: Any) -> Saved:
        """Save a steering event; ``invalid`` beside its fields lists why it is not valid for its type."""
        wanted(event, "SteeringEvent", "event_type", "payload", "model_copy")
        sanitized, invalid = checked(event)
        return self.append(sanitized, behind=False, invalid=invalid)


# -------------------------------------------------------------------------------------------------------- session index


class SessionIndex:
    """Reads the notes that each process writes when it first saves data of a session or trace."""

    def __init__(self, desk: StoreContext) -> None:
        self._desk = desk

    async def sessions(self, limit: int) -> list[str]:
        """Return the sessions with the latest notes, the newest first."""
        return await self._newest("list_sessions", SESSIONS, limit)

    async def traces(self, limit: int) -> list[str]:
        """Return the traces with the latest notes, the newest first."""
        return await self._newest("list_all_traces", TRACES, limit)

    async def _newest(self, method: str, collection: str, limit: int) -> list[str]:
        query = Query(collection, order="seen", newest_first=True)

        async def read(scope: Scope) -> list[str]:
            return [decode(record.body) async for record in scope.scan(query, limit=limit, page=1000)]

        return await self._desk.load(method, read)
