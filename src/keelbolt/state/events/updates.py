"""Updates of tasks and steering events: two logs of a session. A cursor is the id of the last item seen."""

from __future__ import annotations

from typing import Any

from keelbolt.kernel import Append, Draft, Entry, Operation, Scope
from keelbolt.state.codec import decode, dump_fields
from keelbolt.state.engine.saving import Saved
from keelbolt.state.events.steering import checked
from keelbolt.state.events.streams import read_some
from keelbolt.state.families import STEERING, UPDATES
from keelbolt.state.names import name
from keelbolt.state.store_context import StoreContext, wanted


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
