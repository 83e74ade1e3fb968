"""Stored data of a flow: its events, its bindings to remote tasks, and its references to artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field


@dataclass(slots=True)
class StoredEvent:
    """A stored event. ``kind`` is an open set; ``trace_id`` is None for events without a trace."""

    trace_id: str | None
    ts: float
    kind: str
    node_name: str | None
    node_id: str | None
    payload: Mapping[str, Any]


@dataclass(slots=True)
class RemoteBinding:
    """A binding of a trace to a remote task; one for each (trace, context or None, task).

    The last seven fields belong to conversations: which session called which skill of the agent, and whether the next
    turn may go to the same remote task (``is_terminal``: no).
    """

    trace_id: str
    context_id: str | None
    task_id: str
    agent_url: str
    router_session_id: str | None = None
    remote_skill: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    last_remote_task_id: str | None = None
    is_terminal: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------------------ artifacts


class ArtifactScope(BaseModel):
    """Whose an artifact is."""

    tenant_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    trace_id: str | None = None


class ArtifactRef(BaseModel):
    """All that is shown of an artifact to a model; its bytes stay in the store."""

    id: str
    mime_type: str | None = None
    size_bytes: int | None = None
    filename: str | None = None
    sha256: str | None = None
    scope: ArtifactScope | None = None
    namespace: str | None = None
    source: dict[str, Any] = Field(default_factory=dict)


class ArtifactRetentionConfig(BaseModel):
    """How long artifacts are kept, and how much of them."""

    ttl_seconds: int = 3600
    max_artifact_bytes: int = 50 * 1024 * 1024
    max_session_bytes: int = 500 * 1024 * 1024
    max_trace_bytes: int = 100 * 1024 * 1024
    max_artifacts_per_trace: int = 100
    max_artifacts_per_session: int = 1000
    cleanup_strategy: Literal["lru", "fifo", "none"] = "lru"
