"""The data of the services: the families of one tenant's partition. Needs no ADK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from keelbolt.data.families import EVERYTHING, ByField, ByScan, Face, Family, Subject, SubjectLocation
from keelbolt.data.retention import FacePolicy, retain_old
from keelbolt.kernel import Collection, Detach, Entry, Index, Kernel, Query, Record, Scope
from keelbolt.state.names import digest, name, tenant_partition

SESSIONS = "adk_sessions"  # (app, user, session): its state
EVENTS = "adk_events"  # log; stream = (app, user, session)
STATES = "adk_states"  # (app) and (app, user): state that their sessions share
FILES = "adk_files"  # (app, user, session or user:, filename): its number of versions
ARTIFACTS = "adk_artifacts"  # (app, user, session or user:, filename, version)
MEMORIES = "adk_memories"  # (app, user, session, event)
FORGOTTEN = "adk_forgotten"  # (app, user, event): deleted; adding the session again does not restore it

PARTITIONS = "~adk/"
DEFAULT_TENANT = "default"
_SESSION_PARTS = 3  # app, user, session
_KEY = Index("key")


def partition_of(tenant: str) -> str:
    """Return the partition of a tenant's apps. No caller of a server has a partition with this prefix."""
    return tenant_partition(PARTITIONS, tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdkRetention(FacePolicy):
    """How long sessions and their memories are kept after the last event, in seconds; None: forever."""

    face: ClassVar[str] = "google_adk"

    adk_sessions: float | None = None


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    """Find the targets of a subject.

    A session is named by its id, or by app/user/id if several users have sessions with the same id.
    """
    scope = kernel.scoped(partition_of(subject.tenant or DEFAULT_TENANT))
    match subject.kind:
        case "session":
            async for key in _sessions(kernel, scope, subject):
                yield SubjectLocation(scope, "session", key)
        case "user":
            yield SubjectLocation(scope, "user", name(subject.id))
        case "tenant":
            yield SubjectLocation(kernel.scoped(partition_of(subject.id)), EVERYTHING)
        case _:
            pass


async def _sessions(kernel: Kernel, scope: Scope, subject: Subject) -> AsyncIterator[str]:
    """Return the keys of all sessions with this id.

    Also finds sessions that ADK deleted: their memories and files remain.
    """
    if subject.id.count("/") == _SESSION_PARTS - 1:
        yield subject.id
    await kernel.declare(*FAMILIES)
    found: set[str] = set()
    for query in (Query(SESSIONS, order="updated"), Query(MEMORIES, order="at"), Query(FILES)):
        async for record in scope.scan(query):
            parts = record.key.split("/")[:_SESSION_PARTS]
            mine = not subject.owner or parts[1] == name(subject.owner)
            if mine and parts[2] == name(subject.id) and (key := "/".join(parts)) not in found:
                found.add(key)
                yield key


async def _retain(kernel: Kernel, policy: AdkRetention, /, *, dry: bool) -> dict[str, int]:
    return await retain_old(kernel, FACE, FACE.families[0], policy.adk_sessions, dry=dry)


def _of_user(record: Record, ref: str) -> bool:
    return record.key.split("/")[1:2] == [ref]


def _blob(record: Record) -> Iterator[Detach]:
    if isinstance(blob := record.fields.get("blob"), str):
        yield Detach(blob, f"{ARTIFACTS}/{record.key}")


def _dedupe(_log: str, entry: Entry) -> str:
    return f"{msgspec.json.decode(entry.data)['id']}/{digest(entry.data)}"


async def _artifact(_scope: Scope, record: Record) -> Any:
    described = msgspec.msgpack.decode(record.body)
    return {**described["version"], "part": msgspec.json.decode(described["part"])}


FACE = Face(
    name="google_adk",
    kinds=("session", "user", "tenant"),
    locate=_locate,
    prefix=PARTITIONS,
    policy=AdkRetention,
    retain=_retain,
    families=(
        # ``updated`` is in seconds since 1970; ``owner`` = (app, user).
        Family(
            title="sessions",
            collection=Collection(
                SESSIONS,
                fields={"app": str, "owner": str, "updated": float},
                indexes=(
                    Index("app", equal=("app",), order="updated"),
                    Index("owner", equal=("owner",), order="updated"),
                    Index("updated", order="updated"),
                ),
            ),
            subject="session",
            found_by={"user": ByScan(Query(SESSIONS, order="updated"), _of_user)},
            age="updated",
            logs=(EVENTS,),
            dedupe=_dedupe,
        ),
        Family(
            title="states",
            collection=Collection(STATES, indexes=(_KEY,)),
            found_by={"user": ByScan(Query(STATES), _of_user)},
        ),
        Family(
            title="files",
            collection=Collection(
                FILES, fields={"scope": str, "versions": int}, indexes=(Index("scope", equal=("scope",)), _KEY)
            ),
            subject="file",
            found_by={"session": ByField("scope"), "user": ByScan(Query(FILES), _of_user)},
        ),
        # ``blob`` is the digest of the blob that contains the bytes.
        Family(
            title="artifacts",
            collection=Collection(
                ARTIFACTS,
                fields={"file": str, "version": int, "blob": str},
                indexes=(Index("file", equal=("file",), order="version"),),
            ),
            found_by={"file": ByField("file")},
            blobs=_blob,
            value=_artifact,
        ),
        Family(
            title="memories",
            collection=Collection(
                MEMORIES,
                fields={"owner": str, "session": str, "event": str, "at": float},
                indexes=(
                    Index("owner", equal=("owner",), order="at"),
                    Index("session", equal=("session",)),
                    Index("event", equal=("event",)),
                    Index("at", order="at"),
                ),
            ),
            found_by={"session": ByField("session"), "user": ByScan(Query(MEMORIES, order="at"), _of_user)},
            age="at",
        ),
        Family(
            title="deleted memories",
            collection=Collection(FORGOTTEN, indexes=(_KEY,)),
            found_by={"user": ByScan(Query(FORGOTTEN), _of_user)},
        ),
    ),
)
_OF = {family.name: family.collection for family in FACE.families}
SESSION_FAMILIES = (_OF[SESSIONS], _OF[STATES])
ARTIFACT_FAMILIES = (_OF[FILES], _OF[ARTIFACTS])
MEMORY_FAMILIES = (_OF[MEMORIES], _OF[FORGOTTEN])
FAMILIES = tuple(_OF.values())
