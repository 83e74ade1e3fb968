"""Snapshots: the context with which a task is started.

A background task runs beside the conversation, perhaps for hours or later in another process: it gets a deep copy that
is pure JSON. A foreground task is part of the conversation: it gets a shallow copy with the live objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel

from keelbolt.state.sessions.context import SessionContext, visible_results
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskType

Propagation = Literal["cascade", "isolate"]

_DROPPED = object()
_LASTING = (str, int, float, bytes, date, time, timedelta, UUID, Decimal)  # types that the store's codec preserves


def plain_copy(value: Any) -> Any:
    """Return a deep copy as JSON data. Values that JSON can't hold, and circular references, are omitted."""
    copied = _copy(value, ())
    return None if copied is _DROPPED else copied


def plain_dict(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the `plain_copy` of a dictionary."""
    copied = _copy(value, ())
    assert isinstance(copied, dict)
    return copied


def _copy(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, Enum):
        return _copy(value.value, above)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, date):  # includes datetime
        return value.isoformat()
    if id(value) in above:
        return _DROPPED
    above = (*above, id(value))
    if isinstance(value, BaseModel):
        return _copy_model(value, above)
    if isinstance(value, Mapping):
        pairs = ((str(key), _copy(item, above)) for key, item in value.items())
        return {key: item for key, item in pairs if item is not _DROPPED}
    if isinstance(value, list | tuple | set | frozenset):
        return [item for item in (_copy(item, above) for item in value) if item is not _DROPPED]
    return _DROPPED


def _copy_model(model: BaseModel, above: tuple[int, ...]) -> Any:
    try:
        return _copy(model.model_dump(mode="json"), above)
    except (ValueError, TypeError):  # a field that pydantic can't convert to JSON
        return _copy(model.model_dump(), above)


def storable(value: Any) -> Any:
    """Return a deep copy that the store preserves, with bytes, dates, tuples and sets; live objects are omitted."""
    copied = _store(value, ())
    return None if copied is _DROPPED else copied


def _store(value: Any, above: tuple[int, ...]) -> Any:
    if isinstance(value, Enum | BaseModel) or value is None:
        return _copy(value, above)
    if isinstance(value, _LASTING):
        return value
    if id(value) in above:
        return _DROPPED
    above = (*above, id(value))
    if isinstance(value, Mapping):
        pairs = ((_store(key, above), _store(item, above)) for key, item in value.items())
        return {key: item for key, item in pairs if key is not _DROPPED and item is not _DROPPED}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(item for item in (_store(item, above) for item in value) if item is not _DROPPED)
    return _DROPPED


def take_snapshot(
    context: SessionContext,
    *,
    kind: type[TaskContextSnapshot] = TaskContextSnapshot,
    task_type: TaskType,
    session_id: str,
    task_id: str,
    spawned_from_task_id: str,
    trace_id: str | None = None,
    spawned_from_event_id: str | None = None,
    spawn_reason: str | None = None,
    query: str | None = None,
    propagate_on_cancel: Propagation = "cascade",
    notify_on_complete: bool = True,
) -> TaskContextSnapshot:
    """Return the snapshot for a task that is about to start, as an instance of ``kind``."""
    if task_type == TaskType.BACKGROUND:
        llm_context = plain_dict({**context.llm_context, **visible_results(context)})
        tool_context = plain_dict(context.tool_context)
        memory, artifacts = plain_dict(context.memory), plain_copy(context.artifacts)
    else:
        llm_context = {**context.llm_context, **visible_results(context)}
        tool_context = dict(context.tool_context)
        memory, artifacts = dict(context.memory), list(context.artifacts)
    return kind(
        session_id=session_id,
        task_id=task_id,
        trace_id=trace_id,
        spawned_from_task_id=spawned_from_task_id,
        spawned_from_event_id=spawned_from_event_id,
        spawn_reason=spawn_reason,
        query=query,
        propagate_on_cancel=propagate_on_cancel,
        notify_on_complete=notify_on_complete,
        context_version=context.version,
        context_hash=context.context_hash,
        llm_context=llm_context,
        tool_context=tool_context,
        memory=memory,
        artifacts=artifacts,
    )
