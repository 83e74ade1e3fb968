"""Artifact ids: ``{namespace}_{hash}``, where the hash includes the owner.

Equal bytes of two sessions have two ids, so that neither session can read, keep or delete the other's artifact.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HASH_CHARS = (12, 24, 64)  # the first length whose id is free or names the same artifact
NAMESPACE_CHARS = 64
SCOPE_FIELDS = ("tenant_id", "user_id", "session_id", "trace_id")

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Owner:
    """The scope of an artifact as plain fields."""

    tenant_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    trace_id: str | None = None

    @classmethod
    def of(cls, scope: Any | None) -> Owner:
        """Return the owner of an ArtifactScope (penguiflow's or Keelbolt's) or of None."""
        return cls(*(getattr(scope, field, None) for field in SCOPE_FIELDS))

    @property
    def session(self) -> str:
        """The group for session limits. Artifacts without a session form one group."""
        return _digest("session", self.tenant_id, self.user_id, self.session_id)

    @property
    def trace(self) -> str | None:
        """The group for trace limits; None without a trace."""
        return None if self.trace_id is None else _digest("trace", self.tenant_id, self.user_id, self.trace_id)

    def matches(self, wanted: Owner) -> bool:
        """Return whether this owner has every field that is set in ``wanted``."""
        return all(getattr(wanted, field) in (None, getattr(self, field)) for field in SCOPE_FIELDS)


def artifact_ids(digest: str, namespace: str | None, owner: Owner) -> Iterator[str]:
    """Yield the possible ids for these bytes, the preferred one first."""
    prefix = sanitize_namespace(namespace) or "art"
    hashed = _digest(digest, namespace, owner.tenant_id, owner.user_id, owner.session_id)
    for chars in HASH_CHARS:
        yield f"{prefix}_{hashed[:chars]}"


def sanitize_namespace(namespace: str | None) -> str | None:
    """Return the namespace reduced to the characters allowed in an id; None if none remain."""
    if namespace is None:
        return None
    return _NOT_IN_IDS.sub("_", namespace).strip("_-")[:NAMESPACE_CHARS] or None


def _digest(*parts: str | None) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
