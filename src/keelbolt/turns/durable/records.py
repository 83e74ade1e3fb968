"""A stored primitive: its record, and the effect of store, mutate and delete on it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from keelbolt.errors import (
    InvalidValue,
    TurnStorageCorrupt,
    TurnStorageDuplicateId,
    TurnStorageNotFound,
    TurnStorageSchema,
)
from keelbolt.kernel import Record
from keelbolt.kernel.records import Scalar
from keelbolt.turns.codec.kinds import Kind
from keelbolt.turns.durable.families import DELETED
from keelbolt.turns.durable.scope import owner_in

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
