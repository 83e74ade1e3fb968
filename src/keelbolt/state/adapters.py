"""Stores built on other stores: sessions on a store with three methods, and a combination of two stores.

`StateStoreSessionAdapter` needs only the three basic methods. It stores tasks, updates and steering as events of
``session:{id}``. Repeated saves are listed once. A list reads the whole history of its session, because the three
methods offer no other read; a store with `save_task` and the other methods needs no adapter.

`HybridStateStore` combines a fast store for short-lived, often-read data, and a durable one for the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from keelbolt.state import codec
from keelbolt.state.classes import Choice, Types
from keelbolt.state.events.steering import checked
from keelbolt.state.protocols import SupportsEvents, missing_capabilities

TASK, UPDATE, STEERING = "session.task", "session.update", "session.steering"


class StateStoreSessionAdapter:
    """Implements `SupportsTasks` and `SupportsSteering` on any store of events."""

    def __init__(
        self, store: SupportsEvents, *, types: Choice = "auto", clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._types = Types(types)
        self._clock = clock
        self._last = 0.0

    async def save_task(self, state: Any) -> None:
        """Save the current state of the task."""
        await self._save(state.session_id, TASK, state.task_id, state)

    async def save_update(self, update: Any) -> None:
        """Save an update; a repeat of its id is the same update."""
        await self._save(update.session_id, UPDATE, update.task_id, update)

    async def save_steering(self, event: Any) -> None:
        """Save a steering event, truncated to the size limits."""
        await self._save(event.session_id, STEERING, event.task_id, checked(event)[0])

    async def list_tasks(self, session_id: str) -> Sequence[Any]:
        """Return the tasks of the session in order of arrival."""
        latest = {payload["task_id"]: payload for payload in await self._load(session_id, TASK)}
        return [self._task(payload) for payload in latest.values()]

    async def list_updates(
        self, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> Sequence[Any]:
        """Return updates of the session: the first after ``since_id``, or the last ones without it."""
        found = _page(await self._load(session_id, UPDATE), "update_id", task_id, since_id, limit)
        return [self._types.make("StateUpdate", payload) for payload in found]

    async def list_steering(
        self, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> Sequence[Any]:
        """Return steering events of the session: the first after ``since_id``, or the last ones without it."""
        found = _page(await self._load(session_id, STEERING), "event_id", task_id, since_id, limit)
        return [self._types.make("SteeringEvent", payload) for payload in found]

    async def _save(self, session_id: str, kind: str, task_id: str, value: Any) -> None:
        # Histories are ordered by time, and an update may have been created before one that is already listed.
        self._last = max(self._clock(), self._last)
        event = self._types.StoredEvent(
            trace_id=_trace(session_id),
            ts=self._last,
            kind=kind,
            node_name=None,
            node_id=task_id,
            payload=json.loads(codec.encode(_fields(value))),
        )
        await self._store.save_event(event)

    async def _load(self, session_id: str, kind: str) -> list[dict[str, Any]]:
        history = await self._store.load_history(_trace(session_id))
        found = [event.payload for event in history if event.kind == kind and isinstance(event.payload, Mapping)]
        return [codec.decode(json.dumps(dict(payload)).encode()) for payload in found]

    def _task(self, payload: dict[str, Any]) -> Any:
        times = {name: datetime.fromisoformat(payload[name]) for name in ("created_at", "updated_at")}
        snapshot = self._types.make("TaskContextSnapshot", payload["context_snapshot"])
        return self._types.make("TaskState", {**payload, **times, "context_snapshot": snapshot})


def _trace(session_id: str) -> str:
    return f"session:{session_id}"


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields in the form that other readers of these events expect: times as text, models as objects."""
    fields = codec.dump_fields(value)
    for name, item in fields.items():
        if isinstance(item, datetime):
            fields[name] = item.isoformat()
        elif isinstance(item, BaseModel):
            fields[name] = _fields(item)
    return fields


def _page(
    payloads: list[dict[str, Any]], id_field: str, task_id: str | None, since_id: str | None, limit: int
) -> list[dict[str, Any]]:
    once: dict[str, dict[str, Any]] = {}
    for payload in payloads:
        once.setdefault(payload[id_field], payload)
    known = since_id is not None and since_id in once
    ids = list(once)
    rest = ids[ids.index(str(since_id)) + 1 :] if known else ids
    found = [once[id_] for id_ in rest if task_id is None or once[id_]["task_id"] == task_id]
    return found[:limit] if known else found[max(0, len(found) - limit) :]


# --------------------------------------------------------------------------------------------------------------- hybrid


FAST = ("save_planner_state", "load_planner_state", "save_memory_state", "load_memory_state")
FAST_TOO = (
    "load_memory_version",
    "take_planner_state",
    "list_pauses",
    "get_pause",
    "cancel_pause",
)  # if the fast store has it
DURABLE = (
    *(
        "save_event",
        "save_events",
        "save_events_bulk",
        "load_history",
        "iter_history",
        "load_history_page",
        "save_remote_binding",
    ),
    *("find_binding", "list_bindings", "mark_binding_terminal"),
    *("save_task", "list_tasks", "save_update", "list_updates", "save_task_update", "list_task_updates"),
    *("save_steering", "list_steering", "save_trajectory", "get_trajectory", "list_traces"),
    *("save_planner_event", "list_planner_events", "get_events"),
)


class HybridStateStore:
    """Keeps pauses and memory in ``fast``, everything else in ``durable``.

    Any two stores can be combined. A method that the durable store lacks is missing here too.

        store = HybridStateStore(StateStore("postgresql://…"), fast=StateStore("redis://…"))
    """

    def __init__(self, durable: Any, *, fast: Any) -> None:
        missing = missing_capabilities(fast, FAST)
        if missing:
            raise TypeError(f"the fast store must store pauses and memory; these methods are missing: {missing}")
        self.durable = durable
        self.fast = fast
        for name in DURABLE:
            if hasattr(durable, name):
                setattr(self, name, getattr(durable, name))
        for name in (*FAST, *(name for name in FAST_TOO if hasattr(fast, name))):
            setattr(self, name, getattr(fast, name))

    @property
    def artifact_store(self) -> Any | None:
        """The artifact store of the durable store."""
        return getattr(self.durable, "artifact_store", None)

    async def flush(self) -> None:
        """Return when all earlier saves are committed in both stores, also if one of them lost a save."""
        try:
            if hasattr(self.fast, "flush"):
                await self.fast.flush()
        finally:
            if hasattr(self.durable, "flush"):
                await self.durable.flush()

    async def close(self) -> None:
        """Close both stores, the second also if closing the first fails."""
        try:
            if hasattr(self.fast, "close"):
                await self.fast.close()
        finally:
            if hasattr(self.durable, "close"):
                await self.durable.close()

    async def health(self) -> dict[str, Any]:
        """Return the health of each store that reports it."""
        return {
            name: await store.health() if hasattr(store, "health") else None
            for name, store in (("durable", self.durable), ("fast", self.fast))
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
