"""The context of a session, its patches and its snapshots, as values.

All functions are pure: a change returns a new context and leaves the old one unchanged.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from keelbolt.state.types.planner import BackgroundTaskResult, read_results
from keelbolt.state.types.tasks import TaskContextSnapshot, TaskType, utc_now

RESULT_KEY = "background_result"
RESULTS_KEY = "background_results"
Propagation = Literal["cascade", "isolate"]
_DROPPED = object()
# Types that the store's codec preserves.
_LASTING = (str, int, float, bytes, date, time_of_day, timedelta, UUID, Decimal)


@dataclass(slots=True)
class SessionContext:
    """The context of a session.

    ``version`` counts the updates, ``context_hash`` is the hash of ``llm_context``. Results of background tasks are
    stored separately: ``background_results`` holds appended results by task, and ``background_result`` the last result
    merged by REPLACE. Merging changes neither version nor hash.
    """

    llm_context: dict[str, Any] = field(default_factory=dict)
    tool_context: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    background_results: dict[str, BackgroundTaskResult] = field(default_factory=dict)
    background_result: BackgroundTaskResult | None = None
    version: int = 0
    context_hash: str | None = None


def hash_context(llm_context: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of the context as JSON with sorted keys; None if it is not JSON."""
    try:
        return hashlib.sha256(json.dumps(llm_context, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return None


def updated(
    context: SessionContext,
    *,
    llm_context: Mapping[str, Any] | None = None,
    tool_context: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    artifacts: Iterable[Mapping[str, Any]] | None = None,
) -> SessionContext:
    """Return the context with these parts replaced, the next version and a new hash.

    Results of background tasks in ``llm_context`` (where older programs kept them) are moved out of it, so that they do
    not affect the hash.
    """
    new = replace(context, version=context.version + 1)
    if llm_context is not None:
        new.llm_context, found = split_results(llm_context)
        new.background_results = {**context.background_results, **found}
    if tool_context is not None:
        new.tool_context = dict(tool_context)
    if memory is not None:
        new.memory = dict(memory)
    if artifacts is not None:
        new.artifacts = [dict(artifact) for artifact in artifacts]
    new.context_hash = hash_context(new.llm_context)
    return new


def split_results(llm_context: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BackgroundTaskResult]]:
    """Return the context without the results of background tasks, and the results."""
    results: dict[str, BackgroundTaskResult] = {}
    for key in (RESULT_KEY, RESULTS_KEY):
        results.update({result.task_id: result for result in read_results(llm_context.get(key))})
    return {key: value for key, value in llm_context.items() if key not in (RESULT_KEY, RESULTS_KEY)}, results


def consumed(context: SessionContext, task_ids: Iterable[str]) -> tuple[SessionContext, int]:
    """Return the context without the results of these tasks, and the number of removed results."""
    wanted = set(task_ids)
    kept = {task: result for task, result in context.background_results.items() if task not in wanted}
    last = context.background_result
    gone = len(context.background_results) - len(kept)
    if last is not None and last.task_id in wanted:
        last, gone = None, gone + 1
    return replace(context, background_results=kept, background_result=last), gone


def visible_results(context: SessionContext) -> dict[str, Any]:
    """Return the results for a snapshot, under the keys that the model sees."""
    shown: dict[str, Any] = {}
    if context.background_results:
        shown[RESULTS_KEY] = [result.to_payload() for result in context.background_results.values()]
    if context.background_result is not None:
        shown[RESULT_KEY] = context.background_result.to_payload()
    return shown


# -------------------------------------------------------------------------------------------------------------- patches


class MergeStrategy(str, Enum):  # noqa: UP042  (str() of a member must equal that of the specification's enums)
    """APPEND adds to the results, REPLACE overwrites the one result, HUMAN_GATED asks first."""

    APPEND = "append"
    REPLACE = "replace"
    HUMAN_GATED = "human_gated"


class ContextPatch(BaseModel):
    """The result of a background task, and the version and hash of the context that it started from."""

    task_id: str
    spawned_from_event_id: str | None = None
    source_context_version: int | None = None
    source_context_hash: str | None = None
    context_diverged: bool = False
    completed_at: datetime = Field(default_factory=utc_now)
    digest: list[str] = Field(default_factory=list)
    facts: dict[str, Any] = Field(default_factory=dict)
    artifacts: list[dict[str, Any]] = Field(default_factory=list)
    sources: list[dict[str, Any]] = Field(default_factory=list)
    recommended_next_steps: list[str] = Field(default_factory=list)
    assumptions: list[str] = Field(default_factory=list)


@dataclass(slots=True)
class PendingContextPatch:
    """A patch that waits for approval, with everything that is needed to merge it."""

    patch_id: str
    task_id: str
    patch: ContextPatch
    strategy: MergeStrategy
    payload: Any | None = None
    group_id: str | None = None
    created_at: float = field(default_factory=time.time)


def has_diverged(patch: ContextPatch, context: SessionContext) -> bool:
    """Return whether the session's context changed since the task of this patch was spawned."""
    version, digest = patch.source_context_version, patch.source_context_hash
    return (version is not None and version != context.version) or (bool(digest) and digest != context.context_hash)


def judged(patch: ContextPatch, context: SessionContext) -> ContextPatch:
    """Return the patch, marked if the session's context has changed."""
    if not has_diverged(patch, context) or patch.context_diverged:
        return patch
    return patch.model_copy(update={"context_diverged": True})


def result_of(patch: ContextPatch, *, payload: Any | None = None, group_id: str | None = None) -> BackgroundTaskResult:
    """Return the result for the conversation."""
    return BackgroundTaskResult(
        task_id=patch.task_id,
        group_id=group_id,
        status="completed",
        summary=" ".join(patch.digest) if patch.digest else None,
        payload=payload,
        facts=dict(patch.facts),
        artifacts=[dict(artifact) for artifact in patch.artifacts],
        completed_at=patch.completed_at.timestamp(),
    )


def merged(context: SessionContext, result: BackgroundTaskResult, strategy: MergeStrategy) -> SessionContext:
    """Return the context with this result: appended to the others, or replacing the last one."""
    if strategy == MergeStrategy.REPLACE:
        return replace(context, background_result=result)
    return replace(context, background_results={**context.background_results, result.task_id: result})


# ------------------------------------------------------------------------------------------------------------ snapshots


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
    """Return the snapshot for a task that is about to start, as an instance of ``kind``.

    A background task runs beside the conversation, perhaps for hours or later in another process: it gets a deep copy
    that is pure JSON. A foreground task is part of the conversation: it gets a shallow copy with the live objects.
    """
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
    """Return a deep copy that the store preserves, with bytes, dates, tuples and sets; live objects are omitted.

    A model becomes a dict, so a set of models becomes a list, and a key that is a model is omitted.
    """
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
        return {key: item for key, item in pairs if key is not _DROPPED and item is not _DROPPED and _is_hashable(key)}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            items = [item for item in (_store(item, above) for item in value) if item is not _DROPPED]
            return kind(items) if kind in (list, tuple) or all(map(_is_hashable, items)) else items
    return _DROPPED


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
