"""How much a session or a trace holds, and how much of it must go for something new. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, Protocol

from keelbolt.errors import ArtifactTooLarge

Group = Literal["session", "trace"]


class Retention(Protocol):
    """The limits, penguiflow's or ours. A ``ttl_seconds`` of 0 or less is no limit; the others are what they say."""

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
    """So many artifacts, so many bytes."""

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
    """What such a group may hold."""
    if group == "session":
        return Total(retention.max_artifacts_per_session, retention.max_session_bytes)
    return Total(retention.max_artifacts_per_trace, retention.max_trace_bytes)


def check_size(retention: Retention, size: int, groups: tuple[Group, ...]) -> None:
    """Raise ArtifactTooLarge for what could never be kept, whatever were removed for it."""
    if size > retention.max_artifact_bytes:
        raise ArtifactTooLarge(f"an artifact of {size} bytes; one may have {retention.max_artifact_bytes}")
    for group in groups:
        allowed = limit(retention, group)
        if size > allowed.size or allowed.count < 1:
            raise ArtifactTooLarge(
                f"an artifact of {size} bytes; a {group} may hold {allowed.count} artifacts of {allowed.size} bytes"
            )


def excess(held: Total, allowed: Total) -> Total:
    """How many artifacts and bytes are too many."""
    return Total(max(0, held.count - allowed.count), max(0, held.size - allowed.size))
