"""The data of sessions: the families of one tenant's partition. Needs no SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from keelbolt.data.display import plain_body
from keelbolt.data.families import EVERYTHING, ByField, Face, Family, Subject, SubjectLocation
from keelbolt.data.retention import FacePolicy, retain_old
from keelbolt.kernel import Collection, Index, Kernel, Record, Scope
from keelbolt.state.names import name, tenant_partition

SESSIONS = "openai_sessions"  # session: how many items it ever had, and its last write
ITEMS = "openai_items"  # (session, number)

PARTITIONS = "~openai/"
DEFAULT_TENANT = "default"
PLAIN, SEALED = b"j", b"s"  # the first byte of an item


def partition_of(tenant: str) -> str:
    """Return the partition of a tenant's sessions. No caller of a server has a partition with this prefix."""
    return tenant_partition(PARTITIONS, tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIRetention(FacePolicy):
    """How long sessions are kept after their last change, in seconds; None: for ever."""

    face: ClassVar[str] = "openai_agents"

    openai_sessions: float | None = None


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    if subject.kind == "session":
        yield SubjectLocation(
            kernel.scoped(partition_of(subject.tenant or DEFAULT_TENANT)), "session", name(subject.id)
        )
    elif subject.kind == "tenant":
        yield SubjectLocation(kernel.scoped(partition_of(subject.id)), EVERYTHING)


async def _retain(kernel: Kernel, policy: OpenAIRetention, /, *, dry: bool) -> dict[str, int]:
    return await retain_old(kernel, FACE, FACE.families[0], policy.openai_sessions, dry=dry)


async def _session(_scope: Scope, record: Record) -> Any:
    return {"session": _named(record)[1], "items": record.fields["items"]}


async def _item(_scope: Scope, record: Record) -> Any:
    kind, body = record.body[:1], record.body[1:]
    return plain_body(body) if kind == PLAIN else {"encrypted": len(body)}


def _expires(record: Record) -> float | None:
    expires = record.fields.get("expires")
    return None if not isinstance(expires, int) else expires / 1_000_000


def _named(record: Record) -> tuple[str, str]:
    return "session", record.body.decode("utf-8", "surrogatepass")


FACE = Face(
    name="openai_agents",
    kinds=("session", "tenant"),
    locate=_locate,
    prefix=PARTITIONS,
    policy=OpenAIRetention,
    retain=_retain,
    families=(
        # ``updated`` and ``expires`` are in microseconds since 1970.
        Family(
            title="sessions",
            collection=Collection(
                SESSIONS,
                fields={"items": int, "updated": int, "expires": int},
                indexes=(Index("updated", order="updated"),),
                expiring=True,
            ),
            subject="session",
            age="updated",
            named=_named,
            value=_session,
            expires=_expires,
        ),
        Family(
            title="items",
            collection=Collection(
                ITEMS,
                fields={"session": str, "number": int, "expires": int},
                indexes=(Index("session", equal=("session",), order="number"), Index("key")),
                expiring=True,
            ),
            found_by={"session": ByField("session")},
            value=_item,
            expires=_expires,
        ),
    ),
)
FAMILIES = tuple(family.collection for family in FACE.families)
