"""Results of background tasks, and how they are merged into the session's context."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field

from keelbolt.state.sessions.context import SessionContext
from keelbolt.state.types.planner import BackgroundTaskResult
from keelbolt.state.types.tasks import utc_now


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
