"""Laws of commit: atomic, in the order of the calls, independent of other callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from keelbolt.conformance.expect import collect, equal, expect, following, raises
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.errors import CommitRefused, InvalidRequest, WrittenTwice
from keelbolt.kernel.blobs import Attach, Detach
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import MAX_VALUE_BYTES, Kernel
from keelbolt.kernel.logs import Append, Draft, Drop, Head, Trim
from keelbolt.kernel.records import Absent, Delete, Insert, Patch, Put, Query, Replace, Take, Version
from keelbolt.kernel.work import Complete, Enqueue, Fence, Remove

P = "p"


def note(text: str = "x", dedupe: str | None = None) -> Draft:
    return Draft("note", text.encode(), dedupe)


async def ended(commits: list[Awaitable[Receipt]]) -> list[Receipt | BaseException]:
    return await asyncio.gather(*commits, return_exceptions=True)


# ---------------------------------------------------------------------------------------------------- whole or not


@law()
async def one_commit_writes_records_logs_work_and_blobs(kernel: Kernel) -> None:
    """One commit writes records, several streams, work and a blob's holder; its receipt has the outcome of each."""
    blob = await kernel.stage_blob(P, b"bytes")
    receipt = await kernel.commit(
        P,
        Absent("plain", "other"),
        Insert("plain", "a", b"A"),
        Put("things", "b", b"B", {"rank": 1}),
        Append("events", "one", (note("1"), note("2"))),
        Append("events", "two", (note("3"),)),
        Enqueue("runs", "a"),
        Attach(blob.digest, "a"),
    )
    equal(receipt.version("plain", "a"), 1, "the version of the inserted record")
    equal(receipt.version("things", "b"), 1, "the version of the put record")
    equal(receipt.seqs("events", "one"), (1, 2), "the seqs of the first stream")
    equal(receipt.seqs("events", "two"), (1,), "the seqs of the second stream")
    equal(receipt.fence("runs", "a"), 0, "the fence of an item that was not claimed")
    equal(len(receipt.outcomes), 7, "the number of outcomes")
    expect(await kernel.get(P, "plain", "a"), "the inserted record does not exist")
    expect(await kernel.get(P, "things", "b"), "the put record does not exist")
    equal([entry.data for entry in (await kernel.read_log(P, "events", "one")).entries], [b"1", b"2"], "stream one")
    equal([entry.data for entry in (await kernel.read_log(P, "events", "two")).entries], [b"3"], "stream two")
    expect(await kernel.work(P, "runs", "a"), "the work item does not exist")


@law()
async def a_refused_commit_writes_nothing(kernel: Kernel) -> None:
    """A failed check at any position of a commit prevents every write of the commit."""
    blob = await kernel.stage_blob(P, b"bytes", keep_seconds=0.05)
    await kernel.commit(P, Put("plain", "kept", b"1"), Append("events", "old", (note(),)), Enqueue("runs", "old"))
    writes: tuple[Operation, ...] = (
        Insert("plain", "new", b"N"),
        Put("plain", "kept", b"2"),
        Append("events", "new", (note(),)),
        Append("events", "old", (note(),)),
        Trim("events", "gone", 1),
        Enqueue("runs", "new"),
        Remove("runs", "old"),
        Attach(blob.digest, "new"),
    )
    for place in range(len(writes) + 1):
        failing = Version("plain", "kept", 7)
        operations = (*writes[:place], failing, *writes[place:])
        await refuses(kernel, P, *operations, reason="version", found=1, check=place)
    expect(await kernel.get(P, "plain", "new") is None, "a refused commit inserted a record")
    kept = await kernel.get(P, "plain", "kept")
    expect(kept is not None and (kept.version, kept.body) == (1, b"1"), f"a refused commit changed a record: {kept}")
    equal((await kernel.log_state(P, "events", "new")).head, 0, "the head of a stream of a refused commit")
    equal((await kernel.log_state(P, "events", "old")).head, 1, "the head of a stream of a refused commit")
    expect(await kernel.work(P, "runs", "new") is None, "a refused commit enqueued work")
    expect(await kernel.work(P, "runs", "old") is not None, "a refused commit removed work")
    await asyncio.sleep(0.1)
    equal((await kernel.sweep()).blobs, 1, "swept blobs, when a refused commit would have held it")


@law()
async def a_refused_write_undoes_the_whole_commit(kernel: Kernel) -> None:
    """A write with a check of its own (insert, replace, take, attach, a fence) refuses the whole commit."""
    await kernel.commit(P, Put("plain", "a", b""), Enqueue("runs", "a"))
    for failing in (
        Insert("plain", "a", b""),
        Replace("plain", "a", 2, b""),
        Patch("things", "none", {"rank": 1}),
        Delete("plain", "a", version=9),
        Take("plain", "none"),
        Attach("0" * 64, "a"),
        Complete("runs", "a", 1),
    ):
        with raises(CommitRefused) as caught:
            await kernel.commit(P, Append("events", "s", (note(),)), Put("plain", "new", b""), failing)
        equal(caught().check, failing, "the check that the refusal names")
        equal((await kernel.log_state(P, "events", "s")).head, 0, f"the head after a refused {failing}")
        expect(await kernel.get(P, "plain", "new") is None, f"a record was written with a refused {failing}")


@law()
async def readers_never_see_a_part_of_a_commit(kernel: Kernel) -> None:
    """While commits write two records and two streams together, every reader sees both writes of a commit or none."""
    done = False

    async def write() -> None:
        nonlocal done
        for number in range(60):
            body = str(number).encode()
            await kernel.commit(
                P,
                Put("plain", "left", body),
                Put("plain", "right", body),
                Append("events", "left", (note(),)),
                Append("events", "right", (note(),)),
            )
            await asyncio.sleep(0)
        done = True

    async def read() -> None:
        while not done:
            await asyncio.sleep(0)
            left, right = await kernel.get_many(P, "plain", ["left", "right"])
            expect(
                left == right or (left and right and left.body == right.body),
                f"a reader saw a part of a commit: {left} and {right}",
            )
            seen = (await kernel.log_state(P, "events", "left")).head
            head = (await kernel.log_state(P, "events", "right")).head
            expect(head >= seen, f"a reader saw a part of a commit: stream left at {seen}, then right at {head}")
            seen = (await kernel.read_log(P, "events", "right")).head
            head = (await kernel.read_log(P, "events", "left")).head
            expect(head >= seen, f"a reader saw a part of a commit: stream right at {seen}, then left at {head}")

    await asyncio.gather(write(), read(), read(), read())


# ------------------------------------------------------------------------------------------------------- the order


@law()
async def call_order_is_commit_order(kernel: Kernel) -> None:
    """Commits called one after another, without awaiting, are committed in the order of the calls."""
    commits = [kernel.commit(P, Append("events", "s", (note(str(number)),))) for number in range(200)]
    receipts = await asyncio.gather(*commits)
    equal(
        [receipt.seqs("events", "s") for receipt in receipts], [(n + 1,) for n in range(200)], "the seqs of the calls"
    )
    page = await kernel.read_log(P, "events", "s")
    equal([entry.data for entry in page.entries], [str(n).encode() for n in range(200)], "the order of the entries")


@law()
async def each_commit_sees_the_commits_called_before(kernel: Kernel) -> None:
    """A commit is decided on the writes of all commits that were called before it, awaited or not."""
    commits: list[Awaitable[Receipt]] = [kernel.commit(P, Insert("plain", "a", b"0"))]
    commits += [kernel.commit(P, Replace("plain", "a", number, str(number).encode())) for number in range(1, 30)]
    commits += [kernel.commit(P, Take("plain", "a")), kernel.commit(P, Absent("plain", "a"), Insert("plain", "a", b""))]
    commits += [kernel.commit(P, Enqueue("runs", "a", worker="w")), kernel.commit(P, Enqueue("runs", "b", worker="w"))]
    commits += [kernel.commit(P, Append("log", "s", (note("x", "once"),))) for _ in range(3)]
    receipts = await asyncio.gather(*commits)
    equal(receipts[30].taken("plain", "a").body, b"29", "the record taken after all its changes")
    equal(receipts[31].version("plain", "a"), 1, "the version of the key after the delete")
    expect(receipts[32].fence("runs", "a") != 0, "an Enqueue with a worker must claim the item")
    equal([receipt.seqs("log", "s") for receipt in receipts[34:]], [(1,)] * 3, "the seqs of a repeated entry")


@law()
async def a_commit_that_is_not_awaited_is_committed(kernel: Kernel) -> None:
    """A commit that its caller does not await is committed, and flush returns after it."""
    unawaited = [kernel.commit(P, Append("events", "s", (note(str(number)),))) for number in range(50)]
    await kernel.flush()
    equal((await kernel.log_state(P, "events", "s")).head, 50, "the head after flush")
    await asyncio.gather(*unawaited)


@law()
async def a_cancelled_commit_is_committed(kernel: Kernel) -> None:
    """A commit is committed even if its caller is cancelled while it awaits; other callers are not affected."""

    async def write(key: str) -> None:
        await kernel.commit(P, Insert("plain", key, b""))

    tasks = [asyncio.create_task(write(f"k{number}")) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends[1::2]:
        expect(end is None, f"a commit beside a cancelled caller ended with {end!r}")
    await kernel.flush()
    found = await kernel.get_many(P, "plain", [f"k{number}" for number in range(20)])
    equal([record is not None for record in found], [True] * 20, "the records of cancelled and other callers")


@law()
async def flush_waits_for_a_cancelled_commit(kernel: Kernel) -> None:
    """flush returns after a commit whose caller was cancelled, also if that commit waits behind others."""

    async def write() -> None:
        await kernel.commit(P, Insert("plain", "last", b""))

    others = [kernel.commit(P, Insert("plain", f"k{number}", bytes(100_000))) for number in range(20)]
    await asyncio.sleep(0)  # the engine begins with the others
    task = asyncio.create_task(write())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await kernel.flush()
    expect(await kernel.get(P, "plain", "last"), "flush returned before the commit of the cancelled caller")
    await asyncio.gather(*others)


@law()
async def flush_does_not_wait_for_later_commits(kernel: Kernel) -> None:
    """flush returns while other callers keep committing."""

    async def write(number: int) -> None:
        for _ in range(100):
            await kernel.commit(P, Put("plain", f"k{number}", b""))
            if number % 2:
                await asyncio.sleep(0)  # so that half of the writers call later; a commit in memory does not wait

    writers = [asyncio.create_task(write(number)) for number in range(20)]
    await asyncio.sleep(0)
    await kernel.flush()
    expect(not all(writer.done() for writer in writers), "flush returned only after all later commits")
    await asyncio.gather(*writers)


@law()
async def arguments_are_copied(kernel: Kernel) -> None:
    """Changes that a caller makes to its arguments after the call do not change the commit."""
    fields: dict[str, str | int] = {"state": "new", "rank": 1}
    put = kernel.commit(P, Put("things", "a", b"", fields))
    fields["state"] = "spoiled"
    fields["rank"] = 99
    await put
    patch: dict[str, int] = {"rank": 2}
    patched = kernel.commit(P, Patch("things", "a", patch))
    patch["rank"] = 98
    await patched
    record = await kernel.get(P, "things", "a")
    expect(record is not None, "the record does not exist")
    equal(dict(record.fields) if record else {}, {"state": "new", "rank": 2}, "the fields of the record")
    if record is not None and isinstance(record.fields, dict):
        record.fields["rank"] = 97
    again = await kernel.get(P, "things", "a")
    equal(again.fields.get("rank") if again else None, 2, "the field, after a reader changed its own copy")


# ------------------------------------------------------------------------------------------------------ neighbours


@law()
async def a_refusal_does_not_affect_other_commits(kernel: Kernel) -> None:
    """Of many concurrent commits, only those whose check fails are refused; all others are committed."""
    await kernel.commit(P, Put("plain", "a", b""))
    commits = [
        kernel.commit(P, Insert("plain", "a" if number % 3 == 0 else f"n{number}", b""), Append("log", "s", (note(),)))
        for number in range(60)
    ]
    ends = await ended(commits)
    seqs = []
    for number, end in enumerate(ends):
        if number % 3 == 0:
            expect(isinstance(end, CommitRefused), f"an Insert over a record ended with {end!r}")
        else:
            expect(isinstance(end, Receipt), f"a valid commit among refused ones ended with {end!r}")
            seqs += list(end.seqs("log", "s")) if isinstance(end, Receipt) else []
    equal(seqs, list(range(1, 41)), "the seqs of the accepted commits")
    equal((await kernel.log_state(P, "log", "s")).head, 40, "the head of the stream")


@law()
async def an_invalid_commit_does_not_affect_other_commits(kernel: Kernel) -> None:
    """Of many concurrent commits, only the invalid ones raise; all others are committed."""

    async def call(number: int) -> Receipt:
        wrong: dict[int, tuple[Operation, ...]] = {
            0: (Put("undeclared", "a", b""),),
            1: (Put("plain", "", b""),),
            2: (Put("plain", "a", bytes(MAX_VALUE_BYTES + 1)),),
            3: (Put("things", "a", b"", {"rank": "one"}),),
            4: (Put("plain", "a", b""), Delete("plain", "a")),
        }
        return await kernel.commit(P, *wrong.get(number % 6, (Append("log", "s", (note(),)),)))

    ends = await asyncio.gather(*map(call, range(30)), return_exceptions=True)
    for number, end in enumerate(ends):
        wanted: type[object] = Receipt if number % 6 == 5 else InvalidRequest
        expect(isinstance(end, wanted), f"call {number} ended with {end!r}, not {wanted.__name__}")
    equal((await kernel.log_state(P, "log", "s")).head, 5, "the head of the stream")


@law()
async def counting_with_versions_loses_no_update(kernel: Kernel) -> None:
    """Callers that read a record and replace exactly the version they read never overwrite each other."""
    await kernel.commit(P, Insert("plain", "counter", b"0"))
    done = 0

    async def add() -> None:
        nonlocal done
        for _ in range(5):
            record = await kernel.get(P, "plain", "counter")
            assert record is not None
            body = str(int(record.body) + 1).encode()
            await asyncio.sleep(0)
            try:
                await kernel.commit(P, Replace("plain", "counter", record.version, body))
            except CommitRefused:
                continue
            done += 1

    await asyncio.gather(*(add() for _ in range(20)))
    record = await kernel.get(P, "plain", "counter")
    expect(
        record is not None and int(record.body) == done == record.version - 1,
        f"{done} updates were committed, but the record is {record}",
    )


@law()
async def one_of_many_concurrent_inserts_succeeds(kernel: Kernel) -> None:
    """Of many concurrent inserts of one key, one succeeds and the others are refused with its version."""
    ends = await ended([kernel.commit(P, Insert("plain", "a", str(n).encode())) for n in range(20)])
    won = [end for end in ends if isinstance(end, Receipt)]
    lost = [end for end in ends if isinstance(end, CommitRefused)]
    equal((len(won), len(lost)), (1, 19), "winners and losers")
    equal({(end.reason, end.found) for end in lost}, {("absent", 1)}, "the refusals")


# ----------------------------------------------------------------------------------------------------- once and all


@law()
async def nothing_is_written_twice_in_one_commit(kernel: Kernel) -> None:
    """A commit that writes a record, a stream, a work item or a blob's holding twice raises WrittenTwice."""
    blob = await kernel.stage_blob(P, b"bytes")
    twice: tuple[tuple[Operation, Operation], ...] = (
        (Put("plain", "a", b"1"), Put("plain", "a", b"2")),
        (Insert("plain", "a", b"1"), Delete("plain", "a")),
        (Put("things", "a", b""), Patch("things", "a", {"rank": 1})),
        (Append("log", "s", (note(),)), Append("log", "s", (note(),))),
        (Append("log", "s", (note(),)), Trim("log", "s", 1)),
        (Drop("log", "s"), Append("log", "s", (note(),))),
        (Enqueue("runs", "a"), Enqueue("runs", "a", priority=1)),
        (Enqueue("runs", "a"), Remove("runs", "a")),
        (Attach(blob.digest, "h"), Attach(blob.digest, "h")),
        (Attach(blob.digest, "h"), Detach(blob.digest, "h")),
    )
    for first, second in twice:
        with raises(WrittenTwice):
            await kernel.commit(P, Put("plain", "beside", b""), first, second)
        expect(await kernel.get(P, "plain", "beside") is None, f"a write was stored with {first} and {second}")
    equal((await kernel.log_state(P, "log", "s")).head, 0, "the head of the stream")


@law()
async def equal_names_in_different_families_do_not_clash(kernel: Kernel) -> None:
    """One commit may write equal names in different collections, logs and queues, and one blob for several holders."""
    blob = await kernel.stage_blob(P, b"bytes")
    receipt = await kernel.commit(
        P,
        Put("plain", "a", b"1"),
        Put("things", "a", b"2"),
        Append("log", "a", (note(),)),
        Append("other-log", "a", (note(), note())),
        Enqueue("runs", "a"),
        Enqueue("other-runs", "a", worker="w"),
        Attach(blob.digest, "a"),
        Attach(blob.digest, "b"),
    )
    equal(receipt.seqs("log", "a"), (1,), "the seqs in the first log")
    equal(receipt.seqs("other-log", "a"), (1, 2), "the seqs in the second log")
    expect(receipt.fence("other-runs", "a") > 0, "the item of the second queue was not claimed")


@law()
async def a_large_commit_is_atomic(kernel: Kernel) -> None:
    """A commit of hundreds of writes over many keys and streams is atomic."""
    writes: list[Operation] = [Put("things", f"k{n}", b"x" * 100, {"rank": n}) for n in range(400)]
    writes += [Append("events", f"s{n}", (note(str(n)), note("end"))) for n in range(400)]
    await refuses(kernel, P, *writes, Version("plain", "none", 1), reason="version", found=0)
    equal((await kernel.log_state(P, "events", "s399")).head, 0, "the head of a stream of the refused commit")
    receipt = await kernel.commit(P, *writes)
    equal(receipt.seqs("events", "s399"), (1, 2), "the seqs of the last stream")
    expect(await kernel.get(P, "things", "k399"), "the last record does not exist")


@law()
async def every_read_sees_an_acknowledged_commit(kernel: Kernel) -> None:
    """Every kind of read that starts after a commit was acknowledged sees it."""
    async with following(kernel.tail(P, "events", "s")) as tail:
        for number in range(1, 20):
            await kernel.commit(
                P,
                Put("things", "a", str(number).encode(), {"rank": number}),
                Append("events", "s", (note(str(number)),)),
                Head("events", "s", number - 1),
            )
            record = await kernel.get(P, "things", "a")
            expect(record is not None and record.version == number, f"after commit {number} get returned {record}")
            page = await kernel.find(P, Query("things", order="rank", since=number))
            equal(
                [record.version for record in page.records], [number], "the versions that find returns after the commit"
            )
            equal((await kernel.read_log(P, "events", "s")).head, number, "the head after the commit")
            equal([entry.seq for entry in await collect(tail, 1)], [number], "the tail after the commit")


@law()
async def a_check_and_a_write_may_share_a_key(kernel: Kernel) -> None:
    """A commit may check the keys, streams and items that it writes."""
    await kernel.commit(P, Put("plain", "a", b""), Append("log", "s", (note(),)))
    fence = (await kernel.commit(P, Enqueue("runs", "a", worker="w"))).fence("runs", "a")
    await kernel.commit(
        P,
        Version("plain", "a", 1),
        Put("plain", "a", b"2"),
        Head("log", "s", 1),
        Append("log", "s", (note(),)),
        Fence("runs", "a", fence),
        Complete("runs", "a", fence),
    )
    expect(await kernel.work(P, "runs", "a") is None, "the completed item still exists")
