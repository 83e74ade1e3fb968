"""The stored form of an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.records import Fields, Insert, Record
from keelbolt.state import codec
from keelbolt.state.artifacts.ids import SCOPE_FIELDS, Owner
from keelbolt.state.artifacts.totals import Group, Total
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
