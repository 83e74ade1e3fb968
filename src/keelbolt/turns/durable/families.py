"""Collections of turns in the kernel. One partition holds all data of a tenant, so that an iteration is one commit.

``owner`` is the thread, agent or tenant that shares a record, and ``seq`` the record's position within the owner. A
deleted record has the owner DELETED and its deletion time as seq, so that it is not in the indexes of live records, and
one range finds the expired ones. ``place`` is the original seq.

The addresses of turns include the checks that refuse a process that no longer runs its turn.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote

from keelbolt.auth.principal import Principal
from keelbolt.data.families import EVERYTHING, ByAny, ByField, ByScan, Face, Family, Subject, SubjectLocation
from keelbolt.data.retention import FacePolicy
from keelbolt.errors import CommitRefused, TurnTakenOver
from keelbolt.kernel import Collection, Detach, FieldIn, Index, Kernel, Query, Record, Scope
from keelbolt.turns.codec import Kind
from keelbolt.turns.durable.readers import Bytes
from keelbolt.turns.durable.scope import PARTITIONS, name, owner_in, partition_of, tenant_scope, under

COLLECTIONS: dict[Kind, str] = {
    "message": "turn_messages",
    "memory": "turn_memories",
    "thought": "turn_thoughts",
    "tool_call": "turn_tool_calls",
    "retrievable": "turn_retrievables",
    "standing_instruction": "turn_instructions",
}
KIND_OF: dict[str, Kind] = {collection: kind for kind, collection in COLLECTIONS.items()}

STREAMS = "turn_streams"  # owner → its version is the clock that numbers its records: see clocks.py
BYTES = "turn_bytes"  # owner/conduit/turn/id → its blob, and whether a record holds it yet
TURNS = "turn_turns"  # owner/turn → its progress, and its current run
TURN_STATES = ("running", "ended", "failed")
GATES = "turn_gates"  # owner/turn/id → its question and settlement
GATE_LOG = "turn_gates"  # a stream for each gate, which wakes waiting processes
WAKES = "turn_wakes"  # a queue: gates whose tasks must be woken, because they are settled or timed out
TURN_RUNS = "turn_runs"  # owner/turn → a turn that a process runs under a lease; also the queue of its work item
TASK_TURNS = "turn_tasks"  # owner/task → the task's current turn
FORMATS = "turn_formats"  # in the partition FORMAT_PARTITION: the storage format

FORMAT_PARTITION = "~turns"
DELETED = "~deleted"  # no owner's name begins with it


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRetention(FacePolicy):
    """How long turns are kept, in seconds; None: forever.

    ``threads`` counts from a thread's last write: the whole thread is erased. ``turns`` is how long progress and gates
    of a turn are kept after its end. ``deleted`` is how long a deleted record stays.
    """

    face: ClassVar[str] = "turns"

    threads: float | None = None
    turns: float | None = None
    deleted: float | None = None


_OWNER = Index("owner", equal=("owner",), order="seq")
_NAMED = Index("named", equal=("named",), order="place")  # by id (or text), for kinds whose key holds more than that
_NAMED_FIELDS = {"owner": str, "seq": int, "named": str, "place": int}
_CONDUITS = ("media", "retrievable")


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    """Yield the targets of a subject. In a served agent, tenant = the task owner's partition, thread = the context."""
    tenants = [Principal(owner=subject.owner, tenant=subject.tenant).partition]
    match subject.kind:
        case "thread" | "context":
            if subject.kind == "thread" and subject.tenant:
                tenants.append(subject.tenant)
            for tenant in tenants:
                yield SubjectLocation(tenant_scope(kernel, tenant), "owner", name("thread", subject.id))
        case "user":
            who = Principal(owner=subject.id, tenant=subject.tenant)
            yield SubjectLocation(tenant_scope(kernel, who.partition), EVERYTHING)
        case "tenant":
            yield SubjectLocation(tenant_scope(kernel, subject.id), EVERYTHING)
            async for scope in kernel.scopes(prefix=partition_of(Principal(tenant=subject.id).partition)):
                yield SubjectLocation(scope, EVERYTHING)
        case _:
            pass


def _has_owner_in_key(record: Record, owner: str) -> bool:
    return owner_in(record.key) == owner


def _held(record: Record) -> Iterator[Detach]:
    """Yield operations that release a record's blobs. An unreadable record is erased too, but its blobs stay held."""
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        for digest in json.loads(record.body).get("blobs", ()):
            yield Detach(digest, f"{record.collection}/{record.key}")


def _held_bytes(record: Record) -> Iterator[Detach]:
    for digest in Bytes.at(json.loads(record.body)).digests:
        yield Detach(digest, f"{record.collection}/{record.key}")


def _thread(record: Record) -> tuple[str, str] | None:
    """Return the thread that an owner is, or None: agents and tenants are not subjects."""
    kind, _, ref = record.key.partition("/")
    return (kind, unquote(ref, errors="surrogatepass")) if kind == "thread" else None


def _kept(kind: Kind, fields: dict[str, type[str | int | float | bool]], *more: Index) -> Family:
    collection = COLLECTIONS[kind]
    deleted = Query(collection, {"owner": DELETED}, order="seq")
    return Family(
        title=f"{kind.replace('_', ' ')}s".replace("memorys", "memories"),
        collection=Collection(collection, fields=fields, indexes=(_OWNER, *more)),
        found_by={"owner": ByAny((ByField("owner"), ByScan(deleted, _has_owner_in_key)))},
        apart={"owner": ByField("owner")},
        hidden=(deleted,),
        blobs=_held,
    )


async def _expired(kernel: Kernel) -> dict[str, int]:
    from keelbolt.turns.durable.retention import reap_everywhere  # noqa: PLC0415 - it needs the families

    return await reap_everywhere(kernel)


async def _retain(kernel: Kernel, policy: TurnRetention, /, *, dry: bool) -> dict[str, int]:
    from keelbolt.turns.durable.retention import retain  # noqa: PLC0415 - it needs the families

    return await retain(kernel, policy, dry=dry)


_GATES = Family(
    title="gates",
    collection=Collection(
        GATES,
        fields={"secret": str, "state": str, "at": int, "owner": str, "turn": str},
        indexes=(
            Index("secret", equal=("secret",)),
            Index("state", equal=("state",), order="at"),
            Index("owner", equal=("owner",), order="at"),
            Index("turn", equal=("turn",), order="at"),
        ),
    ),
    found_by={"owner": ByField("owner"), "turn": ByField("turn")},
    everything=tuple(Query(GATES, {"state": state}, order="at") for state in ("open", "settled")),
    age="at",
    logs=(GATE_LOG,),
    queues=(WAKES,),
    hides=("secret", "token"),
)
FACE = Face(
    name="turns",
    kinds=("thread", "context", "user", "tenant"),
    locate=_locate,
    prefix=PARTITIONS,
    expired=_expired,
    policy=TurnRetention,
    retain=_retain,
    families=(
        _GATES,
        Family(
            title="turns",
            collection=Collection(
                TURNS,
                fields={"run": int, "iterations": int, "state": str, "at": int, "owner": str},
                indexes=(Index("state", equal=("state",), order="at"), Index("owner", equal=("owner",), order="at")),
            ),
            subject="turn",
            found_by={"owner": ByField("owner")},
            everything=tuple(Query(TURNS, {"state": state}, order="at") for state in TURN_STATES),
            age="at",
        ),
        Family(
            title="runs of turns",
            collection=Collection(
                TURN_RUNS, fields={"owner": str}, indexes=(Index("key"), Index("owner", equal=("owner",)))
            ),
            found_by={"owner": ByField("owner")},
            queues=(TURN_RUNS,),
        ),
        Family(
            title="turns of tasks",
            collection=Collection(
                TASK_TURNS,
                fields={"owner": str, "turn": str},
                indexes=(Index("owner", equal=("owner",)), Index("turn", equal=("turn",))),
            ),
            found_by={"owner": ByField("owner"), "turn": ByField("turn")},
        ),
        _kept("message", {"owner": str, "seq": int}),
        _kept(
            "memory",
            {"owner": str, "seq": int, "importance": float, "confidence": float},
            Index("importance", equal=("owner",), order="importance"),
            Index("confidence", equal=("owner",), order="confidence"),
        ),
        _kept("thought", _NAMED_FIELDS, _NAMED),
        _kept("tool_call", _NAMED_FIELDS, _NAMED),
        _kept("retrievable", {"owner": str, "seq": int}),
        _kept("standing_instruction", _NAMED_FIELDS, _NAMED),
        Family(
            title="threads and agents",
            collection=Collection(
                STREAMS,
                fields={"kind": str, "at": int},
                indexes=(Index("key"), Index("kind", equal=("kind",), order="at")),
            ),
            subject="owner",
            age="at",
            named=_thread,
        ),
        Family(
            title="files",
            collection=Collection(
                BYTES,
                fields={"state": str, "at": int, "named": str, "shelf": str, "id": str},
                indexes=(
                    Index("state", equal=("state",), order="at"),
                    Index("named", equal=("named",), order="at"),
                    Index("shelf", equal=("shelf",), order="id"),
                ),
            ),
            found_by={"owner": ByField("shelf", lambda owner: [under(owner, conduit) for conduit in _CONDUITS])},
            everything=tuple(Query(BYTES, {"state": state}, order="at") for state in ("staged", "committed")),
            age="at",
            blobs=_held_bytes,
        ),
        Family(title="formats", collection=Collection(FORMATS)),
    ),
)
FAMILIES = tuple(FACE.collections())
GATE_FAMILIES = (_GATES.collection,)


# ------------------------------------------------------------------------------------------------------------ addresses


@dataclass(frozen=True, slots=True)
class WriteAddress:
    """Address for a turn's writes: its id, its tenant's scope, and the owners of its records."""

    turn: str
    scope: Scope
    owners: Mapping[Kind, str]
    run: int = 0  # number of this run of the turn; 0: not tracked

    @property
    def guard(self) -> FieldIn | None:
        """The check that refuses a run of this turn after another run has started."""
        return guard_of(under(self.owners["message"], self.turn), self.run) if self.run else None

    def same_turn(self, other: WriteAddress) -> bool:
        return self.turn == other.turn and self.scope == other.scope and self.owners == other.owners


@dataclass(frozen=True, slots=True)
class TurnAddress:
    """Address of a turn's record. ``turn`` is its key, ``run`` the number of this run (0: not tracked)."""

    scope: Scope
    owner: str
    turn: str
    run: int
    tenant: str
    thread: str

    @property
    def guards(self) -> tuple[FieldIn, ...]:
        guard = guard_of(self.turn, self.run)
        return () if guard is None else (guard,)

    def check(self, refusal: CommitRefused) -> None:
        """Raise TurnTakenOver if the guard caused the refusal."""
        if refusal.check in self.guards:
            raise TurnTakenOver


def guard_of(turn: str, run: int) -> FieldIn | None:
    """Return the check that refuses a commit of this run after another run has started."""
    return FieldIn(TURNS, turn, "run", (run,)) if run else None
