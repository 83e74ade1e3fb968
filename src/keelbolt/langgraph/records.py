"""Checkpoints and writes as records: keys and bytes. LangGraph's serializer produces the bytes of the values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from keelbolt.errors import SchemaTooNew, StorageCorrupt
from keelbolt.state.names import joined

FORMAT = 1
INLINE_BYTES = 512  # values up to this size are stored in their checkpoint
BLOB_BYTES = 1024 * 1024  # values from this size on are stored as blobs
RECORD_BYTES = 32 * 1024 * 1024  # values in records per commit; the others are stored as blobs
MAX_VALUES = 400  # values stored outside of their checkpoint per commit, of which each takes up to two operations

Typed = tuple[str, bytes]
Version = str | int | float

_R = TypeVar("_R", bound="_Record")


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value: its bytes if it is small, otherwise the digest under which the thread stores it."""

    kind: str
    data: bytes
    digest: str = ""


class Channel(msgspec.Struct, frozen=True, array_like=True):
    """The value of a channel and its version."""

    version: Version
    value: Ref


class ChannelWrite(msgspec.Struct, frozen=True, array_like=True):
    """One write of a task; ``index`` is negative for special writes such as errors and interrupts."""

    index: int
    channel: str
    value: Ref
    path: str


class _Record(msgspec.Struct, frozen=True, array_like=True):
    format: int


class StoredCheckpoint(_Record, frozen=True):
    """A checkpoint without its values, its metadata, and references to the values."""

    thread: str
    namespace: str
    id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    channels: dict[str, Channel]
    deltas: tuple[str, ...] = ()  # channels rebuilt from writes of ancestors

    @property
    def lane(self) -> Lane:
        return Lane(self.thread, self.namespace)

    def digests(self) -> set[str]:
        return {channel.value.digest for channel in self.channels.values() if channel.value.digest}


class StoredWrites(_Record, frozen=True):
    """All writes of one task to one checkpoint."""

    task: str
    namespace: str
    checkpoint: str
    writes: tuple[ChannelWrite, ...]

    def digests(self) -> set[str]:
        return {write.value.digest for write in self.writes if write.value.digest}


class StoredHead(_Record, frozen=True):
    """The names of a lane."""

    thread: str
    namespace: str


class StoredValue(_Record, frozen=True):
    """The bytes of a value; empty if they are in a blob."""

    kind: str
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[type[_Record], Callable[[bytes], _Record]] = {
    kind: msgspec.msgpack.Decoder(kind).decode for kind in (StoredCheckpoint, StoredWrites, StoredHead, StoredValue)
}


def encode(record: _Record) -> bytes:
    return _encode(record)


def decode(kind: type[_R], body: bytes) -> _R:
    try:
        record = _decoders[kind](body)
    except msgspec.DecodeError as error:
        try:
            found = msgspec.msgpack.decode(body)
        except msgspec.DecodeError:
            found = None
        if isinstance(found, list) and found and isinstance(found[0], int) and found[0] > FORMAT:
            raise SchemaTooNew("a newer Keelbolt wrote this LangGraph thread; use that version") from error
        raise StorageCorrupt from error
    if record.format > FORMAT:
        raise SchemaTooNew("a newer Keelbolt wrote this LangGraph thread; use that version")
    return record  # type: ignore[return-value]


def digest_of(value: Typed) -> str:
    kind, data = value
    found = hashlib.sha256(kind.encode())
    found.update(b"\0")
    found.update(data)
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Lane:
    """A namespace of a thread: the root graph, or a subgraph."""

    thread: str
    namespace: str

    @property
    def key(self) -> str:
        return joined(self.thread, self.namespace)

    def checkpoint(self, checkpoint: str) -> str:
        return joined(self.thread, self.namespace, checkpoint)

    def task(self, checkpoint: str, task: str) -> str:
        return joined(self.thread, self.namespace, checkpoint, task)


def value_key(thread: str, digest: str) -> str:
    return joined(thread, digest)
