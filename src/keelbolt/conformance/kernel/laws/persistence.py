"""Laws of persistence: acknowledged commits exist after a reopen."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import collect, equal, expect, following
from keelbolt.conformance.kernel.samples import FAMILIES
from keelbolt.conformance.kernel.subject import KernelPlace, place_law
from keelbolt.kernel.blobs import Attach
from keelbolt.kernel.logs import Append, Draft, LogState, Trim
from keelbolt.kernel.records import Collection, Count, Index, Patch, Put, Query
from keelbolt.kernel.work import Enqueue

P = "p"
ENTRY = Draft("note", b"x")


@place_law("persistent")
async def a_reopened_storage_has_everything(place: KernelPlace) -> None:
    """All acknowledged records, logs, work, blobs and counters exist after close and reopen."""
    async with place.open() as kernel:
        blob = await kernel.stage_blob(P, bytes(300_000))
        await kernel.commit(
            P,
            Put("counted", "a", b"\0body", {"state": "a", "rank": 7}),
            Append("log", "s", (Draft("note", b"1", "once"), ENTRY, ENTRY)),
            Enqueue("runs", "a", lane="l", priority=3),
            Enqueue("runs", "held"),
            Attach(blob.digest, "a"),
        )
        await kernel.commit(P, Trim("log", "s", 2), Patch("counted", "a", {"state": "b"}))
        await kernel.commit(P, Put("passing", "a", b"", expires_in=600.0), Put("passing", "b", b"", expires_in=0.01))
        before = await kernel.get(P, "counted", "a")
        claims = await kernel.claim("runs", "w", lease_seconds=600.0)
        await asyncio.sleep(0.02)
    async with place.open() as kernel:
        equal(await kernel.get(P, "counted", "a"), before, "the record")
        equal(await kernel.count(P, Query("counted", {"state": "b"})), Count(1, exact=True), "the counter")
        equal(await kernel.log_state(P, "log", "s"), LogState(3, 2), "head and floor")
        await kernel.commit(P, claims[0].fenced())
        equal(len(await kernel.claim("runs", "v", limit=9)), 1, "the items that can be claimed")
        equal(await (await kernel.open_blob(P, blob.digest)).read(), bytes(300_000), "the blob")
        equal((await kernel.sweep()).blobs, 0, "the number of swept blobs")
        expect(await kernel.get(P, "passing", "a"), "a record expired at the reopen")
        expect(await kernel.get(P, "passing", "b") is None, "an expired record exists after the reopen")
        async with following(kernel.tail(P, "log", "s")) as tail:
            equal([entry.seq for entry in await collect(tail, 1)], [3], "the tail after reopening")


@place_law("persistent")
async def seqs_and_fences_continue_after_reopening(place: KernelPlace) -> None:
    """After a reopen, versions, seqs, fences and dedupe keys continue, also those of removed items."""
    fence = 0
    for number in range(1, 4):
        async with place.open() as kernel:
            receipt = await kernel.commit(
                P, Put("plain", "a", b""), Append("log", "s", (ENTRY, Draft("note", b"", "once"))), Enqueue("runs", "a")
            )
            equal(receipt.version("plain", "a"), number, "the version")
            wanted = (1, 2) if number == 1 else (number + 1, 2)
            equal(receipt.seqs("log", "s"), wanted, "the seqs")
            (claim,) = await kernel.claim("runs", f"w{number}")
            expect(claim.fence > fence, f"the fence {claim.fence} is not greater than {fence}")
            fence = claim.fence
            await kernel.commit(P, claim.complete())


@place_law("persistent")
async def unawaited_writes_survive_close(place: KernelPlace) -> None:
    """Commits that were called and not awaited before close exist after a reopen."""
    async with place.open() as kernel:
        commits = [kernel.commit(P, Append("log", "s", (ENTRY,))) for _ in range(20)]
    await asyncio.gather(*commits)
    async with place.open() as kernel:
        equal((await kernel.log_state(P, "log", "s")).head, 20, "the head after the commits that were not awaited")


@place_law("persistent")
async def data_follow_a_changed_declaration(place: KernelPlace) -> None:
    """The indexes of a new declaration find data written under the old one, after any number of reopens."""
    async with place.open((*FAMILIES, Collection("grown", fields={"rank": int}))) as kernel:
        await kernel.commit(P, *(Put("grown", f"k{n}", b"", {"rank": -n}) for n in range(5)))
    grown = Collection("grown", fields={"rank": int}, indexes=(Index("by_rank", (), "rank"),), counters=((),))
    for _ in range(2):
        async with place.open((*FAMILIES, grown)) as kernel:
            page = await kernel.find(P, Query("grown", order="rank"))
            equal([record.key for record in page.records], ["k4", "k3", "k2", "k1", "k0"], "the records by rank")
            equal(await kernel.count(P, Query("grown")), Count(5, exact=True), "the count")
