"""Inspection of the whole file: statistics, and detection of damage."""

from __future__ import annotations

import hashlib
import logging
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from keelbolt.kernel.contract import Problem, Stats, WorkCounts
from keelbolt.kernel.declarations import Catalog, CheckedCollection, load_fields
from keelbolt.kernel.ledger import oldest_ready, work_counts, work_state
from keelbolt.kernel.sqlite.connection import SQL, SqliteConnection
from keelbolt.kernel.sqlite.files import WriteLock
from keelbolt.kernel.sqlite.readers import SqliteReaders, only
from keelbolt.kernel.sqlite.rows import body_is_sound, entry_is_sound, head_crc, work_is_sound

logger = logging.getLogger("keelbolt.kernel")

PAGE_ROWS = 500
CHECKPOINT_SECONDS = 2.0  # how long opening waits for another connection's checkpoint
WAL_HEADER_BYTES = 32
WAL_FRAME_BYTES = 24  # before each page


def stats(connection: SqliteConnection, path: str, *, now: int) -> Stats:
    work = work_counts(row[:3] for row in connection.execute(SQL["count_items"]))
    blobs, blob_bytes = connection.execute(
        "SELECT count(*), ifnull(sum(size), 0) FROM blob WHERE digest IS NOT NULL"
    ).fetchone()
    records = Counter(dict(connection.execute(SQL["count_records"]).fetchall()))
    expired = "SELECT collection, count(*) FROM record WHERE expires_at <= ? GROUP BY collection"
    records.subtract(dict(connection.execute(expired, (now,)).fetchall()))
    return Stats(
        partitions=only(connection.execute("SELECT count(*) FROM partition").fetchone()),
        records={name: count for name, count in records.items() if count},
        streams=only(connection.execute("SELECT count(*) FROM stream").fetchone()),
        entries=only(connection.execute("SELECT ifnull(sum(head - floor), 0) FROM stream").fetchone()),
        blobs=blobs,
        blob_bytes=blob_bytes,
        work=work,
        workers=only(connection.execute("SELECT count(*) FROM worker").fetchone()),
        bytes=_size(path) + _size(f"{path}-wal"),
        engine={
            "schema": only(connection.execute("SELECT max(number) FROM migration").fetchone()),
            "wal_bytes": _size(f"{path}-wal"),
            "free_pages": only(connection.execute("PRAGMA freelist_count").fetchone()),
            "sqlite": connection.execute("SELECT sqlite_version()").fetchone()[0],
        },
    )


def count_work(connection: SqliteConnection, queues: Sequence[str], *, now: int) -> WorkCounts:
    items = [row for row in connection.execute(SQL["count_items"]) if row[0] in queues]
    holders: Counter[str] = Counter()
    for queue, holder, count in connection.execute(SQL["count_held"]):
        holders[holder] += count if queue in queues else 0
    return WorkCounts(
        work=work_counts(row[:3] for row in items),
        holders={holder: count for holder, count in holders.items() if count},
        workers={
            worker: (until - now) / 1_000_000
            for worker, until in connection.execute("SELECT id, lease_until FROM worker")
        },
        oldest=oldest_ready([(row[0], row[3]) for row in items if work_state(row[1]) == "waiting"], now=now),
    )


def _size(path: str) -> int:
    place = Path(path)
    return place.stat().st_size if place.exists() else 0


class RowCheck(Protocol):
    """Checks some rows after a number. Returns the problems and the next start number (None: no more rows)."""

    def __call__(self, connection: SqliteConnection, *, after: int) -> tuple[list[Problem], int | None]: ...


async def check(
    readers: SqliteReaders, load_catalog: Callable[[SqliteConnection], Catalog], lost_frames: int
) -> AsyncIterator[Problem]:
    """Check the whole file, in many short reads, and yield each problem."""
    for problem in await readers.run(lambda connection: list(pages_and_tables(connection))):
        yield problem
    if lost_frames:
        yield Problem("the write-ahead log", f"{lost_frames} committed frames at its end could not be read")
    for look in (references, work):
        for problem in await readers.run(look):
            yield problem
    for page in (records, streams, blob_chunks):
        async for problem in _pages(readers, page):
            yield problem
    catalog = await readers.run(load_catalog)
    for shape, base in catalog.shapes.values():
        for totals in (index_totals, counter_totals):
            for problem in await readers.run(partial(totals, shape=shape, base=base)):
                yield problem
        async for problem in _pages(readers, partial(misplaced, shape=shape, base=base)):
            yield problem


async def _pages(readers: SqliteReaders, page: RowCheck) -> AsyncIterator[Problem]:
    after: int | None = 0
    while after is not None:
        found, after = await readers.run(partial(page, after=after))
        for problem in found:
            yield problem


def pages_and_tables(connection: SqliteConnection) -> Iterator[Problem]:
    for (message,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
        if message != "ok":
            yield Problem("the file", message.splitlines()[0])


def records(connection: SqliteConnection, *, after: int) -> tuple[list[Problem], int | None]:
    """Return the problems of some records, and where to continue (None: these were the last)."""
    rows = connection.execute(
        f"SELECT id, {_HEAD}, body_crc, body FROM record WHERE id > ? ORDER BY id LIMIT ?", (after, PAGE_ROWS)
    ).fetchall()
    problems = []
    for _, *row, crc, body in rows:
        head = _Head.of(row)
        if not head.sound or not body_is_sound(body, crc):
            problems.append(Problem(f"record {head.collection}/{head.key[:80]}", "its checksum is wrong"))
    return problems, rows[-1][0] if rows else None


# Read as bytes: damaged text could not be fetched at all.
_HEAD = (
    "CAST(partition AS BLOB), CAST(collection AS BLOB), CAST(key AS BLOB), version, CAST(fields AS BLOB), expires_at, "
    "head_crc"
)


class _Head(NamedTuple):
    """A record without its body."""

    partition: str
    collection: str
    key: str
    fields: str
    sound: bool

    @classmethod
    def of(cls, row: Sequence[Any]) -> _Head:
        partition, collection, key, fields = (_text(row[place]) for place in (0, 1, 2, 4))
        sound = head_crc(partition, collection, key, row[3], fields, row[5]) == row[6]
        return cls(partition, collection, key, fields, sound)


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def streams(connection: SqliteConnection, *, after: int) -> tuple[list[Problem], int | None]:
    rows = connection.execute(
        "SELECT id, CAST(log AS BLOB), CAST(name AS BLOB), head, floor FROM stream WHERE id > ? ORDER BY id LIMIT 1",
        (after,),
    ).fetchall()
    problems = []
    for number, log, name, head, floor in rows:
        where = f"log {_text(log)}/{_text(name)[:80]}"
        expected = floor
        for seq, at, crc, kind, data in connection.execute(
            "SELECT seq, at, crc, CAST(kind AS BLOB), data FROM entry WHERE stream = ? ORDER BY seq", (number,)
        ):
            expected += 1
            if seq != expected:
                problems.append(Problem(where, f"entry {expected} is missing"))
                expected = seq
            if not entry_is_sound(number, seq, at, _text(kind), data, crc):
                problems.append(Problem(where, f"entry {seq}: its checksum is wrong"))
        if expected != head:
            problems.append(Problem(where, f"it ends at {expected} instead of {head}"))
    return problems, rows[-1][0] if rows else None


def blob_chunks(connection: SqliteConnection, *, after: int) -> tuple[list[Problem], int | None]:
    rows = connection.execute(
        "SELECT rowid, blob, number, sha256, data FROM blob_chunk WHERE rowid > ? ORDER BY rowid LIMIT 16", (after,)
    ).fetchall()
    problems = [
        Problem(f"blob {blob}", f"chunk {number}: its checksum is wrong")
        for _, blob, number, digest, data in rows
        if not isinstance(data, bytes) or hashlib.sha256(data).digest() != digest
    ]
    return problems, rows[-1][0] if rows else None


def references(connection: SqliteConnection) -> list[Problem]:
    """Return a problem for each broken reference between tables."""
    queries = (
        SQL["check_partitions"],
        SQL["check_holders"],
        SQL["check_fences"],
        SQL["check_blob_sizes"],
        SQL["check_blob_holders"],
        SQL["check_holdings"],
    )
    return [Problem(where, what) for query in queries for where, what in connection.execute(query)]


def work(connection: SqliteConnection) -> list[Problem]:
    rows = connection.execute(SQL["all_work"])
    return [Problem(f"work {row[1]}/{row[2][:80]}", "its checksum is wrong") for row in rows if not work_is_sound(row)]


def index_totals(connection: SqliteConnection, *, shape: CheckedCollection, base: int) -> list[Problem]:
    """Return a problem for each index whose number of entries is not the number of records."""
    (count,) = connection.execute("SELECT count(*) FROM record WHERE collection = ?", (shape.name,)).fetchone()
    problems = []
    for number, index in enumerate(shape.indexes):
        (found,) = connection.execute(
            "SELECT count(*) FROM record_index JOIN record ON record.id = record_index.record WHERE name = ?",
            (base + number,),
        ).fetchone()
        if found != count:
            problems.append(Problem(f"index {shape.name}/{index.name}", f"it has {found} entries for {count} records"))
    return problems


def counter_totals(connection: SqliteConnection, *, shape: CheckedCollection, base: int) -> list[Problem]:
    """Return a problem for each counter whose totals differ from the records."""
    if not shape.counters:
        return []
    counted: list[Counter[bytes]] = [Counter() for _ in shape.counters]
    for row in connection.execute(f"SELECT {_HEAD} FROM record WHERE collection = ?", (shape.name,)):
        head = _Head.of(row)
        if not head.sound:
            return []  # the damaged record is already reported, and its group is unknown
        for number, group in enumerate(shape.groups(head.partition, load_fields(head.fields))):
            counted[number][group] += 1
    problems = []
    for number, names in enumerate(shape.counters):
        stored = dict(connection.execute("SELECT grp, total FROM counter WHERE name = ?", (base + number,)).fetchall())
        wrong = sum(stored.get(group, 0) != counted[number][group] for group in stored.keys() | counted[number].keys())
        if wrong:
            where = f"counter {shape.name}/{','.join(names) or 'all'}"
            problems.append(Problem(where, f"{wrong} of its totals differ from the records"))
    return problems


def misplaced(
    connection: SqliteConnection, *, shape: CheckedCollection, base: int, after: int
) -> tuple[list[Problem], int | None]:
    """Return a problem for each record of a page with a wrong index entry, and where to continue."""
    rows = connection.execute(
        f"SELECT id, {_HEAD} FROM record WHERE collection = ? AND id > ? ORDER BY id LIMIT ?",
        (shape.name, after, PAGE_ROWS),
    ).fetchall()
    problems = []
    for number, *row in rows:
        head = _Head.of(row)
        if not head.sound:
            continue  # the damaged record is already reported, and its entries are unknown
        for place, entry in enumerate(shape.entries(head.partition, head.key, load_fields(head.fields))):
            found = connection.execute(
                "SELECT record FROM record_index WHERE name = ? AND entry = ?", (base + place, entry)
            ).fetchone()
            if found is None or found[0] != number:
                where = f"record {shape.name}/{head.key[:80]}"
                problems.append(Problem(where, f"its entry is missing or wrong in index {shape.indexes[place].name}"))
    return problems, rows[-1][0] if rows else None


def lost_frames(connection: SqliteConnection, lock: WriteLock, *, rebooted: bool) -> int:
    """Return the number of committed frames of the write-ahead log that SQLite could not read: 0 unless it is damaged.

    SQLite silently treats a frame with a wrong checksum as the end of the log. But later frames that carry the log's
    current salt belong to its current generation. A writer that died during a write leaves such frames too, which the
    lock records, and a power loss may. Call it outside of a transaction, before anything is written.

    The log's index (-shm) must not be opened here: closing it would drop SQLite's own locks of this process on it.
    """
    with lock.held():
        if rebooted:
            lock.distrust()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        last, salt = _last_commit(lock.wal, page_size)
        if last == 0 or lock.distrusts(salt):
            return 0
        known = _known_frames(connection)
        return max(last - known, 0) if known is not None else 0


def _known_frames(connection: SqliteConnection) -> int | None:
    """Return the number of frames that SQLite reads from the log; None if another checkpoint does not end in time.

    While another connection runs a checkpoint, SQLite returns (1, -1, -1) without waiting.
    """
    deadline = time.monotonic() + CHECKPOINT_SECONDS
    while True:
        _, known, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if known >= 0:
            return int(known)
        if time.monotonic() > deadline:
            logger.warning("the write-ahead log was not checked: another process did not finish its checkpoint in time")
            return None
        time.sleep(0.002)


def _last_commit(wal: Path, page_size: int) -> tuple[int, bytes]:
    """Return the number of the last frame that ends a transaction, and the salt of the log's current generation."""
    if not wal.exists() or wal.stat().st_size <= WAL_HEADER_BYTES + WAL_FRAME_BYTES:
        return 0, b""
    with wal.open("rb") as file:
        header, first = file.read(WAL_HEADER_BYTES), file.read(WAL_FRAME_BYTES)
        salt = header[16:24] if _sound_header(header) else first[8:16]
        file.seek(WAL_HEADER_BYTES)
        last = number = 0
        while len(frame := file.read(WAL_FRAME_BYTES)) == WAL_FRAME_BYTES:
            number += 1
            if frame[8:16] == salt and frame[4:8] != b"\0\0\0\0":
                last = number
            file.seek(page_size, 1)
    return last, salt


def _sound_header(header: bytes) -> bool:
    """Return whether the header of a write-ahead log matches its checksum. If not, SQLite silently ignores the log."""
    return any(_checksum(header[:24], order) == header[24:32] for order in "<>")


def _checksum(data: bytes, order: str) -> bytes:
    one = two = 0
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return struct.pack(">II", one, two)
