"""What sessions keep, and where: the collections of one tenant's partition."""

from __future__ import annotations

from keelbolt.state.names import digest, name
from keelbolt.storage import Collection, Index

SESSIONS = "openai_sessions"  # session: how many items it ever had, and when it was last written
ITEMS = "openai_items"  # (session, number)

_LONG_TENANT = 170  # the name of a partition has at most 200 bytes

FAMILIES = (
    # ``updated`` is in microseconds since 1970.
    Collection(
        SESSIONS,
        fields={"items": int, "updated": int},
        indexes=(Index("updated", order="updated"),),
        expiring=True,
    ),
    Collection(
        ITEMS,
        fields={"session": str, "number": int},
        indexes=(Index("session", equal=("session",), order="number"),),
        expiring=True,
    ),
)


def partition_of(tenant: str) -> str:
    """The partition of a tenant's sessions. No caller of a server has a partition whose name begins so."""
    short = name(tenant)
    return f"~openai/{short if len(short) <= _LONG_TENANT else digest(tenant.encode('utf-8', 'surrogatepass'))}"
