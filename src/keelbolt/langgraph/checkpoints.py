"""Reads and writes checkpoints in one tenant's partition. The saver does the serialization."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from keelbolt.errors import BlobNotFound, CheckpointConflict, CommitRefused, StorageCorrupt
from keelbolt.kernel import (
    Attach,
    FieldIn,
    FieldNotIn,
    Insert,
    Operation,
    Put,
    Query,
    Record,
    Replace,
    Scope,
)
from keelbolt.langgraph.families import CHECKPOINTS, HEADS, VALUES, WRITES
from keelbolt.langgraph.records import (
    BLOB_BYTES,
    FORMAT,
    INLINE_BYTES,
    MAX_VALUES,
    RECORD_BYTES,
    Channel,
    ChannelWrite,
    Lane,
    Ref,
    StoredCheckpoint,
    StoredHead,
    StoredValue,
    StoredWrites,
    Typed,
    Version,
    decode,
    digest_of,
    encode,
    value_key,
)
from keelbolt.state.names import name

ATTEMPTS = 20  # of a commit that conflicts with another one on the same thread
CACHED_HEADS = 1000
KNOWN_VALUES = 10_000
PAGE = 100

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A checkpoint to store. ``values`` are the changed channels; ``dump`` serializes any other channel."""

    lane: Lane
    id: str
    parent: str | None
    forks: bool  # its parent need not be the head
    run: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, Version]
    values: Mapping[str, Typed | None]
    dump: Callable[[str], Typed | None]
    deltas: tuple[str, ...]
    stub: bool = False  # has no state, but is the start of a first run


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stored checkpoint, its writes in the order in which they apply, and the values of both."""

    stored: StoredCheckpoint
    writes: list[tuple[str, ChannelWrite]]
    values: dict[str, Typed]

    def value(self, ref: Ref) -> Typed:
        return self.values[ref.digest] if ref.digest else (ref.kind, ref.data)


@dataclass(frozen=True, slots=True)
class History:
    """The values that ancestors of a checkpoint wrote to one channel, oldest first."""

    seed: Typed | None
    writes: list[tuple[str, str, Typed]]


@dataclass(frozen=True, slots=True)
class _Head:
    version: int  # of the record; 0: no record
    id: str | None = None
    channels: Mapping[str, Channel] | None = None  # None: not loaded


@dataclass(slots=True)
class _Values:
    """The values that a commit needs, and the operations that store them."""

    thread: str
    known: Recent[str, None]
    inline: int = INLINE_BYTES  # values up to this size are stored in the record that refers to them
    operations: dict[str, tuple[Operation, ...]] = field(default_factory=dict)
    bytes: int = 0  # of the values in records

    async def ref(self, scope: Scope, value: Typed) -> Ref:
        kind, data = value
        if len(data) <= self.inline:
            return Ref(kind, data)
        digest = digest_of(value)
        key = value_key(self.thread, digest)
        if key not in self.operations:
            self.operations[key] = await self._store(scope, key, value)
        return Ref(kind, b"", digest)

    async def _store(self, scope: Scope, key: str, value: Typed) -> tuple[Operation, ...]:
        kind, data = value
        thread = name(self.thread)
        if key in self.known:
            return (FieldNotIn(VALUES, key, "dying", (True,)),)
        if len(data) < BLOB_BYTES and self.bytes + len(data) <= RECORD_BYTES:
            self.bytes += len(data)
            return (Put(VALUES, key, encode(StoredValue(FORMAT, kind, data)), {"thread": thread}),)
        blob = await scope.stage_blob(data)
        body = encode(StoredValue(FORMAT, kind, b""))
        fields = {"thread": thread, "blob": blob.digest}
        return (Put(VALUES, key, body, fields), Attach(blob.digest, f"{VALUES}/{key}"))

    def need(self, ref: Ref) -> None:
        """Add a check to the commit that a value stored by another checkpoint still exists."""
        if ref.digest:
            key = value_key(self.thread, ref.digest)
            self.operations.setdefault(key, (FieldNotIn(VALUES, key, "dying", (True,)),))

    def all(self) -> Iterable[Operation]:
        return (operation for operations in self.operations.values() for operation in operations)

    def stored(self) -> None:
        for key in self.operations:
            self.known[key] = None

    def refused(self) -> None:
        for key in self.operations:
            self.known.pop(key, None)


class Recent(OrderedDict[K, V], Generic[K, V]):
    """A dictionary that drops its oldest entries."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)


class Checkpoints:
    """The checkpoints of one tenant. Its caches only save reads: each commit checks their content."""

    def __init__(self) -> None:
        self._heads: Recent[str, _Head] = Recent(CACHED_HEADS)
        self._known: Recent[str, None] = Recent(KNOWN_VALUES)

    # ------------------------------------------------------------------------------------------------------- writing

    async def put(self, scope: Scope, new: NewCheckpoint) -> None:
        """Store a checkpoint as the head of its lane. Raise CheckpointConflict if its parent is not the head."""
        key = new.lane.key
        refusal: CommitRefused | None = None
        for _ in range(ATTEMPTS):
            head = self._heads.get(key)
            if head is None or (not new.forks and conflict(new, head)):
                head = await self._head(scope, new.lane)
            if not new.forks and (why := conflict(new, head)):
                raise CheckpointConflict(new.lane.thread, new.lane.namespace, parent=new.parent, head=head.id, why=why)
            changed = (typed for typed in new.values.values() if typed is not None)
            values = _Values(new.lane.thread, self._known, inline_limit(changed))
            channels = await self._channels(scope, new, head, values, inherit=refusal is None)
            stored = StoredCheckpoint(
                FORMAT,
                new.lane.thread,
                new.lane.namespace,
                new.id,
                new.parent,
                new.checkpoint,
                new.metadata,
                channels,
                new.deltas,
            )
            fields = {"thread": name(new.lane.thread), "lane": key, "run": new.run, "id": new.id}
            write = Put(CHECKPOINTS, new.lane.checkpoint(new.id), encode(stored), fields)
            try:
                receipt = await scope.commit(*_move(new.lane, head, new.id), write, *values.all())
            except CommitRefused as error:
                refusal = error
                self._heads.pop(key, None)
                values.refused()
                continue
            self._heads[key] = _Head(receipt.version(HEADS, key), new.id, channels)
            values.stored()
            return
        assert refusal is not None
        raise refusal

    async def _channels(
        self, scope: Scope, new: NewCheckpoint, head: _Head, values: _Values, *, inherit: bool
    ) -> dict[str, Channel]:
        """Return the references to the values of this checkpoint. Unchanged channels keep the values of the parent.

        After a refusal all values are stored again, because a value of an older checkpoint may have been removed.
        """
        inherited: Mapping[str, Channel] = {}
        if new.parent is not None and inherit:
            if head.id == new.parent and head.channels is not None:
                inherited = head.channels
            elif (parent := await self._stored(scope, new.lane, new.parent)) is not None:
                inherited = parent.channels
        channels: dict[str, Channel] = {}
        for channel, version in new.versions.items():
            if channel in new.values:
                typed = new.values[channel]
            elif (kept := inherited.get(channel)) is not None and kept.version == version:
                channels[channel] = kept
                if new.parent != head.id:  # the values of the head are never removed
                    values.need(kept.value)
                continue
            else:
                typed = new.dump(channel)
            if typed is not None:
                channels[channel] = Channel(version, await values.ref(scope, typed))
        return channels

    async def put_writes(
        self, scope: Scope, lane: Lane, checkpoint: str, task: str, writes: Sequence[tuple[int, str, Typed, str]]
    ) -> None:
        """Add the writes of a task. A special write (negative index) replaces an earlier one; others are kept."""
        key = lane.task(checkpoint, task)
        fields = {"thread": name(lane.thread), "checkpoint": lane.checkpoint(checkpoint)}
        found: Record | None = None
        refusal: CommitRefused | None = None
        for _ in range(ATTEMPTS):
            kept = {} if found is None else {w.index: w for w in decode(StoredWrites, found.body).writes}
            values = _Values(lane.thread, self._known, inline_limit(typed for _, _, typed, _ in writes))
            for index, channel, typed, path in writes:
                if index < 0 or index not in kept:
                    kept[index] = ChannelWrite(index, channel, await values.ref(scope, typed), path)
            body = encode(StoredWrites(FORMAT, task, lane.namespace, checkpoint, tuple(kept.values())))
            write = (
                Insert(WRITES, key, body, fields)
                if found is None
                else Replace(WRITES, key, found.version, body, fields)
            )
            try:
                await scope.commit(write, *values.all())
            except CommitRefused as error:
                refusal = error
                values.refused()
                found = await scope.get(WRITES, key)
                continue
            values.stored()
            return
        assert refusal is not None
        raise refusal

    # ------------------------------------------------------------------------------------------------------- reading

    async def load(self, scope: Scope, lane: Lane, checkpoint: str | None) -> Loaded | None:
        """Return the checkpoint with this id, or the head; None if it does not exist."""
        for _ in range(ATTEMPTS):
            wanted = checkpoint
            if wanted is None:
                head = await self._head(scope, lane)
                if head.id is None:
                    return None
                wanted = head.id
            stored = await self._stored(scope, lane, wanted)
            if stored is None:
                if checkpoint is not None:
                    return None
                continue  # the head has moved meanwhile
            loaded = await self.fill(scope, [stored])
            if loaded:
                return loaded[0]
        raise StorageCorrupt

    async def page(
        self, scope: Scope, lane: Lane | None, thread: str | None, *, before: str | None, cursor: str | None
    ) -> tuple[list[StoredCheckpoint], str | None]:
        """Return a page of checkpoints of a lane, a thread or all, newest id first, and the next page's cursor."""
        equal = {"lane": lane.key} if lane is not None else {"thread": name(thread)} if thread is not None else {}
        query = Query(CHECKPOINTS, equal=equal, order="id", until=before, newest_first=True)
        page = await scope.find(query, limit=PAGE, cursor=cursor)
        return [decode(StoredCheckpoint, record.body) for record in page.records], page.cursor

    async def fill(self, scope: Scope, wanted: Sequence[StoredCheckpoint]) -> list[Loaded]:
        """Return these checkpoints with their writes and values, without those that were deleted meanwhile."""
        writes = await asyncio.gather(*[self._writes(scope, stored.lane, stored.id) for stored in wanted])
        needed = [
            stored.digests().union(*(found.digests() for found in of))
            for stored, of in zip(wanted, writes, strict=True)
        ]
        keys = {value_key(stored.thread, d): d for stored, each in zip(wanted, needed, strict=True) for d in each}
        values = await self._values(scope, list(keys))
        return [
            Loaded(stored, _ordered(of), {d: values[value_key(stored.thread, d)] for d in each})
            for stored, of, each in zip(wanted, writes, needed, strict=True)
            if all(value_key(stored.thread, d) in values for d in each)
        ]

    async def history(
        self, scope: Scope, lane: Lane, checkpoint: str | None, channels: Sequence[str]
    ) -> dict[str, History]:
        """Return each channel's writes by ancestors of a checkpoint, back to the nearest one that has its value."""
        chain, seeds = await self._chain(scope, lane, checkpoint, channels)
        of = await asyncio.gather(*[self._writes(scope, lane, stored.id) for stored in chain])
        refs: dict[str, list[tuple[str, Ref]]] = {channel: [] for channel in channels}
        remaining = set(channels)
        for stored, found in zip(chain, of, strict=True):
            for task, write in reversed(_ordered(found)):
                if write.channel in remaining:
                    refs[write.channel].append((task, write.value))
            remaining -= {channel for channel, (seed, _) in seeds.items() if seed == stored.id}
        digests = {ref.digest for each in refs.values() for _, ref in each if ref.digest}
        digests |= {ref.digest for _, ref in seeds.values() if ref.digest}
        values = await self._values(scope, [value_key(lane.thread, digest) for digest in digests])

        def typed(ref: Ref) -> Typed:
            if not ref.digest:
                return ref.kind, ref.data
            try:
                return values[value_key(lane.thread, ref.digest)]
            except KeyError:
                raise StorageCorrupt from None

        return {
            channel: History(
                typed(seeds[channel][1]) if channel in seeds else None,
                [(task, channel, typed(ref)) for task, ref in reversed(refs[channel])],
            )
            for channel in channels
        }

    async def _chain(
        self, scope: Scope, lane: Lane, checkpoint: str | None, channels: Iterable[str]
    ) -> tuple[list[StoredCheckpoint], dict[str, tuple[str, Ref]]]:
        """Return the ancestors that these channels need, nearest first, and which of them has each channel's value."""
        wanted = checkpoint if checkpoint is not None else (await self._head(scope, lane)).id
        current = await self._stored(scope, lane, wanted) if wanted is not None else None
        chain: list[StoredCheckpoint] = []
        seeds: dict[str, tuple[str, Ref]] = {}
        remaining = set(channels)
        near: dict[str, StoredCheckpoint] = {}  # parents are usually close to their children
        while remaining and current is not None and current.parent is not None:
            if current.parent not in near:
                found, _ = await self.page(scope, lane, None, before=current.id, cursor=None)
                near = {stored.id: stored for stored in found}
            parent = near.get(current.parent) or await self._stored(scope, lane, current.parent)
            if parent is None:
                break
            chain.append(parent)
            for channel in remaining & parent.channels.keys():
                seeds[channel] = parent.id, parent.channels[channel].value
            remaining -= parent.channels.keys()
            current = parent
        return chain, seeds

    async def needed_ancestors(self, scope: Scope, stored: StoredCheckpoint) -> list[StoredCheckpoint]:
        """Return the ancestors from which the delta channels of this checkpoint are rebuilt."""
        channels = set(stored.deltas) - stored.channels.keys()
        chain, _ = await self._chain(scope, stored.lane, stored.id, channels)
        return chain

    # ------------------------------------------------------------------------------------------------------ internals

    async def _head(self, scope: Scope, lane: Lane) -> _Head:
        found = await scope.get(HEADS, lane.key)
        if found is None:
            return _Head(0)
        head = found.fields["head"]
        assert isinstance(head, str)
        return _Head(found.version, head)

    async def _stored(self, scope: Scope, lane: Lane, checkpoint: str) -> StoredCheckpoint | None:
        found = await scope.get(CHECKPOINTS, lane.checkpoint(checkpoint))
        return decode(StoredCheckpoint, found.body) if found is not None else None

    async def _writes(self, scope: Scope, lane: Lane, checkpoint: str) -> list[StoredWrites]:
        query = Query(WRITES, equal={"checkpoint": lane.checkpoint(checkpoint)})
        page = await scope.find(query, limit=PAGE)
        records = list(page.records)
        while page.cursor is not None:
            page = await scope.find(query, limit=PAGE, cursor=page.cursor)
            records.extend(page.records)
        return [decode(StoredWrites, record.body) for record in records]

    async def _values(self, scope: Scope, keys: Sequence[str]) -> dict[str, Typed]:
        """Return the existing values."""
        values: dict[str, Typed] = {}
        if not keys:
            return values
        for key, record in zip(keys, await scope.get_many(VALUES, keys), strict=True):
            if record is None:
                continue
            stored = decode(StoredValue, record.body)
            blob = record.fields.get("blob")
            if isinstance(blob, str):
                try:
                    values[key] = stored.kind, await (await scope.open_blob(blob)).read()
                except BlobNotFound:
                    continue
            else:
                values[key] = stored.kind, stored.data
        return values

    def forget(self) -> None:
        """Clear the cache of heads, after checkpoints were deleted."""
        self._heads.clear()


def inline_limit(values: Iterable[Typed]) -> int:
    """Return the size up to which values are stored inline: higher if a commit can't store all others separately."""
    sizes = sorted((len(data) for _, data in values), reverse=True)
    return max(INLINE_BYTES, sizes[MAX_VALUES]) if len(sizes) > MAX_VALUES else INLINE_BYTES


def conflict(new: NewCheckpoint, head: _Head) -> str | None:
    """Return why this checkpoint does not follow the head of its lane; None if it does."""
    if head.id in (new.parent, new.id):
        return None
    if head.id is None:
        return "that checkpoint does not exist: it was deleted, or the id is wrong"
    if new.parent is None and not new.versions and not new.stub:
        return None  # no state
    return "another run wrote to the thread in the meantime"


def _move(lane: Lane, head: _Head, checkpoint: str) -> list[Operation]:
    body = encode(StoredHead(FORMAT, lane.thread, lane.namespace))
    fields = {"thread": name(lane.thread), "head": checkpoint}
    if not head.version:
        return [Insert(HEADS, lane.key, body, fields)]
    # Versions restart at 1 when a thread is deleted and created again, so the head is compared, too.
    return [FieldIn(HEADS, lane.key, "head", (head.id,)), Replace(HEADS, lane.key, head.version, body, fields)]


def _ordered(found: Iterable[StoredWrites]) -> list[tuple[str, ChannelWrite]]:
    writes = [(each.task, write) for each in found for write in each.writes]
    writes.sort(key=lambda of: (of[1].path, of[0], of[1].index))
    return writes
