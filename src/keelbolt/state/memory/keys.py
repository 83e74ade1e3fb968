"""The key of a memory (tenant, user, session), resolved from a tool context."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keelbolt.state.memory.config import MemoryIsolation


@dataclass(frozen=True, slots=True)
class MemoryKey:
    """A memory key."""

    tenant_id: str
    user_id: str
    session_id: str

    def composite(self) -> str:
        """``tenant:user:session``, unique for each key.

        A colon in tenant or user is written %3A, a percent sign %25.
        """
        return f"{_escaped(self.tenant_id)}:{_escaped(self.user_id)}:{self.session_id}"


def resolve_key(
    tool_context: Mapping[str, Any] | None, isolation: MemoryIsolation, *, explicit: MemoryKey | None = None
) -> MemoryKey | None:
    """Return the key, or None if there is no session and one is required."""
    if explicit is not None:
        return explicit
    found = tool_context or {}
    session = _text(_at(found, isolation.session_key))
    if session:
        tenant = _text(_at(found, isolation.tenant_key))
        user = _text(_at(found, isolation.user_key))
        return MemoryKey(
            tenant_id="default" if tenant is None else tenant,
            user_id="anonymous" if user is None else user,
            session_id=session,
        )
    return None if isolation.require_explicit_key else MemoryKey("default", "anonymous", uuid.uuid4().hex)


def _at(found: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value).strip()


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")
