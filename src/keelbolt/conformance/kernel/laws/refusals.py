"""Laws of refused calls: an invalid call and a commit to a full storage raise a typed error and have no effect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from keelbolt.conformance.expect import broken, equal, expect, raises
from keelbolt.conformance.kernel.subject import KernelPlace, law, place_law
from keelbolt.errors import InvalidName, InvalidRequest, InvalidValue, NotDeclared, StorageFull, TooLarge
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import (
    MAX_COMMIT_BYTES,
    MAX_KEY_CHARS,
    MAX_PARTITION_BYTES,
    MAX_REASON_CHARS,
    MAX_VALUE_BYTES,
    Kernel,
)
from keelbolt.kernel.logs import Append, Draft, Drop, Head, LogState, Start, Trim
from keelbolt.kernel.records import (
    MAX_FIELD_CHARS,
    Absent,
    Collection,
    Delete,
    Expire,
    FieldIn,
    FieldNotIn,
    Index,
    Insert,
    Patch,
    Present,
    Put,
    Query,
    Replace,
    Restore,
    Take,
    Version,
)
from keelbolt.kernel.work import Bury, Claim, Complete, Enqueue, Release, Remove, Retry

BODY = random.Random(1).randbytes(64_000)  # some engines compress
BLOB = b"blob"
MOST_COMMITS = 1000  # 64 MB
KINDS = ("complete", "release", "retry", "bury", "end", "retire")
MORE_RECORDS = tuple(Put("plain", f"more-{number}", BODY) for number in range(8))
MORE_ENTRIES = Append("log", "more", (Draft("note", BODY),) * 8)
END = Append("log", "end", (Draft("end", b"done"),))


@asynccontextmanager
async def full(place: KernelPlace) -> AsyncIterator[tuple[Kernel, dict[str, Claim]]]:
    """A storage that was written until it was full, and claims of some of its work."""
    async with place.open(small=True) as kernel:
        blob = await kernel.stage_blob(P, BLOB)
        await kernel.commit(
            P,
            *(Put("plain", key, BODY) for key in ("deleted", "taken", "kept")),
            Put("plain", "state", b"working"),
            Append("log", "s", (Draft("note", BODY), Draft("note", BODY))),
            Append("log", "dropped", (Draft("note", BODY),)),
            Append("log", "end", (Draft("begin", b""),)),
            Attach(blob.digest, "holder"),
            *(Enqueue("runs", kind) for kind in KINDS),
            Enqueue("idle", "removed"),
        )
        claims = await kernel.claim("runs", "w", limit=len(KINDS), lease_seconds=600.0)
        await fill(kernel)
        yield kernel, {claim.key: claim for claim in claims}


async def fill(kernel: Kernel) -> None:
    for number in range(MOST_COMMITS):
        try:
            await kernel.commit(P, Put("plain", f"filler-{number}", BODY))
        except StorageFull as error:
            expect(error.retryable, "StorageFull is not retryable")
            return
    broken(f"{MOST_COMMITS} records of {len(BODY)} bytes did not fill the storage that KernelSubject.small made")


@place_law("small")
async def a_full_storage_refuses_commits_that_only_add(place: KernelPlace) -> None:
    """A full storage raises StorageFull for a commit that only adds and writes nothing of it; reads work."""
    async with full(place) as (kernel, _):
        for _ in range(3):
            with raises(StorageFull):
                await kernel.commit(P, *MORE_RECORDS, MORE_ENTRIES)
            expect(await kernel.get(P, "plain", "more-0") is None, "a refused record was written")
        equal(await kernel.log_state(P, "log", "more"), LogState(0, 0), "the log of the refused entries")
        record = await kernel.get(P, "plain", "kept")
        expect(record is not None and record.body == BODY, "a record can't be read")
        equal((await kernel.read_log(P, "log", "s")).head, 2, "the head of a log")
        health = await kernel.health()
        expect(health.reads, "health() reports that reads don't work")


@place_law("small")
async def a_full_storage_accepts_commits_that_free_space(place: KernelPlace) -> None:
    """A full storage accepts each operation that ends, releases or erases, with a small record and entry beside it."""
    async with full(place) as (kernel, claims):
        given_back: tuple[tuple[Operation, ...], ...] = (
            (Delete("plain", "deleted"),),
            (Replace("plain", "state", 1, b"done"), END, claims["end"].complete()),
            (claims["complete"].complete(),),
            (claims["release"].release(),),
            (claims["retry"].retry("why", ready_in=60.0),),
            (claims["bury"].bury("why"),),
            (Remove("idle", "removed"),),
            (Take("plain", "taken"),),
            (Trim("log", "s", 1),),
            (Drop("log", "dropped"),),
            (Detach(sha256(BLOB).hexdigest(), "holder"),),
        )
        for operations in given_back:
            await kernel.commit(P, *operations)
        await kernel.heartbeat("w")
        equal(await kernel.retire("w"), 1, "the number of items that retire() freed")
        await kernel.sweep()
        equal((await kernel.log_state(P, "log", "end")).head, 2, "the head of the log with the end of the work")
        expect(await kernel.work(P, "runs", "end") is None, "the completed item still exists")
        expect(await kernel.get(P, "plain", "deleted") is None, "the deleted record still exists")


@place_law("small")
async def a_full_storage_refuses_commits_that_free_and_add(place: KernelPlace) -> None:
    """A full storage refuses a commit that frees space and adds much, as a whole."""
    async with full(place) as (kernel, claims):
        with raises(StorageFull):
            await kernel.commit(P, Remove("idle", "removed"), *MORE_RECORDS)
        with raises(StorageFull):
            await kernel.commit(P, claims["end"].complete(), MORE_ENTRIES)
        expect(await kernel.work(P, "idle", "removed") is not None, "a part of a refused commit was written")
        await kernel.commit(P, claims["end"].fenced(), claims["end"].complete())


@place_law("small")
async def freeing_commits_pass_beside_refused_ones(place: KernelPlace) -> None:
    """Commits that free space pass when they are called together with commits that a full storage refuses."""
    async with full(place) as (kernel, claims):
        results = await asyncio.gather(
            kernel.commit(P, *MORE_RECORDS),
            kernel.commit(P, claims["end"].complete(), Replace("plain", "state", 1, b"done"), END),
            kernel.commit(P, MORE_ENTRIES),
            kernel.commit(P, Delete("plain", "deleted")),
            return_exceptions=True,
        )
        for result in results[::2]:
            expect(isinstance(result, StorageFull), f"a commit that only adds ended with {result!r}")
        for result in results[1::2]:
            expect(not isinstance(result, BaseException), f"a commit that frees space ended with {result!r}")
        expect(await kernel.work(P, "runs", "end") is None, "the completed item still exists")


P = "p"
ENTRY = Draft("note", b"")

BAD_KEYS: tuple[Any, ...] = ("", "k" * (MAX_KEY_CHARS + 1), "\ud800", "a\0b", None, 7, b"a")
BAD_PARTITIONS: tuple[Any, ...] = ("", "p" * (MAX_PARTITION_BYTES + 1), "世" * 70, "\ud800", "a\0b", None, 7)


async def refused(kernel: Kernel, kind: type[InvalidRequest], *operations: Operation) -> None:
    """The commit raises this error, and no other operation of the commit is written."""
    with raises(kind):
        await kernel.commit(P, Put("plain", "beside", b""), *operations)
    expect(
        await kernel.get(P, "plain", "beside") is None,
        f"a write was stored with an invalid {type(operations[0]).__name__}",
    )


@law()
async def bad_keys_are_invalid_names(kernel: Kernel) -> None:
    """A key that is empty, too long, not text, or has NUL or a lone surrogate raises InvalidName everywhere."""
    for bad in BAD_KEYS:
        for operation in (
            Version("plain", bad, 1),
            Absent("plain", bad),
            Present("plain", bad),
            FieldIn("things", bad, "rank", (1,)),
            FieldNotIn("things", bad, "rank", (1,)),
            Insert("plain", bad, b""),
            Restore("plain", bad, 1, b""),
            Put("plain", bad, b""),
            Replace("plain", bad, 1, b""),
            Patch("things", bad, {"rank": 1}),
            Delete("plain", bad),
            Take("plain", bad),
            Head("log", bad, 0),
            Append("log", bad, (ENTRY,)),
            Start("log", bad, 1),
            Trim("log", bad, 1),
            Drop("log", bad),
            Enqueue("runs", bad),
            Complete("runs", bad, 1),
            Release("runs", bad, 1),
            Retry("runs", bad, 1, "why"),
            Bury("runs", bad, 1, "why"),
            Remove("runs", bad),
            Attach("0" * 64, bad),
        ):
            await refused(kernel, InvalidName, operation)
        if bad is not None:
            await refused(kernel, InvalidName, Append("log", "s", (Draft("note", b"", bad),)))
        with raises(InvalidName):
            await kernel.get(P, "plain", bad)
        with raises(InvalidName):
            await kernel.get_many(P, "plain", ["good", bad])
        with raises(InvalidName):
            await kernel.read_log(P, "log", bad)
        with raises(InvalidName):
            await kernel.work(P, "runs", bad)


@law()
async def bad_partitions_are_invalid_names(kernel: Kernel) -> None:
    """A partition that is empty, too long, not text, or has NUL or a lone surrogate raises InvalidName."""
    for bad in BAD_PARTITIONS:
        with raises(InvalidName):
            await kernel.commit(bad, Put("plain", "a", b""))
        with raises(InvalidName):
            await kernel.get(bad, "plain", "a")
        with raises(InvalidName):
            await kernel.find(bad, Query("things"))
        with raises(InvalidName):
            await kernel.log_state(bad, "log", "s")
        with raises(InvalidName):
            await kernel.work(bad, "runs", "a")
        with raises(InvalidName):
            await kernel.stage_blob(bad, b"")
    longest = "p" * MAX_PARTITION_BYTES
    await kernel.commit(longest, Put("plain", "a", b""))
    expect(await kernel.get(longest, "plain", "a"), "a partition of exactly the limit was lost")


@law()
async def bad_names_of_families_are_invalid_names(kernel: Kernel) -> None:
    """Logs, queues, collections, fields and indexes have plain names; others raise InvalidName."""
    for bad in ("", "Upper", "1st", "a b", "a/b", "ü", "n" * 65):
        await refused(kernel, InvalidName, Append(bad, "s", (ENTRY,)))
        await refused(kernel, InvalidName, Enqueue(bad, "a"))
        with raises(InvalidName):
            await kernel.read_log(P, bad, "s")
        with raises(InvalidName):
            await kernel.claim(bad, "w")
        with raises(InvalidName):
            await kernel.declare(Collection(bad))
        with raises(InvalidName):
            await kernel.declare(Collection("good", fields={bad: str}))


@law()
async def undeclared_collections_and_fields_are_refused(kernel: Kernel) -> None:
    """A collection or field that is not declared raises NotDeclared, in writes, checks and reads."""
    await refused(kernel, NotDeclared, Put("undeclared", "a", b""))
    await refused(kernel, NotDeclared, Absent("undeclared", "a"))
    await refused(kernel, NotDeclared, Present("undeclared", "a"))
    await refused(kernel, NotDeclared, Take("undeclared", "a"))
    await refused(kernel, NotDeclared, Put("things", "a", b"", {"undeclared": 1}))
    await refused(kernel, NotDeclared, Put("plain", "a", b"", {"rank": 1}))
    await refused(kernel, NotDeclared, Patch("things", "a", {"undeclared": 1}))
    await refused(kernel, NotDeclared, FieldIn("things", "a", "undeclared", (1,)))
    await refused(kernel, NotDeclared, Put("plain", "a", b"", expires_in=1.0))
    with raises(NotDeclared):
        await kernel.get(P, "undeclared", "a")
    with raises(NotDeclared):
        await kernel.find(P, Query("undeclared"))
    with raises(NotDeclared):
        await kernel.count(P, Query("undeclared"))


@law()
async def values_of_a_wrong_type_are_refused(kernel: Kernel) -> None:
    """A value of another type than declared, or out of range, raises InvalidValue and nothing is written."""
    bad: dict[str, tuple[Any, ...]] = {
        "whole": (1.0, "1", True, 2**63, -(2**63) - 1),
        "real": ("1.0", True, float("nan"), float("inf")),
        "flag": (0, 1, "true"),
        "text": (1, b"text", ["text"]),
    }
    no_bytes: tuple[Any, ...] = ("text", None, 7, {"json": 1})
    no_seconds: tuple[Any, ...] = (-1, float("nan"), float("inf"), "soon")
    no_number: tuple[Any, ...] = (-1, "1", 1.5, None)
    wrong: tuple[Any, ...] = (
        *(Put("typed", "a", b"", {name: value}) for name, values in bad.items() for value in values),
        *(Put("plain", "a", value) for value in no_bytes),
        *(Append("log", "s", (Draft("note", value),)) for value in no_bytes),
        *(Put("passing", "a", b"", expires_in=value) for value in no_seconds if value is not None),
        *(Enqueue("runs", "a", ready_in=value) for value in no_seconds),
        *(Enqueue("runs", "a", max_attempts=value) for value in (0, *no_number)),
        *(Enqueue("runs", "a", priority=value) for value in no_number[1:]),
        *(Version("plain", "a", value) for value in no_number),
        *(Replace("plain", "a", value, b"") for value in no_number),
        *(Head("log", "s", value) for value in no_number),
        *(Trim("log", "s", value) for value in no_number),
        FieldIn("typed", "a", "whole", ("1",)),
        Patch("typed", "a", {"whole": "1"}),
        Append("log", "s", ()),
        Append("log", "s", ("entry",)),  # type: ignore[arg-type]
        Bury("runs", "a", 1, "x" * (MAX_REASON_CHARS + 1)),
        Expire("passing", "a"),  # an operation that only engines use, in a sweep
        "not an operation",
        None,
    )
    for operation in wrong:
        await refused(kernel, InvalidValue, operation)


@law()
async def a_commit_without_operations_is_refused(kernel: Kernel) -> None:
    """A commit needs at least one operation."""
    with raises(InvalidRequest):
        await kernel.commit(P)


@law()
async def large_values_are_refused(kernel: Kernel) -> None:
    """A body, entry, text field or commit over its limit raises TooLarge, and nothing is written."""
    await refused(kernel, TooLarge, Put("typed", "a", b"", {"text": "x" * (MAX_FIELD_CHARS + 1)}))
    over = bytes(MAX_VALUE_BYTES + 1)
    await refused(kernel, TooLarge, Put("plain", "a", over))
    await refused(kernel, TooLarge, Append("log", "s", (ENTRY, Draft("note", over))))
    full = bytes(MAX_VALUE_BYTES)
    count = MAX_COMMIT_BYTES // MAX_VALUE_BYTES + 1
    await refused(kernel, TooLarge, *(Put("plain", f"k{n}", full) for n in range(count)))
    equal((await kernel.log_state(P, "log", "s")).head, 0, "the head of the stream")


@law()
async def invalid_limits_of_reads_are_refused(kernel: Kernel) -> None:
    """Limits, seqs and times of reads that are not valid numbers raise InvalidValue."""
    bad: Any
    for bad in (0, -1, 1.5, "ten", None):
        with raises(InvalidValue):
            await kernel.find(P, Query("things"), limit=bad)
        with raises(InvalidValue):
            await kernel.read_log(P, "log", "s", limit=bad)
        with raises(InvalidValue):
            await kernel.claim("runs", "w", limit=bad)
        with raises(InvalidValue):
            await kernel.list_work(P, "runs", state="dead", limit=bad)
        with raises(InvalidValue):
            await kernel.sweep(limit=bad)
    for bad in (-1, "one", 1.5):
        with raises(InvalidValue):
            await kernel.read_log(P, "log", "s", after=bad)
    for bad in (0, -1.0, float("nan"), float("inf"), "long"):
        with raises(InvalidValue):
            await kernel.claim("runs", "w", lease_seconds=bad)
        with raises(InvalidValue):
            await kernel.heartbeat("w", lease_seconds=bad)
    bad = "asleep"
    with raises(InvalidValue):
        await kernel.list_work(P, "runs", state=bad)


@law()
async def bad_workers_are_invalid_names(kernel: Kernel) -> None:
    """A worker name that is empty, too long or not text raises InvalidName."""
    bad: Any
    for bad in ("", "w" * 5000, None, 7, "\ud800"):
        with raises(InvalidName):
            await kernel.claim("runs", bad)
        with raises(InvalidName):
            await kernel.heartbeat(bad)
        with raises(InvalidName):
            await kernel.retire(bad)
        if bad is not None:
            await refused(kernel, InvalidName, Enqueue("runs", "a", worker=bad))


@law()
async def bad_declarations_are_refused(kernel: Kernel) -> None:
    """A declaration with unknown types or fields, too many indexes, or counters of expiring records is refused."""
    kind: Any = list
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", fields={"a": kind}))
    with raises(NotDeclared):
        await kernel.declare(Collection("bad", indexes=(Index("by_a", ("a",)),)))
    with raises(NotDeclared):
        await kernel.declare(Collection("bad", counters=(("a",),)))
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", indexes=tuple(Index(f"i{n}") for n in range(5))))
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", indexes=(Index("one"), Index("one"))))
    with raises(InvalidValue):
        await kernel.declare(Collection("bad", counters=((),), expiring=True))
    with raises(NotDeclared):
        await kernel.commit(P, Put("bad", "a", b""))
