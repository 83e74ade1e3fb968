"""What the services keep, and where: the collections and the log of one tenant's partition."""

from __future__ import annotations

from keelbolt.state.names import digest, name
from keelbolt.storage import Collection, Index

SESSIONS = "adk_sessions"  # (app, user, session): its state
EVENTS = "adk_events"  # log; stream = (app, user, session)
STATES = "adk_states"  # (app) and (app, user): what their sessions share
FILES = "adk_files"  # (app, user, session or user:, filename): how many versions it has
ARTIFACTS = "adk_artifacts"  # (app, user, session or user:, filename, version)
MEMORIES = "adk_memories"  # (app, user, session, event)
FORGOTTEN = "adk_forgotten"  # (app, user, event): deleted, so that a session does not bring it back

_LONG_TENANT = 170  # the name of a partition has at most 200 bytes

SESSION_FAMILIES = (
    # ``updated`` is in seconds since 1970; ``owner`` = (app, user).
    Collection(
        SESSIONS,
        fields={"app": str, "owner": str, "updated": float},
        indexes=(Index("app", equal=("app",), order="updated"), Index("owner", equal=("owner",), order="updated")),
    ),
    Collection(STATES),
)
ARTIFACT_FAMILIES = (
    Collection(FILES, fields={"scope": str, "versions": int}, indexes=(Index("scope", equal=("scope",)),)),
    # ``blob`` is the digest of the blob that has the bytes.
    Collection(
        ARTIFACTS,
        fields={"file": str, "version": int, "blob": str},
        indexes=(Index("file", equal=("file",), order="version"),),
    ),
)
MEMORY_FAMILIES = (
    Collection(
        MEMORIES,
        fields={"owner": str, "session": str, "event": str, "at": float},
        indexes=(
            Index("owner", equal=("owner",), order="at"),
            Index("session", equal=("session",)),
            Index("event", equal=("event",)),
        ),
    ),
    Collection(FORGOTTEN),
)
FAMILIES = (*SESSION_FAMILIES, *ARTIFACT_FAMILIES, *MEMORY_FAMILIES)


def partition_of(tenant: str) -> str:
    """The partition of a tenant's apps. No caller of a server has a partition whose name begins so."""
    short = name(tenant)
    return f"~adk/{short if len(short) <= _LONG_TENANT else digest(tenant.encode('utf-8', 'surrogatepass'))}"
