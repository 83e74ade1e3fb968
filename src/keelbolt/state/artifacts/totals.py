"""Totals of sessions and traces, and how much must be removed for a new artifact. Pure functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, Protocol

from keelbolt.errors import ArtifactTooLarge

Group = Literal["session", "trace"]


class Retention(Protocol):
    """Artifact limits, penguiflow's or Keelbolt's. Only a ``ttl_seconds`` of 0 or less means no limit."""

    @property
    def ttl_seconds(self) -> int: ...
    @property
    def max_artifact_bytes(self) -> int: ...
    @property
    def max_session_bytes(self) -> int: ...
    @property
    def max_trace_bytes(self) -> int: ...
    @property
    def max_artifacts_per_trace(self) -> int: ...
    @property
    def max_artifacts_per_session(self) -> int: ...
    @property
    def cleanup_strategy(self) -> Literal["lru", "fifo", "none"]: ...


@dataclass(frozen=True, slots=True)
class Total:
    """A number of artifacts and bytes."""

    count: int = 0
    size: int = 0

    def __add__(self, other: Total) -> Total:
        return Total(self.count + other.count, self.size + other.size)

    def __sub__(self, other: Total) -> Total:
        return Total(self.count - other.count, self.size - other.size)

    def __bool__(self) -> bool:
        return self.count > 0 or self.size > 0

    def dump(self) -> bytes:
        return json.dumps([self.count, self.size]).encode()

    @classmethod
    def load(cls, body: bytes | None) -> Total:
        return cls() if body is None else cls(*json.loads(body))


def limit(retention: Retention, group: Group) -> Total:
    """Return the limit of such a group."""
    if group == "session":
        return Total(retention.max_artifacts_per_session, retention.max_session_bytes)
    return Total(retention.max_artifacts_per_trace, retention.max_trace_bytes)


def check_size(retention: Retention, size: int, groups: tuple[Group, ...]) -> None:
    """Raise ArtifactTooLarge if an artifact of this size can't fit even into an empty group."""
    if size > retention.max_artifact_bytes:
        raise ArtifactTooLarge(f"the artifact has {size} bytes; the limit is {retention.max_artifact_bytes}")
    for group in groups:
        allowed = limit(retention, group)
        if size > allowed.size or allowed.count < 1:
            raise ArtifactTooLarge(
                f"the artifact has {size} bytes; a {group} may have {allowed.count} artifacts and {allowed.size} bytes"
            )


def excess(held: Total, allowed: Total) -> Total:
    """Return by how many artifacts and bytes the limit is exceeded."""
    return Total(max(0, held.count - allowed.count), max(0, held.size - allowed.size))
