"""Laws of logs: dense seqs, dedupe, pages, trim and drop."""

from __future__ import annotations

import asyncio
import time

from keelbolt.conformance.expect import equal, expect, raises
from keelbolt.conformance.kernel.subject import law, refuses
from keelbolt.errors import LogTrimmed
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.logs import Append, Draft, Drop, LogPage, LogState, Start, Trim
from keelbolt.kernel.records import Version

P = "p"


def drafts(*texts: str) -> tuple[Draft, ...]:
    return tuple(Draft("note", text.encode()) for text in texts)


def once(text: str, key: str) -> Draft:
    return Draft("note", text.encode(), key)


async def write(kernel: Kernel, count: int, *, stream: str = "s", size: int = 0) -> None:
    await kernel.commit(P, Append("log", stream, drafts(*(str(n + 1).zfill(size) for n in range(count)))))


async def seqs(kernel: Kernel, *, stream: str = "s", after: int | None = None) -> list[int]:
    return [entry.seq for entry in (await kernel.read_log(P, "log", stream, after=after)).entries]


@law()
async def seqs_are_dense_from_one(kernel: Kernel) -> None:
    """The seqs of a stream are 1..n without gaps, over commits of one and of many entries."""
    expected = 0
    for size in (1, 3, 1, 10, 2):
        receipt = await kernel.commit(P, Append("log", "s", drafts(*map(str, range(size)))))
        equal(receipt.seqs("log", "s"), tuple(range(expected + 1, expected + size + 1)), "the seqs of an Append")
        expected += size
    equal(await seqs(kernel), list(range(1, expected + 1)), "the seqs of the stream")
    equal(await kernel.log_state(P, "log", "s"), LogState(expected, 0), "head and floor")


@law()
async def seqs_stay_dense_under_refusals_and_races(kernel: Kernel) -> None:
    """Refused commits leave no gap, and racing writers get each seq once, in the order of the calls."""

    async def writer(name: int) -> list[tuple[int, bytes]]:
        mine = []
        for number in range(15):
            data = f"{name}.{number}".encode()
            refused = kernel.commit(P, Append("log", "s", drafts("lost")), Version("plain", "none", 1))
            receipt = await kernel.commit(P, Append("log", "s", (Draft("note", data),)))
            await asyncio.gather(refused, return_exceptions=True)
            mine += [(seq, data) for seq in receipt.seqs("log", "s")]
        return mine

    reported = sorted([pair for pairs in await asyncio.gather(*map(writer, range(8))) for pair in pairs])
    page = await kernel.read_log(P, "log", "s")
    equal([entry.seq for entry in page.entries], list(range(1, 121)), "the seqs of the stream")
    equal([(entry.seq, entry.data) for entry in page.entries], reported, "the seqs of the receipts")


@law()
async def streams_have_their_own_seqs(kernel: Kernel) -> None:
    """Each stream of each log has its own seqs."""
    for log in ("log", "other"):
        for stream in ("s", "t"):
            receipt = await kernel.commit(P, Append(log, stream, drafts("1", "2")))
            equal(receipt.seqs(log, stream), (1, 2), f"the seqs of {log}/{stream}")


@law()
async def entries_have_their_kind_data_and_time(kernel: Kernel) -> None:
    """An entry has the kind and data it was appended with, and the time of its commit in microseconds since 1970."""
    before = time.time_ns() // 1000
    await kernel.commit(P, Append("log", "s", (Draft("first", b"1"), Draft("second", b"2"))))
    after = time.time_ns() // 1000
    one, two = (await kernel.read_log(P, "log", "s")).entries
    equal((one.seq, one.kind, one.data), (1, "first", b"1"), "the first entry")
    equal((two.seq, two.kind, two.data), (2, "second", b"2"), "the second entry")
    minute = 60_000_000  # an engine may have another clock than this process
    expect(before - minute <= one.at <= two.at <= after + minute, f"{one.at} is not between {before} and {after}")


@law()
async def a_repeat_writes_nothing_and_returns_the_first_seq(kernel: Kernel) -> None:
    """A draft whose dedupe key is in the stream already writes nothing and gets the seq of the first one."""
    await kernel.commit(P, Append("log", "s", (once("first", "a"), *drafts("plain"))))
    receipt = await kernel.commit(P, Append("log", "s", (once("changed", "a"),)))
    equal(receipt.seqs("log", "s"), (1,), "the seq of the repeat")
    receipt = await kernel.commit(P, Append("log", "s", (*drafts("x"), once("again", "a"), once("new", "b"))))
    equal(receipt.seqs("log", "s"), (3, 1, 4), "the seqs of new entries around a repeat")
    page = await kernel.read_log(P, "log", "s")
    equal([entry.data for entry in page.entries], [b"first", b"plain", b"x", b"new"], "the entries")
    equal(page.head, 4, "the head")


@law()
async def a_repeat_inside_one_append_is_a_repeat(kernel: Kernel) -> None:
    """Two drafts with the same dedupe key in one Append are one entry."""
    receipt = await kernel.commit(P, Append("log", "s", (once("1", "a"), once("2", "a"), *drafts("3"), once("4", "a"))))
    equal(receipt.seqs("log", "s"), (1, 1, 2, 1), "the seqs")
    equal([entry.data for entry in (await kernel.read_log(P, "log", "s")).entries], [b"1", b"3"], "the entries")


@law()
async def concurrent_appends_with_one_dedupe_key_write_once(kernel: Kernel) -> None:
    """Of many concurrent appends with one dedupe key, one writes; all get its seq."""
    commits = [kernel.commit(P, Append("log", "s", (once(str(n), "a"),))) for n in range(20)]
    receipts = await asyncio.gather(*commits)
    equal({receipt.seqs("log", "s") for receipt in receipts}, {(1,)}, "the seqs")
    equal([entry.data for entry in (await kernel.read_log(P, "log", "s")).entries], [b"0"], "the entries")


@law()
async def an_entry_is_found_by_its_dedupe_key(kernel: Kernel) -> None:
    """seq_of returns the seq of the entry with this dedupe key in this stream, and None for every other key."""
    await kernel.commit(P, Append("log", "s", (*drafts("x"), once("a", "a"), once("b", "b"), once("again", "a"))))
    await kernel.commit(P, Append("log", "t", (once("a", "a"),)))
    equal([await kernel.seq_of(P, "log", "s", key) for key in ("a", "b", "c", "A")], [2, 3, None, None], "the seqs")
    equal(await kernel.seq_of(P, "log", "t", "a"), 1, "the seq in another stream")
    equal(await kernel.seq_of(P, "log", "none", "a"), None, "the seq in a stream that was never written")
    equal(await kernel.seq_of("q", "log", "s", "a"), None, "the seq in another partition")
    await kernel.commit(P, Trim("log", "s", 2))
    equal([await kernel.seq_of(P, "log", "s", key) for key in ("a", "b")], [None, 3], "the seqs after a trim")


@law()
async def dedupe_is_per_stream(kernel: Kernel) -> None:
    """The same dedupe key in another stream or log is not a repeat."""
    for log, stream in (("log", "s"), ("log", "t"), ("other", "s")):
        receipt = await kernel.commit(P, Append(log, stream, (once("x", "a"),)))
        equal(receipt.seqs(log, stream), (1,), f"the seq in {log}/{stream}")
        equal((await kernel.log_state(P, log, stream)).head, 1, f"the head of {log}/{stream}")


@law()
async def read_log_reads_between_its_bounds(kernel: Kernel) -> None:
    """Entries with after < seq < before come oldest first, or newest first backward, at most ``limit`` of them."""
    await write(kernel, 20)
    for after in (None, 0, 1, 5, 19, 20, 25):
        for before in (None, 1, 2, 6, 20, 21, 30):
            for limit in (1, 3, 100):
                for backward in (False, True):
                    low = after or 0
                    wanted = list(range(low + 1, min(before or 21, 21)))
                    wanted = (wanted[::-1] if backward else wanted)[:limit]
                    page = await kernel.read_log(
                        P, "log", "s", after=after, before=before, limit=limit, backward=backward
                    )
                    what = f"after {after}, before {before}, limit {limit}, backward {backward}"
                    equal([entry.seq for entry in page.entries], wanted, what)
                    equal((page.head, page.floor), (20, 0), f"head and floor, {what}")


@law()
async def a_page_keeps_its_byte_budget(kernel: Kernel) -> None:
    """A page stops at ``max_bytes`` but has at least one entry if there is one; the next page loses none."""
    await write(kernel, 30, size=100)
    for backward in (False, True):
        for max_bytes in (1, 99, 100, 101, 950, 1000, 10_000):
            answer: list[int] = []
            while len(answer) < 30:
                last_seq = answer[-1] if answer else None
                bounds = (None, last_seq) if backward else (last_seq, None)
                page = await kernel.read_log(
                    P, "log", "s", after=bounds[0], before=bounds[1], max_bytes=max_bytes, backward=backward
                )
                expect(page.entries, f"an empty page with {max_bytes} bytes after {answer}")
                size = sum(len(entry.data) for entry in page.entries)
                last = len(page.entries[-1].data)
                expect(size - last < max_bytes, f"{size} bytes on a page of at most {max_bytes}")
                answer += [entry.seq for entry in page.entries]
                expect(len(answer) == 30 or size + 100 > max_bytes, f"only {size} bytes on a page of {max_bytes}")
            wanted = list(range(30, 0, -1)) if backward else list(range(1, 31))
            equal(answer, wanted, f"the seqs with pages of {max_bytes} bytes")


@law()
async def a_stream_that_was_never_written_is_empty(kernel: Kernel) -> None:
    """A stream that was never written has head and floor 0 and no entries; reading it does not create it."""
    equal(await kernel.log_state(P, "log", "none"), LogState(0, 0), "head and floor")
    page = await kernel.read_log(P, "log", "none")
    equal((page.entries, page.head, page.floor), ((), 0, 0), "the page")
    page = await kernel.read_log(P, "log", "none", after=5, backward=True)
    equal(page.entries, (), "the page after 5")
    equal((await kernel.stats()).streams, 0, "the streams that stats counts")


# --------------------------------------------------------------------------------------------------- trim and drop


@law()
async def trim_raises_the_floor(kernel: Kernel) -> None:
    """Trim removes the entries up to and including ``through``; head, later entries and the next seqs stay."""
    await write(kernel, 10)
    await kernel.commit(P, Trim("log", "s", 4))
    equal(await kernel.log_state(P, "log", "s"), LogState(10, 4), "head and floor")
    page = await kernel.read_log(P, "log", "s")
    equal([entry.seq for entry in page.entries], [5, 6, 7, 8, 9, 10], "the remaining entries")
    equal((page.head, page.floor), (10, 4), "head and floor of the page")
    equal(page.entries[0].data, b"5", "the first entry that is left")
    page = await kernel.read_log(P, "log", "s", backward=True)
    equal([entry.seq for entry in page.entries], [10, 9, 8, 7, 6, 5], "the remaining entries, newest first")
    receipt = await kernel.commit(P, Append("log", "s", drafts("next")))
    equal(receipt.seqs("log", "s"), (11,), "the next seq")
    equal((await kernel.stats()).entries, 7, "the entries that stats counts")


@law()
async def trim_stops_at_the_head_and_never_lowers_the_floor(kernel: Kernel) -> None:
    """Trim beyond the head stops at the head; below the floor, or of an unknown stream, it changes nothing."""
    await write(kernel, 5)
    await kernel.commit(P, Trim("log", "s", 3))
    await kernel.commit(P, Trim("log", "s", 2))
    equal(await kernel.log_state(P, "log", "s"), LogState(5, 3), "after a trim below the floor")
    await kernel.commit(P, Trim("log", "s", 99))
    equal(await kernel.log_state(P, "log", "s"), LogState(5, 5), "after a trim beyond the head")
    equal(await seqs(kernel), [], "the remaining entries")
    await kernel.commit(P, Trim("log", "none", 3))
    equal(await kernel.log_state(P, "log", "none"), LogState(0, 0), "after a trim of nothing")
    receipt = await kernel.commit(P, Append("log", "s", drafts("next")))
    equal(receipt.seqs("log", "s"), (6,), "the next seq")
    equal(await seqs(kernel, after=5), [6], "the entries after the floor")


@law()
async def a_stream_can_start_behind_a_seq(kernel: Kernel) -> None:
    """Start creates a stream whose entries up to a seq count as trimmed; of a written stream it is refused."""
    await kernel.commit(P, Start("log", "s", 7))
    equal(await kernel.log_state(P, "log", "s"), LogState(7, 7), "head and floor")
    equal(await kernel.read_log(P, "log", "s"), LogPage((), 7, 7), "the page before the first entry")
    receipt = await kernel.commit(P, Append("log", "s", drafts("a", "b")))
    equal(receipt.seqs("log", "s"), (8, 9), "the seqs of the first entries")
    with raises(LogTrimmed):
        await kernel.read_log(P, "log", "s", after=3)
    equal(await seqs(kernel, after=7), [8, 9], "the entries after the floor")
    await refuses(kernel, P, Start("log", "s", 20), reason="head", found=9)
    await kernel.commit(P, Start("log", "t", 0))
    equal(await kernel.log_state(P, "log", "t"), LogState(0, 0), "head and floor of one that starts at 0")


@law()
async def reading_below_the_floor_raises(kernel: Kernel) -> None:
    """Reading after a seq below the floor raises LogTrimmed with floor and head; from the floor on it reads."""
    await write(kernel, 10)
    await kernel.commit(P, Trim("log", "s", 4))
    for after in (0, 1, 3):
        for backward in (False, True):
            with raises(LogTrimmed) as caught:
                await kernel.read_log(P, "log", "s", after=after, backward=backward)
            equal((caught().after, caught().floor, caught().head), (after, 4, 10), "floor and head of LogTrimmed")
    equal(await seqs(kernel, after=4), [5, 6, 7, 8, 9, 10], "the entries from the floor on")
    await kernel.commit(P, Trim("log", "s", 10))
    with raises(LogTrimmed):
        await kernel.read_log(P, "log", "s", after=9)
    equal(await seqs(kernel, after=10), [], "the entries after a trim of everything")


@law()
async def trimmed_dedupe_keys_are_forgotten(kernel: Kernel) -> None:
    """Trim removes the dedupe keys of the trimmed entries; those of remaining entries stay."""
    await kernel.commit(P, Append("log", "s", (once("1", "a"), once("2", "b"))))
    await kernel.commit(P, Trim("log", "s", 1))
    receipt = await kernel.commit(P, Append("log", "s", (once("3", "a"), once("4", "b"), once("5", "a"))))
    equal(receipt.seqs("log", "s"), (3, 2, 3), "the seqs")


@law()
async def drop_forgets_the_stream(kernel: Kernel) -> None:
    """After Drop a stream is like one that was never written: seqs, floor and dedupe keys start again."""
    await kernel.commit(P, Append("log", "s", (once("1", "a"), *drafts("2", "3"))), Append("log", "t", drafts("t")))
    await kernel.commit(P, Trim("log", "s", 2))
    await kernel.commit(P, Drop("log", "s"), Drop("log", "none"))
    equal(await kernel.log_state(P, "log", "s"), LogState(0, 0), "head and floor")
    equal(await seqs(kernel, after=0), [], "the entries read")
    receipt = await kernel.commit(P, Append("log", "s", (*drafts("new"), once("again", "a"))))
    equal(receipt.seqs("log", "s"), (1, 2), "the seqs of the new stream")
    equal([e.data for e in (await kernel.read_log(P, "log", "s")).entries], [b"new", b"again"], "the new entries")
    equal((await kernel.log_state(P, "log", "t")).head, 1, "the head of another stream")
