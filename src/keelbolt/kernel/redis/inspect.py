"""Statistics and integrity checks over all stored data."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from keelbolt.kernel.contract import Problem, Stats, WorkCounts
from keelbolt.kernel.ledger import work_counts
from keelbolt.kernel.redis.layout import partition_entry
from keelbolt.kernel.redis.operations import checksum, entry_checksum, unpack_fields, unpacked
from keelbolt.kernel.redis.registry import RedisCatalog, RedisCatalogEntry
from keelbolt.kernel.redis.servers import RedisServers

PAGE_ENTRIES = 500
PAGE_BYTES = 4 * 1024 * 1024
LOOKS = 3
COUNTS = 6  # largest number of counts of the records and of their index entries
SURE = 3  # counts in a row that differ while the index does not change: then it is damage
MICROSECONDS = 1_000_000
TOGETHER = 200  # keys per round trip


@dataclass(slots=True)
class _Counted:
    records: Counter[str] = field(default_factory=Counter)
    work: Counter[tuple[str, str]] = field(default_factory=Counter)
    streams: int = 0
    entries: int = 0
    blobs: int = 0
    blob_bytes: int = 0


async def stats(store: RedisServers, catalog: RedisCatalog) -> Stats:
    counted = _Counted()
    async for keys in _pages(store):
        await asyncio.gather(*(_count(store, catalog, counted, *place) for place in keys))
    return Stats(
        partitions=await store.read_registry(b"ZCARD", b"partitions"),
        records=dict(counted.records),
        streams=counted.streams,
        entries=counted.entries,
        blobs=counted.blobs,
        blob_bytes=counted.blob_bytes,
        work=work_counts((*place, count) for place, count in counted.work.items()),
        workers=await store.read_registry(b"ZCARD", b"workers"),
        bytes=await store.memory_bytes(),
        engine={"server": store.name},
    )


async def count_work(store: RedisServers, queues: Sequence[str]) -> WorkCounts:
    """Count the work items of each partition at one moment, and add the counts up."""
    counted: Counter[tuple[str, str]] = Counter()
    holders: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    names = [queue.encode() for queue in queues]
    async for partitions in _batches(store.every_partition()):
        for now, *rows in await asyncio.gather(*(store.read("work_counts", name, *names) for name in partitions)):
            for queue, (waiting, held, dead, ready_at, held_by) in zip(queues, rows, strict=True):
                counted.update({(queue, "waiting"): waiting, (queue, "held"): held, (queue, "dead"): dead})
                if 0 < ready_at <= now:
                    oldest[queue] = max(oldest.get(queue, 0.0), (now - ready_at) / MICROSECONDS)
                for worker, count in zip(held_by[::2], held_by[1::2], strict=True):
                    holders[worker.decode()] += count
    return WorkCounts(
        work=work_counts((*place, count) for place, count in counted.items() if count),
        holders=dict(+holders),
        workers=await _workers(store),
        oldest=oldest,
    )


async def _workers(store: RedisServers) -> dict[str, float]:
    """Return the known workers with the seconds until their leases end."""
    found = await store.read_registry(b"ZRANGE", b"workers", b"0", b"-1", b"WITHSCORES")
    now = await store.time_at(store.layout.registry)
    pairs = found if found and isinstance(found[0], list) else zip(found[::2], found[1::2], strict=True)
    return {worker.decode(): (int(float(until)) - now) / MICROSECONDS for worker, until in pairs}


async def _batches(names: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    batch: list[str] = []
    async for name in names:
        batch.append(name)
        if len(batch) >= TOGETHER:
            yield batch
            batch = []
    if batch:
        yield batch


async def _count(store: RedisServers, catalog: RedisCatalog, counted: _Counted, partition: str, rest: bytes) -> None:
    kind, _, name = rest.partition(b"/")
    match kind:
        case b"r":
            collection = name.partition(b"/")[0].decode()
            live = await _is_live(store, catalog, partition, collection, rest)
            counted.records[collection] += live
        case b"s":
            head, floor = await store.command(partition, b"HMGET", rest, b"h", b"f")
            if head is not None:
                counted.streams += 1
                counted.entries += int(head) - int(floor)
        case b"b":
            size = await store.command(partition, b"HGET", rest, b"s")
            if size is not None:
                counted.blobs += 1
                counted.blob_bytes += int(size)
        case b"keys":
            queue, _, listed = name.decode().partition("/")
            count = await store.command(partition, b"ZCARD", rest)
            counted.work[queue, listed] += count
        case _:
            pass


async def _is_live(store: RedisServers, catalog: RedisCatalog, partition: str, collection: str, rest: bytes) -> bool:
    known = catalog.entries.get(collection)
    if known is not None and not known.shape.collection.expiring:
        return True
    expires_at, now = await asyncio.gather(store.command(partition, b"HGET", rest, b"e"), store.time(partition))
    return expires_at is None or int(expires_at) > now


async def problems(store: RedisServers, catalog: RedisCatalog) -> AsyncIterator[Problem]:
    """Check all data. Concurrent writes may make the totals, which are read last, look wrong."""
    counted: Counter[tuple[str, str]] = Counter()
    async for keys in _pages(store):
        found = await asyncio.gather(*(_look(store, catalog, counted, *place) for place in keys))
        for problem in (problem for some in found for problem in some):
            yield problem
    for (partition, collection), count in counted.items():
        for problem in await _totals(store, catalog, partition, collection, count):
            yield problem


async def _look(
    store: RedisServers, catalog: RedisCatalog, counted: Counter[tuple[str, str]], partition: str, rest: bytes
) -> list[Problem]:
    kind, _, name = rest.partition(b"/")
    match kind:
        case b"r":
            collection, _, key = name.decode().partition("/")
            counted[partition, collection] += 1
            return await _record(store, catalog, partition, collection, key)
        case b"s":
            return await _stream(store, partition, name)
        case b"b":
            return await _blob(store, partition, name)
        case _:
            return []


async def _record(
    store: RedisServers, catalog: RedisCatalog, partition: str, collection: str, key: str
) -> list[Problem]:
    """Check a record; check it again if it was written during the check."""
    found: list[Problem] = []
    for _ in range(LOOKS):
        version, found = await _record_once(store, catalog, partition, collection, key)
        place = f"r/{collection}/{key}".encode()
        if not found or version == await store.command(partition, b"HGET", place, b"v"):
            return found
    return []


async def _record_once(
    store: RedisServers, catalog: RedisCatalog, partition: str, collection: str, key: str
) -> tuple[bytes | None, list[Problem]]:
    where = f"record {collection}/{key[:80]}"
    place = f"r/{collection}/{key}".encode()
    version, fields, body, crc, indexed = await store.command(partition, b"HMGET", place, b"v", b"f", b"b", b"c", b"x")
    if version is None:
        return None, []  # removed after it was listed
    if body is None or fields is None or checksum(body) != crc:
        return version, [Problem(where, "its checksum is wrong")]
    known = catalog.entries.get(collection)
    if known is None or indexed != b"%d" % known.version:
        return version, []  # not yet indexed by the current declaration
    skip = len(partition_entry(partition))
    entries = known.shape.entries(partition, key, unpack_fields(fields))
    scores = await asyncio.gather(
        *(
            store.command(partition, b"ZSCORE", _index(collection, known.version, number), entry[skip:])
            for number, entry in enumerate(entries, 1)
        )
    )
    return version, [
        Problem(where, f"its entry is missing or wrong in index {index.name}")
        for index, score in zip(known.shape.indexes, scores, strict=True)
        if score is None
    ]


def _index(collection: str, version: int, number: int) -> bytes:
    return f"i/{collection}/{version}/{number}".encode()


async def _stream(store: RedisServers, partition: str, name: bytes) -> list[Problem]:
    where = f"log {name.decode()[:80]}"
    head, floor = await store.command(partition, b"HMGET", b"s/" + name, b"h", b"f")
    if head is None:
        return []
    found = []
    expected = int(floor)
    while True:
        after = expected
        words = (name, b"%d" % after, b"%d" % PAGE_ENTRIES, b"%d" % PAGE_BYTES)
        rows = list(unpacked(await store.read("export_entry", partition, *words)))
        for seq, _, kind, data, _, crc in rows:
            expected += 1
            if seq != expected:
                found.append(Problem(where, f"entry {expected} is missing"))
                expected = seq
            if entry_checksum(kind, data) != crc:
                found.append(Problem(where, f"entry {seq}: its checksum is wrong"))
        if expected <= after or expected >= int(head):
            break
    if expected < int(head) and not await _trimmed(store, partition, name, expected):
        found.append(Problem(where, f"it ends at {expected} instead of {int(head)}"))
    return found


async def _trimmed(store: RedisServers, partition: str, name: bytes, seq: int) -> bool:
    """Return whether the log was trimmed past this entry, or dropped, while it was being read."""
    floor = await store.command(partition, b"HGET", b"s/" + name, b"f")
    return floor is None or int(floor) > seq


async def _blob(store: RedisServers, partition: str, digest: bytes) -> list[Problem]:
    upload, chunks = await store.command(partition, b"HMGET", b"b/" + digest, b"u", b"n")
    found = []
    for number in range(int(chunks or 0)):
        data = await store.command(partition, b"GET", b"u/%b/%d" % (upload, number))
        if data is None or hashlib.sha256(data[32:]).digest() != data[:32]:
            found.append(Problem(f"blob {digest.decode()}", f"chunk {number}: its checksum is wrong"))
    if found and not await store.command(partition, b"EXISTS", b"b/" + digest):
        return []  # swept during the check
    return found


async def _totals(
    store: RedisServers, catalog: RedisCatalog, partition: str, collection: str, count: int
) -> list[Problem]:
    """Check that each index holds every record of a collection, and that the counters match.

    Concurrent writes can cause mismatches, also with the same totals before and after: one record was removed and
    another one added. So a mismatch is counted again, and reported only if it stays while the totals do not change.
    """
    known = catalog.entries.get(collection)
    done = await store.command(partition, b"HGET", b"shapes", f"{collection}!".encode())
    if known is None or done != b"%d" % known.version:
        return []
    before = await _sums(store, known, partition, collection)
    unchanged = 0
    for _ in range(COUNTS):
        if all(total == count for _, total in before):
            return []
        keys = {key async for key in store.keys(store.layout.records(collection, partition))}
        count = len(keys)
        after = await _sums(store, known, partition, collection)
        unchanged = unchanged + 1 if before == after else 0
        if unchanged == SURE:
            break
        before = after
    else:
        return []  # too many concurrent writes to decide
    return [Problem(what, f"it has {total} entries for {count} records") for what, total in before if total != count]


async def _sums(
    store: RedisServers, known: RedisCatalogEntry, partition: str, collection: str
) -> list[tuple[str, int]]:
    """Return the number of records in each index and each counter."""
    version, shape = known.version, known.shape
    cards = [
        store.command(partition, b"ZCARD", _index(collection, version, number))
        for number in range(1, len(shape.indexes) + 1)
    ]
    groups = [
        store.command(partition, b"HVALS", f"c/{collection}/{version}/{number}".encode())
        for number in range(1, len(shape.counters) + 1)
    ]
    indexes = [f"index {collection}/{index.name}" for index in shape.indexes]
    counters = [f"counter {collection}/{','.join(names) or 'all'}" for names in shape.counters]
    sums = [await card for card in cards] + [sum(map(int, await group)) for group in groups]
    return list(zip(indexes + counters, sums, strict=True))


async def _pages(store: RedisServers) -> AsyncIterator[list[tuple[str, bytes]]]:
    """Return partition and name of every key in pages, without the duplicates that SCAN can return during a rehash."""
    seen: set[int] = set()  # hashes: the keys themselves would take too much memory
    page: list[tuple[str, bytes]] = []
    async for key in store.keys(store.layout.pattern):
        mark = hash(key)
        place = store.layout.parse(key)
        if mark in seen or place is None:
            continue
        seen.add(mark)
        page.append(place)
        if len(page) == TOGETHER:
            yield page
            page = []
    yield page
