"""Looking at everything that is kept: how much it is, and whether it is still what was written."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator

from holdfast.storage.contract import Problem, Stats
from holdfast.storage.declared import Shape
from holdfast.storage.redis import tokens
from holdfast.storage.redis.catalog import Catalog
from holdfast.storage.redis.layout import partition_entry
from holdfast.storage.redis.operations import checksum, entry_checksum
from holdfast.storage.redis.store import Store
from holdfast.storage.work import WorkState

PAGE_ENTRIES = 500


async def stats(store: Store, catalog: Catalog) -> Stats:
    records: Counter[str] = Counter()
    work: dict[str, dict[WorkState, int]] = {}
    streams = entries = blobs = blob_bytes = 0
    async for key in _each_once(store):
        place = store.layout.parse(key)
        if place is None:
            continue
        partition, rest = place
        kind, _, name = rest.partition(b"/")
        match kind:
            case b"r":
                collection = name.partition(b"/")[0].decode()
                records[collection] += await _is_live(store, catalog, partition, collection, rest)
            case b"s":
                head, floor = await store.command(partition, b"HMGET", rest, b"h", b"f")
                if head is not None:
                    streams += 1
                    entries += int(head) - int(floor)
            case b"b":
                blobs += 1
                blob_bytes += int(await store.command(partition, b"HGET", rest, b"s") or 0)
            case b"keys":
                queue, _, listed = name.decode().partition("/")
                states = work.setdefault(queue, {"waiting": 0, "held": 0, "dead": 0})
                for state in states:
                    if state == listed:
                        states[state] += await store.command(partition, b"ZCARD", rest)
            case _:
                pass
    return Stats(
        partitions=await store.read_registry(b"ZCARD", b"partitions"),
        records=records,
        streams=streams,
        entries=entries,
        blobs=blobs,
        blob_bytes=blob_bytes,
        work=work,
        workers=await store.read_registry(b"ZCARD", b"workers"),
        bytes=await store.memory_bytes(),
        engine={"server": store.name},
    )


async def _is_live(store: Store, catalog: Catalog, partition: str, collection: str, rest: bytes) -> bool:
    known = catalog.entries.get(collection)
    if known is not None and not known.shape.collection.expiring:
        return True
    expires_at = await store.command(partition, b"HGET", rest, b"e")
    return expires_at is None or int(expires_at) > await store.time(partition)


async def problems(store: Store, catalog: Catalog) -> AsyncIterator[Problem]:
    """Read everything. What is written meanwhile may make the totals, which are read last, look wrong."""
    counted: Counter[tuple[str, str]] = Counter()
    async for key in _each_once(store):
        place = store.layout.parse(key)
        if place is None:
            continue
        partition, rest = place
        kind, _, name = rest.partition(b"/")
        match kind:
            case b"r":
                collection, _, record = name.decode().partition("/")
                counted[partition, collection] += 1
                async for problem in _record(store, catalog, partition, collection, record, rest):
                    yield problem
            case b"s":
                async for problem in _stream(store, partition, name):
                    yield problem
            case b"b":
                async for problem in _blob(store, partition, name):
                    yield problem
            case _:
                pass
    for (partition, collection), count in counted.items():
        async for problem in _totals(store, catalog, partition, collection, count):
            yield problem


async def _record(
    store: Store, catalog: Catalog, partition: str, collection: str, key: str, rest: bytes
) -> AsyncIterator[Problem]:
    where = f"record {collection}/{key[:80]}"
    version, fields, body, crc, indexed = await store.command(partition, b"HMGET", rest, b"v", b"f", b"b", b"c", b"x")
    if version is None:
        return  # removed since it was listed
    if body is None or fields is None or checksum(body) != crc:
        yield Problem(where, "its checksum is wrong")
        return
    known = catalog.entries.get(collection)
    if known is None or indexed != b"%d" % known.version:
        return  # not yet indexed by the present declaration
    shape: Shape = known.shape
    skip = len(partition_entry(partition))
    for number, entry in enumerate(shape.entries(partition, key, tokens.unpack(fields)), 1):
        place = b"i/%b/%d/%d" % (collection.encode(), known.version, number)
        if await store.command(partition, b"ZSCORE", place, entry[skip:]) is None:
            yield Problem(where, f"it is not in its place in index {shape.indexes[number - 1].name}")


async def _stream(store: Store, partition: str, name: bytes) -> AsyncIterator[Problem]:
    where = f"log {name.decode()[:80]}"
    head, floor = await store.command(partition, b"HMGET", b"s/" + name, b"h", b"f")
    if head is None:
        return
    expected = int(floor)
    start = b"-"
    while True:
        rows = await store.command(
            partition, b"XRANGE", b"l/" + name, start, b"%d-0" % int(head), b"COUNT", b"%d" % PAGE_ENTRIES
        )
        for entry, row in rows:
            seq = int(entry.partition(b"-")[0])
            expected += 1
            if seq != expected:
                yield Problem(where, f"entry {expected} is missing")
                expected = seq
            fields = dict(zip(row[::2], row[1::2], strict=True))
            if entry_checksum(fields[b"k"].decode(), fields[b"d"]) != fields[b"c"]:
                yield Problem(where, f"entry {seq}: its checksum is wrong")
        if len(rows) < PAGE_ENTRIES:
            break
        start = b"(" + rows[-1][0]
    if expected != int(head):
        yield Problem(where, f"it ends at {expected} instead of {int(head)}")


async def _blob(store: Store, partition: str, digest: bytes) -> AsyncIterator[Problem]:
    upload, chunks = await store.command(partition, b"HMGET", b"b/" + digest, b"u", b"n")
    for number in range(int(chunks or 0)):
        data = await store.command(partition, b"GET", b"u/%b/%d" % (upload, number))
        if data is None or hashlib.sha256(data[32:]).digest() != data[:32]:
            yield Problem(f"blob {digest.decode()}", f"chunk {number}: its checksum is wrong")


async def _totals(
    store: Store, catalog: Catalog, partition: str, collection: str, count: int
) -> AsyncIterator[Problem]:
    """Whether every record of a collection stands in each of its indexes, and the counters agree with it."""
    known = catalog.entries.get(collection)
    if known is None:
        return
    done = await store.command(partition, b"HGET", b"shapes", f"{collection}!".encode())
    if done != b"%d" % known.version:
        return
    for number, index in enumerate(known.shape.indexes, 1):
        found = await store.command(partition, b"ZCARD", b"i/%b/%d/%d" % (collection.encode(), known.version, number))
        if found != count:
            yield Problem(f"index {collection}/{index.name}", f"it has {found} entries for {count} records")
    for number, names in enumerate(known.shape.counters, 1):
        totals = await store.command(partition, b"HVALS", b"c/%b/%d/%d" % (collection.encode(), known.version, number))
        total = sum(map(int, totals))
        if total != count:
            what = ",".join(names) or "all"
            yield Problem(f"counter {collection}/{what}", f"it says {total} for {count} records")


async def _each_once(store: Store) -> AsyncIterator[bytes]:
    """Every key once, though a scan may meet one twice while the server makes room: 8 bytes of each are remembered."""
    seen: set[int] = set()
    async for key in store.keys(store.layout.pattern):
        mark = hash(key)
        if mark not in seen:
            seen.add(mark)
            yield key
