"""Laws of persistence: acknowledged commits exist after a reopen, and in other processes at the same place."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from keelbolt.conformance.child import Job, start, together
from keelbolt.conformance.expect import collect, equal, expect, following
from keelbolt.conformance.kernel import child
from keelbolt.conformance.kernel.subject import FAMILIES, KernelPlace, place_law, woken
from keelbolt.kernel.blobs import Attach
from keelbolt.kernel.hints import LogTopic, QueueTopic
from keelbolt.kernel.logs import Append, Draft, LogState, Trim
from keelbolt.kernel.records import Collection, Count, Index, Insert, Patch, Put, Query
from keelbolt.kernel.work import Enqueue

PROCESSES = 3


async def answers(place: KernelPlace, job: Job, *arguments: dict[str, Any]) -> list[Any]:
    async with together(place, job, *arguments) as children:
        return [await one.answer() for one in children]


@place_law("shared")
async def processes_append_to_dense_logs(place: KernelPlace) -> None:
    """Several processes append to the same streams: seqs are dense, each acknowledged entry is stored exactly once."""
    async with place.open() as kernel:
        jobs = [{"name": f"w{n}", "streams": ["s", "t"], "count": 40} for n in range(PROCESSES)]
        reported = await answers(place, child.append, *jobs)
        total = PROCESSES * 40
        for number, stream in enumerate(("s", "t")):
            entries = (await kernel.read_log(P, "log", stream, limit=1000)).entries
            equal([entry.seq for entry in entries], list(range(1, total + 1)), f"the seqs of {stream}")
            wanted = sorted((seqs[number], text) for some in reported for text, seqs in some)
            equal([(entry.seq, entry.data.decode()) for entry in entries], wanted, f"the entries of {stream}")
            for name in (f"w{n}" for n in range(PROCESSES)):
                mine = [entry.data.decode() for entry in entries if entry.data.decode().startswith(f"{name}.")]
                equal(mine, [f"{name}.{n}" for n in range(40)], f"the order of the entries of {name}")


@place_law("shared")
async def processes_count_with_versions(place: KernelPlace) -> None:
    """Several processes replace one record by the version they read: it counts exactly the successful commits."""
    async with place.open() as kernel:
        await kernel.commit(P, Insert("plain", "counter", b"0"))
        done = await answers(place, child.count, *({"times": 60} for _ in range(PROCESSES)))
        record = await kernel.get(P, "plain", "counter")
        expect(
            record is not None and int(record.body) == sum(done) == record.version - 1,
            f"{done} updates were committed, but the record is {record}",
        )
        expect(sum(done) >= 60, f"no process committed an update: {done}")


@place_law("shared")
async def processes_share_dedupe_keys(place: KernelPlace) -> None:
    """Several processes append one dedupe key: the entry is stored once, and all processes get its seq."""
    keys = [f"k{n}" for n in range(30)]
    async with place.open() as kernel:
        reported = await answers(place, child.repeat, *({"keys": keys[n:] + keys[:n]} for n in (0, 10, 20)))
        entries = (await kernel.read_log(P, "log", "s")).entries
        stored = {entry.data.decode(): entry.seq for entry in entries}
        equal(len(entries), 30, "the number of entries")
        for one in reported:
            equal(one, stored, "the seqs of a process")


@place_law("shared")
async def one_of_several_processes_takes_a_record(place: KernelPlace) -> None:
    """Several processes take the same records: each record goes to one process."""
    keys = [f"k{n}" for n in range(40)]
    async with place.open() as kernel:
        await kernel.commit(P, *(Put("plain", key, b"") for key in keys))
        won = await answers(place, child.take, *({"keys": keys} for _ in range(PROCESSES)))
        equal(sorted(key for some in won for key in some), sorted(keys), "the taken records")


@place_law("shared")
async def processes_share_the_work(place: KernelPlace) -> None:
    """Several processes claim: each item goes to one of them, and all items are completed once."""
    keys = [f"k{n:02}" for n in range(60)]
    async with place.open() as kernel:
        await kernel.commit(P, *(Enqueue("runs", key, lane=f"l{n % 4}") for n, key in enumerate(keys)))
        held = await answers(place, child.claim, *({"worker": f"w{n}", "limit": 2} for n in range(PROCESSES)))
        equal(sorted(key for some in held for key, _ in some), keys, "the items that were held")
        done = [entry.data.decode() for entry in (await kernel.read_log(P, "log", "done")).entries]
        equal(sorted(done), keys, "the items that were done")


@place_law("shared")
async def a_tail_sees_the_entries_of_another_process(place: KernelPlace) -> None:
    """A tail in one process yields the entries that another appends, in order, without gap or repeat."""
    async with place.open() as kernel:
        await kernel.commit(P, Append("log", "s", (Draft("note", b"first"),)))
        async with start(place, child.tail, after=0, count=31) as reader:
            await reader.ready()
            equal(await reader.answer(), [1, "first"], "the entry that was there")
            for number in range(2, 32):
                await kernel.commit(P, Append("log", "s", (Draft("note", str(number).encode()),)))
                if number % 10 == 0:
                    await asyncio.sleep(0.05)
            reported = [await reader.answer() for _ in range(30)]
        equal(reported, [[number, str(number)] for number in range(2, 32)], "the entries of the tail")


@place_law("shared")
async def tails_follow_several_writing_processes(place: KernelPlace) -> None:
    """A tail beside several writing processes yields 1..n once each, with the stored bytes."""
    async with place.open() as kernel:
        jobs = [{"name": f"w{n}", "streams": ["s"], "count": 40} for n in range(PROCESSES)]
        async with following(kernel.tail(P, "log", "s")) as tail, together(place, child.append, *jobs) as writers:
            seen = await collect(tail, PROCESSES * 40, seconds=40.0)
            for writer in writers:
                await writer.answer()
        stored = (await kernel.read_log(P, "log", "s", limit=1000)).entries
        equal(tuple(seen), stored, "the entries of the tail")


@place_law("shared")
async def a_watch_is_woken_by_another_process(place: KernelPlace) -> None:
    """A commit of one process wakes the watches of streams and queues in another."""
    async with place.open() as kernel:
        for topic, name in (("stream", "s"), ("queue", "runs")):
            async with start(place, child.watch, topic=topic, name=name) as waiting:
                await waiting.ready()
                await asyncio.sleep(0.1)
                await kernel.commit(P, Append("log", "s", (Draft("note", b""),)), Enqueue("runs", topic))
                equal(await waiting.answer(), True, f"whether the watch of {topic} was woken")
        queue, stream = kernel.watch(QueueTopic("runs")), kernel.watch(LogTopic(P, "log", "done"))

        async def enqueued() -> bool:
            return await kernel.work(P, "runs", "x") is not None

        async def done() -> bool:
            return (await kernel.log_state(P, "log", "done")).head > 0

        with queue, stream:
            async with together(place, child.enqueue, {"keys": ["x"]}) as children:
                equal(await woken(queue, enqueued, 20.0), True, "whether the queue's watch was woken")
                await children[0].answer()
            async with together(place, child.claim, {"worker": "w", "limit": 9}) as children:
                equal(await woken(stream, done, 20.0), True, "whether the stream's watch was woken")
                await children[0].answer()


@place_law("shared")
async def counters_are_exact_over_processes(place: KernelPlace) -> None:
    """Counters and indexes are exact for the writes of several processes."""
    async with place.open() as kernel:
        await answers(place, child.put, *({"name": f"s{n}", "count": 30} for n in range(PROCESSES)))
        equal(await kernel.count(P, Query("counted")), Count(PROCESSES * 30, exact=True), "all")
        for number in range(PROCESSES):
            query = Query("counted", {"state": f"s{number}"}, "rank")
            equal(await kernel.count(P, Query("counted", {"state": f"s{number}"})), Count(30, exact=True), "of a state")
            found = [record.fields["rank"] for record in (await kernel.find(P, query)).records]
            equal(found, list(range(30)), "the records found")


@place_law("shared")
async def acknowledged_entries_of_a_killed_process_exist(place: KernelPlace) -> None:
    """After kill -9 of a writer its acknowledged entries exist, the log is dense, and other processes can write."""
    async with place.open() as kernel, start(place, child.append_for_ever, name="w") as writer:
        await writer.ready()
        writer.go()
        reported = [await writer.answer() for _ in range(30)]
        await writer.kill()
        receipt = await kernel.commit(P, Append("log", "s", (Draft("note", b"after"),)))
        entries = (await kernel.read_log(P, "log", "s", limit=10_000)).entries
        equal([entry.seq for entry in entries], list(range(1, len(entries) + 1)), "the seqs")
        equal(receipt.seqs("log", "s"), (len(entries),), "the seq after the kill")
        stored = Counter(entry.data.decode() for entry in entries)
        equal([stored[text] for text, _ in reported], [1] * 30, "how often each acknowledged entry is stored")
        equal(
            [entries[seq - 1].data.decode() for _, seq in reported],
            [text for text, _ in reported],
            "where they are stored",
        )


@place_law("shared")
async def the_work_of_a_killed_process_is_taken_over(place: KernelPlace) -> None:
    """After kill -9 of its holder an item can be claimed when the lease ends, or before, with a greater fence."""
    async with place.open() as kernel:
        await kernel.commit(P, Enqueue("runs", "a"))
        async with start(place, child.hold, worker="w", lease_seconds=1.5) as holder:
            key, fence = await holder.answer()
            await holder.kill()
        await asyncio.sleep(1.6)
        (claim,) = await kernel.claim("runs", "v")
        equal((claim.key, claim.attempt), (key, 2), "the item that was taken over")
        expect(claim.fence > fence, f"the fence {claim.fence} is not greater than {fence}")


@place_law("shared")
async def the_work_of_a_live_process_is_not_taken_over(place: KernelPlace) -> None:
    """While the lease runs, no process claims an item of another live process, also if that is suspended."""
    async with place.open() as kernel:
        await kernel.commit(P, Enqueue("runs", "a"))
        async with start(place, child.hold, worker="w", lease_seconds=600) as holder:
            await holder.answer()
            await holder.ready()
            equal(list(await kernel.claim("runs", "v")), [], "the items that can be claimed beside a live process")
            holder.stop()
            equal(list(await kernel.claim("runs", "v")), [], "the items that can be claimed beside a suspended process")
            item = await kernel.work(P, "runs", "a")
            equal(item.holder if item is not None else None, "w", "the holder of the item")


@place_law("prompt")
async def the_work_of_a_killed_process_is_taken_over_at_once(place: KernelPlace) -> None:
    """After kill -9 of its holder an item can be claimed at once, before the lease ends; watches of its queue wake."""
    async with place.open() as kernel:
        await kernel.commit(P, Enqueue("runs", "a"))
        with kernel.watch(QueueTopic("runs")) as watch:
            async with start(place, child.hold, worker="w", lease_seconds=600) as holder:
                key, fence = await holder.answer()
                await holder.ready()
                while await watch.wait(0.5):
                    pass
                await holder.kill()
            equal(await watch.wait(20.0), True, "whether the queue's watch was woken")
        claims = await kernel.claim("runs", "v")
        equal([(claim.key, claim.attempt) for claim in claims], [(key, 2)], "the items taken over")
        expect(claims[0].fence > fence, f"the fence {claims[0].fence} is not greater than {fence}")
        equal(list(await kernel.claim("runs", "u")), [], "the items that a third worker can claim")


@place_law("shared")
async def a_process_that_lost_its_item_is_refused(place: KernelPlace) -> None:
    """A process that lost its item to another one is refused under its old fence."""
    async with place.open() as kernel:
        await kernel.commit(P, Enqueue("runs", "a"))
        async with start(place, child.hold, worker="w", lease_seconds=0.2) as holder:
            _, fence = await holder.answer()
            await holder.ready()
            await asyncio.sleep(0.3)
            (claim,) = await kernel.claim("runs", "v")
            expect(claim.fence > fence, f"the fence {claim.fence} is not greater than {fence}")
            holder.go()
            equal(await holder.answer(), ["refused", "fence", claim.fence], "the result of the old holder")
        expect(await kernel.get(P, "plain", "stale") is None, "the old holder wrote a record")


@place_law("shared")
async def an_older_declaration_never_breaks_a_newer_one(place: KernelPlace) -> None:
    """A process with an older declaration keeps the indexes and counters of the newer one right, or is refused."""
    old = (*FAMILIES, Collection("grown", fields={"rank": int}))
    new = Collection("grown", fields={"rank": int}, indexes=(Index("by_rank", (), "rank"),), counters=((),))
    async with start(place, child.put_grown, opened={"declare": old}, keys=["a", "b"]) as writer:
        await writer.ready()
        async with place.open((*FAMILIES, new)) as kernel:
            await kernel.commit(P, Put("grown", "first", b"", {"rank": -1}))
            writer.go()
            wanted = ["first", *await writer.answer()]
            page = await kernel.find(P, Query("grown", order="rank"))
            equal([record.key for record in page.records], wanted, "the records found by the new index")
            equal(await kernel.count(P, Query("grown")), Count(len(wanted), exact=True), "the count of the new counter")
            there = await kernel.get_many(P, "grown", ["first", "a", "b"])
            equal([record.key for record in there if record], wanted, "the stored records")


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
