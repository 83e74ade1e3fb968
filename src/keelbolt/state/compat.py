"""Support for stores with older method names: each function uses the new name if the store has it, else the old one.

| method | older name |
|---|---|
| `save_update` | `save_task_update` |
| `list_updates` | `list_task_updates` |
| `save_planner_event(trace_id, event)` | `save_event(trace_id, event)` |
| `list_planner_events` | `get_events` |
"""

from __future__ import annotations

from typing import Any

from keelbolt.state.artifacts.protocol import discover_artifact_store

__all__ = [
    "get_artifact_store",
    "list_planner_events_compat",
    "list_steering_compat",
    "list_tasks_compat",
    "list_updates_compat",
    "maybe_save_remote_binding",
    "save_planner_event_compat",
    "save_steering_compat",
    "save_task_compat",
    "save_update_compat",
]

get_artifact_store = discover_artifact_store


async def save_update_compat(store: object, update: Any) -> None:
    """Save an update."""
    await _method(store, "save_update", "save_task_update")(update)


async def list_updates_compat(
    store: object, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
) -> list[Any]:
    """Return updates of a session."""
    method = _method(store, "list_updates", "list_task_updates")
    return list(await method(session_id, task_id=task_id, since_id=since_id, limit=limit))


async def save_task_compat(store: object, state: Any) -> None:
    """Save a task."""
    await _method(store, "save_task")(state)


async def list_tasks_compat(store: object, session_id: str) -> list[Any]:
    """Return the tasks of a session."""
    return list(await _method(store, "list_tasks")(session_id))


async def save_steering_compat(store: object, event: Any) -> None:
    """Save a steering event."""
    await _method(store, "save_steering")(event)


async def list_steering_compat(
    store: object, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
) -> list[Any]:
    """Return steering events of a session."""
    method = _method(store, "list_steering")
    return list(await method(session_id, task_id=task_id, since_id=since_id, limit=limit))


async def save_planner_event_compat(store: object, trace_id: str, event: Any) -> None:
    """Save a planner event. The old ``save_event`` took two arguments; the current one rejects planner events."""
    method = getattr(store, "save_planner_event", None)
    if method is None:
        method = _method(store, "save_event", missing="save_planner_event")
        try:
            call = method(trace_id, event)
        except TypeError as error:
            raise TypeError(_lacks("save_planner_event")) from error
        await call
        return
    await method(trace_id, event)


async def list_planner_events_compat(store: object, trace_id: str) -> list[Any]:
    """Return the planner events of a trace."""
    return list(await _method(store, "list_planner_events", "get_events")(trace_id))


async def maybe_save_remote_binding(store: Any | None, binding: Any) -> None:
    """Save a binding, if there is a store."""
    if store is not None:
        await store.save_remote_binding(binding)


def _method(store: object, *names: str, missing: str | None = None) -> Any:
    for name in names:
        if (method := getattr(store, name, None)) is not None:
            return method
    raise TypeError(_lacks(missing or "/".join(names)))


def _lacks(names: str) -> str:
    return f"StateStore missing {names}"
