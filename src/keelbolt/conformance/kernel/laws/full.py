"""Laws of a full storage: it accepts commits that free space, and refuses all others as a whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

from keelbolt.conformance.expect import broken, equal, expect, raises
from keelbolt.conformance.kernel.subject import KernelPlace, place_law
from keelbolt.errors import StorageFull
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import Append, Draft, Drop, LogState, Trim
from keelbolt.kernel.records import Delete, Put, Replace, Take
from keelbolt.kernel.work import Claim, Enqueue, Remove

P = "p"
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
