"""Laws of write-behind: at once for the caller, before every read, and lost by no flush or close."""

from __future__ import annotations

import asyncio

from keelbolt.conformance.expect import collect, equal, expect, following, raises
from keelbolt.conformance.law import law
from keelbolt.errors import InvalidRequest, NotDeclared
from keelbolt.storage.contract import Kernel
from keelbolt.storage.logs import Append, Draft, Trim
from keelbolt.storage.records import Delete, Insert, Patch, Put, Query, Replace, Take, Version
from keelbolt.storage.work import Enqueue

P = "p"


def entry(text: str = "x") -> Draft:
    return Draft("note", text.encode())


@law
async def reads_wait_for_what_was_written_behind(kernel: Kernel) -> None:
    """Every read of a family sees what was written behind to it before."""
    for number in range(1, 11):
        kernel.commit_later(P, Put("behind", "a", str(number).encode(), {"rank": number}))
        kernel.commit_later(P, Append("behind.log", "s", (entry(str(number)),)))
        if number % 2:
            record = await kernel.get(P, "behind", "a")
            expect(record is not None and record.version == number, f"get answered {record} after write {number}")
            equal((await kernel.log_state(P, "behind.log", "s")).head, number, "the head")
        else:
            page = await kernel.find(P, Query("behind", order="rank", since=number))
            equal(len(page.records), 1, "the records that find answers")
            equal((await kernel.count(P, Query("behind", order="rank", since=number))).value, 1, "the count")
            log = await kernel.read_log(P, "behind.log", "s")
            equal([e.data for e in log.entries], [str(n).encode() for n in range(1, number + 1)], "the entries")


@law
async def a_tail_sees_what_is_written_behind(kernel: Kernel) -> None:
    """A tail answers entries that are written behind."""
    async with following(kernel.tail(P, "behind.log", "s")) as tail:
        for number in range(1, 6):
            kernel.commit_later(P, Append("behind.log", "s", (entry(),)))
            equal([e.seq for e in await collect(tail, 1)], [number], "the tail")


@law
async def behind_and_awaited_writes_keep_their_order(kernel: Kernel) -> None:
    """Writes behind and awaited commits are committed in the order of their calls."""
    waiting = []
    for number in range(20):
        if number % 2:
            waiting.append(kernel.commit(P, Append("behind.log", "s", (entry(str(number)),))))
        else:
            kernel.commit_later(P, Append("behind.log", "s", (entry(str(number)),)))
    await asyncio.gather(*waiting)
    page = await kernel.read_log(P, "behind.log", "s")
    equal([e.data for e in page.entries], [str(n).encode() for n in range(20)], "the order of the entries")


@law
async def flush_finishes_what_was_written_behind(kernel: Kernel) -> None:
    """After flush nothing is pending and everything written behind is committed."""
    for number in range(100):
        kernel.commit_later(P, Append("behind.log", "s", (entry(),)), Put("behind", f"k{number}", b""))
    await kernel.flush()
    await asyncio.sleep(0)
    health = await kernel.health()
    equal((health.write_behind_pending, health.write_behind_failed), (0, 0), "what is pending and failed")
    receipt = await kernel.commit(P, Append("behind.log", "s", (entry(),)))
    equal(receipt.seqs("behind.log", "s"), (101,), "the next seq")


@law
async def what_is_written_behind_is_copied(kernel: Kernel) -> None:
    """What a caller changes after commit_later, in what it passed, changes nothing of what is written."""
    fields = {"rank": 1}
    kernel.commit_later(P, Put("behind", "a", b"", fields))
    fields["rank"] = 99
    record = await kernel.get(P, "behind", "a")
    equal(record.fields.get("rank") if record else None, 1, "the field")


@law
async def only_declared_families_are_written_behind(kernel: Kernel) -> None:
    """commit_later on a family that is not declared write_behind raises NotDeclared, and writes nothing."""
    for operation in (Put("plain", "a", b""), Append("log", "s", (entry(),))):
        with raises(NotDeclared):
            kernel.commit_later(P, Put("behind", "beside", b""), operation)
    expect(await kernel.get(P, "behind", "beside") is None, "something was written beside it")
    expect(await kernel.get(P, "plain", "a") is None, "a record was written")
    equal((await kernel.log_state(P, "log", "s")).head, 0, "the head")


@law
async def only_put_and_append_are_written_behind(kernel: Kernel) -> None:
    """commit_later takes Put and Append, which nothing can refuse, and no other operation."""
    for operation in (
        Insert("behind", "a", b""),
        Replace("behind", "a", 1, b""),
        Patch("behind", "a", {"rank": 1}),
        Delete("behind", "a"),
        Take("behind", "a"),
        Version("behind", "a", 1),
        Trim("behind.log", "s", 1),
        Enqueue("runs", "a"),
    ):
        with raises(InvalidRequest):
            kernel.commit_later(P, operation)
    with raises(InvalidRequest):
        kernel.commit_later(P, Put("behind", "", b""))
    expect(await kernel.get(P, "behind", "a") is None, "a record was written")


@law
async def a_family_written_behind_can_be_committed_too(kernel: Kernel) -> None:
    """A family declared write_behind takes ordinary commits, which see what was written behind before them."""
    kernel.commit_later(P, Put("behind", "a", b"1"))
    receipt = await kernel.commit(P, Version("behind", "a", 1), Replace("behind", "a", 1, b"2"))
    equal(receipt.version("behind", "a"), 2, "the version")
