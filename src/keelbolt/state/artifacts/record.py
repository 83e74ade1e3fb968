"""The stored form of an artifact, its id, and the totals of its session and trace.

An id is ``{namespace}_{hash}``, where the hash includes the owner. Equal bytes of two sessions have two ids, so that
neither session can read, keep or delete the other's artifact. The totals decide how much must be removed for a new
artifact; their functions are pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from keelbolt.errors import ArtifactTooLarge
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.records import Fields, Insert, Record
from keelbolt.state import codec
from keelbolt.state.families import ARTIFACTS
from keelbolt.state.names import name

KV_NAMESPACE = "session_kv"  # values of ctx.kv that are too long for the memory state
NEVER = 2**62  # microseconds; added to the rank of ctx.kv values, so that they rank after all removable artifacts


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """One artifact. ``version`` is that of its record, 0 if it is not stored yet."""

    id: str
    sha256: str
    size: int
    owner: Owner
    scoped: bool
    namespace: str | None
    mime_type: str | None
    filename: str | None
    source: dict[str, Any]
    created: int  # microseconds since 1970
    rank: int
    expires: int
    version: int = 0

    @property
    def pinned(self) -> bool:
        """Whether the artifact never expires and is never removed to make room for others."""
        return self.namespace == KV_NAMESPACE

    @property
    def groups(self) -> dict[Group, str]:
        """The groups whose limits include this artifact."""
        trace: dict[Group, str] = {} if self.owner.trace is None else {"trace": self.owner.trace}
        return {"session": self.owner.session, **trace}

    @property
    def total(self) -> Total:
        return Total(1, self.size)

    def same(self, other: ArtifactRecord) -> bool:
        """Return whether both have the same bytes, owner and namespace."""
        mine, its = self.owner, other.owner
        return (self.sha256, self.namespace) == (other.sha256, other.namespace) and (
            (mine.tenant_id, mine.user_id, mine.session_id) == (its.tenant_id, its.user_id, its.session_id)
        )

    # ------------------------------------------------------------------------------------------------------ storing

    def insert(self) -> Iterator[Insert | Attach]:
        """Yield the operations that write the record and attach its blob."""
        body = codec.encode({**self.described(), "created": self.created})
        yield Insert(ARTIFACTS, key(self.id), body, self._fields())
        yield Attach(self.sha256, holder(self.id))

    def detach(self) -> Detach:
        """Return the operation that detaches its blob."""
        return Detach(self.sha256, holder(self.id))

    def _fields(self) -> Fields:
        return {
            "session": None if self.owner.session_id is None else name(self.owner.session_id),
            "session_group": self.owner.session,
            "trace_group": self.owner.trace,
            "rank": self.rank,
            "expires": self.expires,
            "size": self.size,
        }

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the artifact of a record."""
        body = codec.decode(record.body)
        scope = body["scope"]
        rank, expires = record.fields["rank"], record.fields["expires"]
        assert isinstance(rank, int)
        assert isinstance(expires, int)
        return cls(
            id=body["id"],
            sha256=body["sha256"],
            size=body["size_bytes"],
            owner=Owner(**scope) if scope else Owner(),
            scoped=scope is not None,
            namespace=body["namespace"],
            mime_type=body["mime_type"],
            filename=body["filename"],
            source=body["source"],
            created=body["created"],
            rank=rank,
            expires=expires,
            version=record.version,
        )

    def described(self) -> dict[str, Any]:
        """Return the fields of its ArtifactRef."""
        return {
            "id": self.id,
            "mime_type": self.mime_type,
            "size_bytes": self.size,
            "filename": self.filename,
            "sha256": self.sha256,
            "scope": {field: getattr(self.owner, field) for field in SCOPE_FIELDS} if self.scoped else None,
            "namespace": self.namespace,
            "source": self.source,
        }


def key(artifact_id: str) -> str:
    """Return the key of the artifact's record."""
    return name(artifact_id)


def holder(artifact_id: str) -> str:
    """Return the holder name under which the artifact attaches its blob."""
    return f"artifact/{name(artifact_id)}"


# ------------------------------------------------------------------------------------------------------------------ ids


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


# --------------------------------------------------------------------------------------------------------------- totals


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
