"""A stored primitive: its record, and the effect of store, mutate and delete on it; and the storage format of turns.

This program refuses a newer storage format, and upgrades an older one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic_core import from_json, to_json

from keelbolt.errors import (
    CommitRefused,
    InvalidValue,
    TurnStorageCorrupt,
    TurnStorageDuplicateId,
    TurnStorageNotFound,
    TurnStorageSchema,
)
from keelbolt.kernel import Insert, Kernel, Patch, Query, Record, Replace, Scope
from keelbolt.kernel.records import Scalar
from keelbolt.turns.codec import Kind
from keelbolt.turns.durable.clocks import used
from keelbolt.turns.durable.families import DELETED, FORMAT_PARTITION, FORMATS, KIND_OF, STREAMS
from keelbolt.turns.durable.scope import PARTITIONS, owner_in

PAYLOAD_VERSION = 1

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Duplicates = Literal["refuse", "keep", "replace"]


@dataclass(slots=True)  # never changed, but not frozen: a frozen class is three times as slow to create
class Stored:
    """The content of a record. ``seq`` is 0 until a commit assigns it; ``version`` 0: not stored yet.

    ``blobs`` are the digests it holds, ``entries`` the keys of conduit bytes among them. ``created`` and ``updated``
    are the store's own times, in microseconds.
    """

    kind: Kind
    key: str
    id: str
    turn: str
    owner: str
    data: Mapping[str, Any]
    blobs: tuple[str, ...]
    created: int
    updated: int
    entries: tuple[str, ...] = ()
    named: str | None = None
    seq: int = 0
    version: int = 0
    deleted: bool = False

    def body(self) -> bytes:
        """Return the stored body, without empty values and values that are in the key or the payload."""
        body: dict[str, Any] = {"v": PAYLOAD_VERSION, "turn": self.turn, "created": self.created}
        if self.updated != self.created:
            body["updated"] = self.updated
        if self.blobs:
            body["blobs"] = self.blobs
        if self.entries:
            body["entries"] = self.entries
        body["data"] = self.data
        return dump(body, what=f"{self.kind} {self.id}")

    def fields(self, seq: int) -> dict[str, Scalar]:
        fields: dict[str, Scalar] = {"owner": self.owner, "seq": seq}
        if self.named is not None:
            fields["named"] = self.named
            fields["place"] = seq
        if self.kind == "memory":
            fields["importance"] = float(self.data["importance"])
            fields["confidence"] = float(self.data["confidence"])
        return fields


def read(kind: Kind, record: Record) -> Stored:
    """Return the content of this record; raise TurnStorageSchema or TurnStorageCorrupt."""
    try:
        body = json.loads(record.body.decode("utf-8", "surrogatepass"))
        if body["v"] > PAYLOAD_VERSION:
            raise TurnStorageSchema(f"a {kind} was stored in format {body['v']} by a newer Keelbolt; use that version")
        data, named, seq = body["data"], record.fields.get("named"), record.fields["seq"]
        assert isinstance(seq, int)
        return Stored(
            kind=kind,
            key=record.key,
            id=data["id"] if kind != "standing_instruction" else record.key.rpartition("/")[2],
            turn=body["turn"],
            owner=owner_in(record.key),
            data=data,
            blobs=tuple(body.get("blobs", ())),
            created=body["created"],
            updated=body.get("updated", body["created"]),
            entries=tuple(body.get("entries", ())),
            named=named if isinstance(named, str) else None,
            seq=seq,
            version=record.version,
            deleted=record.fields.get("owner") == DELETED,
        )
    except (ValueError, KeyError, TypeError, AssertionError) as wrong:
        raise TurnStorageCorrupt(
            f"a stored {kind} can't be read; run keelbolt storage check, or restore a backup", cause=wrong
        ) from wrong


def dump(value: Mapping[str, Any], *, what: str) -> bytes:
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise InvalidValue(f"{what} can't be stored: it contains a value that is not JSON ({wrong})") from None
    return text.encode("utf-8", "surrogatepass")


_TIMES = ("created_at", "updated_at", "completed_at")


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two payloads are equal, ignoring key order and times.

    An iteration repeated after a crash stores the same content at another time.
    """
    return _content(one) == _content(other)


def _content(data: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in data.items() if name not in _TIMES}, sort_keys=True)


# --------------------------------------------------------------------------------------------------------- changes


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """A new record. Storing the same one again is allowed; ``duplicates`` decides about a different one with its id."""

    new: Stored
    duplicates: Duplicates = "refuse"

    def apply(self, state: Stored | None) -> Stored:
        if state is None:
            return self.new
        if state.deleted:
            return replace(self.new, version=state.version)
        if self.duplicates == "keep" or same(state.data, self.new.data):
            return state
        if self.duplicates == "replace":
            return _over(state, self.new)
        raise TurnStorageDuplicateId(
            f"another {self.new.kind} is stored under the id {self.new.id!r}; use mutate to change it, or another id"
        )


@dataclass(frozen=True, slots=True)
class Mutate:
    """Replaces the payload of a record."""

    new: Stored
    upsert: bool = False

    def apply(self, state: Stored | None) -> Stored:
        if state is not None and not state.deleted:
            return _over(state, self.new)
        if self.upsert:
            return replace(self.new, version=state.version if state else 0)
        raise TurnStorageNotFound(f"no {self.new.kind} is stored under the id {self.new.id!r}; store it first")


@dataclass(frozen=True, slots=True)
class RemoveRecord:
    """Marks a record as deleted; does nothing if there is none."""

    def apply(self, state: Stored | None) -> Stored | None:
        return replace(state, deleted=True) if state is not None else None


Change = StoreRecord | Mutate | RemoveRecord


def fold(base: Stored | None, changes: Iterable[Change]) -> Stored | None:
    """Return the result of applying these changes in order to the stored state."""
    state = base
    for change in changes:
        state = change.apply(state)
    return state


def _over(state: Stored, new: Stored) -> Stored:
    """Return the new payload with the position and identity of the old record."""
    entries = tuple(dict.fromkeys((*state.entries, *new.entries)))
    return replace(new, turn=state.turn, created=state.created, seq=state.seq, version=state.version, entries=entries)


# --------------------------------------------------------------------------------------------------------------- format


async def note_last_use(kernel: Kernel) -> None:
    """Record the last use of every owner that lacks it; a concurrent write of the owner records it too."""
    async for scope in kernel.scopes(prefix=PARTITIONS):
        async for record in scope.scan(Query(STREAMS)):
            if record.fields.get("at") is None:
                fields = used(record.key, await _last_use(scope, record.key))
                with contextlib.suppress(CommitRefused):
                    await scope.commit(Patch(STREAMS, record.key, fields, record.version))


async def _last_use(scope: Scope, owner: str) -> int:
    """Return the creation time of the owner's newest record; 0 if it has none."""
    last = 0
    for collection, kind in KIND_OF.items():
        query = Query(collection, {"owner": owner}, order="seq", newest_first=True)
        for record in (await scope.find(query, limit=1)).records:
            last = max(last, read(kind, record).created)
    return last


FORMAT = 2
UPGRADES: dict[int, Callable[[Kernel], Awaitable[None]]] = {  # from this format to the next; must be idempotent
    1: note_last_use,  # format 2 lists threads by last use
}

_KEY = "format"


async def check_format(kernel: Kernel) -> int:
    """Return the stored format; a new storage gets FORMAT. Raise TurnStorageSchema if it is newer."""
    found = await kernel.get(FORMAT_PARTITION, FORMATS, _KEY)
    if found is None:
        try:
            await kernel.commit(FORMAT_PARTITION, Insert(FORMATS, _KEY, to_json({"v": FORMAT})))
        except CommitRefused:  # another process was first
            return await check_format(kernel)
        return FORMAT
    stored = int(from_json(found.body)["v"])
    if stored > FORMAT:
        raise TurnStorageSchema(
            f"turns are stored in format {stored} by a newer Keelbolt; this version reads formats up to {FORMAT}. "
            "Use the newer version"
        )
    return stored


async def upgrade(kernel: Kernel) -> list[int]:
    """Upgrade an older format step by step; return the formats that were reached."""
    reached = []
    while (stored := await check_format(kernel)) < FORMAT:
        step = UPGRADES.get(stored)
        if step is None:
            raise TurnStorageSchema(f"turns are stored in format {stored}, which can't be upgraded to format {FORMAT}")
        await step(kernel)
        found = await kernel.get(FORMAT_PARTITION, FORMATS, _KEY)
        assert found is not None
        try:
            await kernel.commit(FORMAT_PARTITION, Replace(FORMATS, _KEY, found.version, to_json({"v": stored + 1})))
        except CommitRefused:  # another process took the same step
            continue
        reached.append(stored + 1)
    return reached
