"""Bytes of turns: written through the conduits by id, and held by the records that refer to them.

written ─▶ staged ──a record that refers to them is committed──▶ committed ──the record is purged──▶ gone
             └───────────no record did, and reap() found them old enough──────────────────────────▶ gone
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, cast

from keelbolt.errors import CommitRefused, StorageBusy, TurnStorageCorrupt
from keelbolt.kernel import Delete, Insert, Operation, Query, Record, Replace, Scope
from keelbolt.kernel.blobs import chunks_of
from keelbolt.kernel.records import Scalar
from keelbolt.turns.codec import Resolvers, readers_of
from keelbolt.turns.durable import readers
from keelbolt.turns.durable.families import BYTES
from keelbolt.turns.durable.readers import Bytes, ConduitEntry, StoredMediaReader, StoredSpoolReader
from keelbolt.turns.durable.records import dump
from keelbolt.turns.durable.scope import TurnLike, under
from keelbolt.turns.durable.unit import Unit, holdings
from keelbolt.turns.readers import (
    STRETCH_BYTES,
    BlobInfo,
    ByteSource,
    Descriptor,
    LineCounter,
    MediaReader,
    SpoolReader,
    answer,
    described,
    is_range_reader,
)

Conduit = Literal["media", "retrievable"]
TRIES = 50


@dataclass(frozen=True, slots=True)
class BytesAddress:
    """Address of the bytes of one turn: their owner and the conduit that wrote them."""

    scope: Scope
    owner: str
    conduit: Conduit
    turn: str

    def key(self, blob_id: str) -> str:
        return under(self.owner, self.conduit, self.turn, blob_id)

    def named(self, blob_id: str) -> str:
        return under(self.owner, self.conduit, blob_id)

    @property
    def name(self) -> str:
        return under(self.owner, self.conduit)


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The bytes of a record: descriptors of its readers by ``id()``, the digests that it holds, and their entries."""

    descriptors: dict[int, Descriptor]
    digests: tuple[str, ...]
    entries: tuple[str, ...]

    def describe(self, reader: MediaReader | SpoolReader) -> Descriptor:
        return self.descriptors[id(reader)]


_NOTHING = RecordBytes({}, (), ())


class Blobs:
    """Writes bytes, opens them again, and lets records hold them."""

    def __init__(self, clock: Callable[[], int], *, eager_bytes: int) -> None:
        self._clock = clock
        self._eager_bytes = eager_bytes

    # ------------------------------------------------------------------------------------------------------ writing

    async def write(self, shelf: BytesAddress, blob_id: str, data: ByteSource) -> StoredMediaReader | StoredSpoolReader:
        """Store the bytes under this id, replacing earlier ones. A stream that fails leaves nothing."""
        media = shelf.conduit == "media"
        written = await self.stage(shelf.scope, data, lines=not media)
        key = shelf.key(blob_id)
        for _ in range(TRIES):
            before = await shelf.scope.get(BYTES, key)
            try:
                version = await self._enter(shelf, blob_id, written, before)
            except CommitRefused:  # another process wrote the same id
                continue
            return self._reader(shelf.scope, written, media=media, entry=ConduitEntry(key, version))
        raise StorageBusy("other processes keep writing these bytes; try again")

    async def stage(self, scope: Scope, data: ByteSource, *, lines: bool) -> Bytes:
        """Write the bytes without a name; long text also gets a line index."""
        counter = LineCounter()
        blob = await scope.stage_blob(_counted(data, counter) if lines else data)
        if not lines or blob.size <= STRETCH_BYTES:
            return Bytes(blob.digest, blob.size)
        index = await scope.stage_blob(counter.index().dump())
        return Bytes(blob.digest, blob.size, index.digest)

    async def _enter(self, shelf: BytesAddress, blob_id: str, written: Bytes, before: Record | None) -> int:
        key, old = shelf.key(blob_id), Bytes.at(_body(before)) if before is not None else None
        body = dump({"v": 1, "id": blob_id, "turn": shelf.turn, **written.locator()}, what=blob_id)
        fields: dict[str, Scalar] = {
            "state": "staged",
            "at": self._clock(),
            "named": shelf.named(blob_id),
            "shelf": shelf.name,
            "id": blob_id,
        }
        write = (
            Insert(BYTES, key, body, fields) if before is None else Replace(BYTES, key, before.version, body, fields)
        )
        holds = holdings(BYTES, key, before=old.digests if old is not None else (), after=written.digests)
        receipt = await shelf.scope.commit(write, *holds)
        return receipt.version(BYTES, key)

    # ------------------------------------------------------------------------------------------------------ reading

    async def read(self, shelf: BytesAddress, blob_id: str) -> StoredMediaReader | StoredSpoolReader | None:
        """Return a reader of this turn's bytes with this id, or else of the last ones of any turn, or None."""
        found = await self._find(shelf, blob_id)
        if found is None:
            return None
        committed = found.fields.get("state") == "committed"
        entry = ConduitEntry(found.key, 0 if committed else found.version)
        return self._reader(shelf.scope, Bytes.at(_body(found)), media=shelf.conduit == "media", entry=entry)

    async def delete(self, shelf: BytesAddress, blob_id: str) -> bool:
        """Delete the id; records that refer to its bytes keep holding them."""
        for _ in range(TRIES):
            found = await self._find(shelf, blob_id)
            if found is None:
                return False
            try:
                await shelf.scope.commit(*forgetting(found))
            except CommitRefused:
                continue
            return True
        raise StorageBusy("other processes keep writing these bytes; try again")

    async def list(self, shelf: BytesAddress, prefix: str) -> AsyncIterator[BlobInfo]:
        """Yield the bytes of this thread by id; if several turns wrote an id, only the last one."""
        query = Query(BYTES, {"shelf": shelf.name}, order="id", since=prefix or None)
        last: Record | None = None
        async for record in shelf.scope.scan(query):
            if not str(record.fields["id"]).startswith(prefix):
                break
            if last is not None and record.fields["id"] != last.fields["id"]:
                yield _info(last)
                last = None
            if last is None or _at(record) > _at(last):
                last = record
        if last is not None:
            yield _info(last)

    async def _find(self, shelf: BytesAddress, blob_id: str) -> Record | None:
        found = await shelf.scope.get(BYTES, shelf.key(blob_id))
        if found is not None:
            return found
        query = Query(BYTES, {"named": shelf.named(blob_id)}, order="at", newest_first=True)
        page = await shelf.scope.find(query, limit=1)
        return page.records[0] if page.records else None

    def _reader(
        self, scope: Scope, bytes_: Bytes, *, media: bool, entry: ConduitEntry | None = None
    ) -> StoredMediaReader | StoredSpoolReader:
        if media:
            return StoredMediaReader(scope, bytes_, entry)
        return StoredSpoolReader(scope, bytes_, entry, eager_bytes=self._eager_bytes)

    def resolvers(self, scope: Scope, given: Resolvers) -> Resolvers:
        """Return the given resolvers plus those for this tenant's bytes; a locator can't name other tenants' bytes."""
        own = given.copy()
        own.media(readers.MEDIA_TAG, lambda found: self._reader(scope, Bytes.at(found), media=True))
        own.spool(readers.SPOOL_TAG, lambda found: self._reader(scope, Bytes.at(found), media=False))
        return own

    # ----------------------------------------------------------------------------------------------------- records

    async def keep(self, unit: Unit, value: Any, given: Resolvers) -> RecordBytes:
        """Make the bytes of this value's readers durable, and return the descriptors and digests for its record.

        If no resolver can open a reader again, its bytes are read and stored with the record.
        """
        found = list(readers_of(value))
        if not found:
            return _NOTHING
        descriptors: dict[int, Descriptor] = {}
        digests: dict[str, None] = {}
        entries: list[str] = []
        for reader, media in found:
            if id(reader) in descriptors:
                continue
            ours = reader if isinstance(reader, StoredMediaReader | StoredSpoolReader) else None
            if ours is not None and ours.scope == unit.scope:
                if ours.entry is not None:
                    entries.append(ours.entry.key)
                    unit.own(ours.entry)
                descriptors[id(reader)] = ours.describe()
                digests |= dict.fromkeys(ours.bytes.digests)
                continue
            descriptor = described(reader) if ours is None else None
            if descriptor is None or not given.knows(descriptor, media=media):
                drained = await self.stage(unit.scope, await _content(reader), lines=not media)
                descriptor = Descriptor(
                    tag=readers.MEDIA_TAG if media else readers.SPOOL_TAG, locator=drained.locator()
                )
                digests |= dict.fromkeys(drained.digests)
            descriptors[id(reader)] = descriptor
        return RecordBytes(descriptors, tuple(digests), tuple(entries))


def forgetting(entry: Record) -> list[Operation]:
    """Return the operations that remove a conduit's byte record and its hold, if it is unchanged."""
    held = Bytes.at(_body(entry)).digests
    return [Delete(BYTES, entry.key, entry.version), *holdings(BYTES, entry.key, before=held, after=())]


async def _content(reader: MediaReader | SpoolReader) -> ByteSource:
    if isinstance(reader, SpoolReader) and not is_range_reader(reader):
        return await answer(reader.read_all())
    return reader.stream()


async def _counted(data: ByteSource, counter: LineCounter) -> AsyncIterator[bytes]:
    async for chunk in chunks_of(data):
        counter.add(chunk)
        yield chunk


def _body(record: Record) -> Any:
    try:
        return json.loads(record.body)
    except ValueError as wrong:
        raise TurnStorageCorrupt("the record of stored bytes can't be read", cause=wrong) from wrong


def _at(record: Record) -> int:
    at = record.fields["at"]
    assert isinstance(at, int)
    return at


def _info(record: Record) -> BlobInfo:
    found = Bytes.at(_body(record))
    return BlobInfo(str(record.fields["id"]), found.size, found.sha256)


# ---------------------------------------------------------------------------------------------------------- byte stores


R = TypeVar("R", StoredMediaReader, StoredSpoolReader)


class TurnBytes(Generic[R]):
    """Bytes by id. A read finds those of this turn first, then the last of any turn of the thread."""

    def __init__(self, blobs: Blobs, shelf: BytesAddress) -> None:
        self._blobs = blobs
        self._shelf = shelf

    async def write(self, key: str, data: ByteSource) -> R:
        return cast("R", await self._blobs.write(self._shelf, key, data))

    async def read(self, key: str) -> R | None:
        return cast("R | None", await self._blobs.read(self._shelf, key))

    async def delete(self, key: str) -> bool:
        return await self._blobs.delete(self._shelf, key)

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        return self._blobs.list(self._shelf, prefix)


class TurnBlobs:
    """Byte stores of a storage, per turn."""

    def __init__(self, blobs: Blobs, shelf: Callable[[TurnLike, Conduit], BytesAddress]) -> None:
        self._blobs = blobs
        self._shelf = shelf

    def media(self, ctx: TurnLike) -> TurnBytes[StoredMediaReader]:
        """Return the media of this turn's thread, as a ByteStore that can also list."""
        return TurnBytes(self._blobs, self._shelf(ctx, "media"))

    def spool(self, ctx: TurnLike) -> TurnBytes[StoredSpoolReader]:
        """Return the spooled text of this turn's thread, as a ByteStore that can also list."""
        return TurnBytes(self._blobs, self._shelf(ctx, "retrievable"))
