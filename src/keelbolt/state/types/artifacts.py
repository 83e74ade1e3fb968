"""References to artifacts, their owners, and their retention."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


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
