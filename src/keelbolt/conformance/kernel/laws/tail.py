"""Laws of followers: tail has no gap and no repeat, and a commit wakes the watches of its topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from keelbolt.conformance.expect import broken, collect, equal, expect, following, raises, soon
from keelbolt.conformance.kernel.subject import law
from keelbolt.errors import LogTrimmed
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.hints import LogTopic, QueueTopic, Topic
from keelbolt.kernel.logs import Append, Draft, Drop, Entry, Trim
from keelbolt.kernel.records import Version
from keelbolt.kernel.work import Claim, Enqueue

WAKE_SECONDS = 10.0
ENTRY = Draft("note", b"x")


async def wakes(kernel: Kernel, topic: Topic, act: Callable[[], Awaitable[object]], what: str) -> None:
    """``act`` wakes a watch that waits, and one that waits only afterwards."""
    with kernel.watch(topic) as waiting, kernel.watch(topic) as later:
        task = asyncio.create_task(waiting.wait(WAKE_SECONDS))
        await asyncio.sleep(0.005)
        await act()
        equal(await task, True, f"whether a waiting watch of {topic} was woken by {what}")
        equal(await later.wait(WAKE_SECONDS), True, f"whether a later wait of {topic} returned at once after {what}")


@law()
async def an_append_wakes_the_watch_of_its_stream(kernel: Kernel) -> None:
    """A commit that appends to a stream wakes every watch of the stream, each time."""
    for number in range(3):
        await wakes(
            kernel, LogTopic(P, "log", "s"), lambda: kernel.commit(P, Append("log", "s", (ENTRY,))), f"append {number}"
        )


@law()
async def a_drop_wakes_the_watch_of_its_stream(kernel: Kernel) -> None:
    """A commit that drops a stream wakes every watch of it, so that readers see the drop without polling."""
    topic = LogTopic(P, "log", "s")
    await kernel.commit(P, Append("log", "s", (ENTRY,)))
    await wakes(kernel, topic, lambda: kernel.commit(P, Drop("log", "s")), "Drop")


@law()
async def work_that_is_ready_wakes_the_watch_of_its_queue(kernel: Kernel) -> None:
    """Enqueue, Release, Retry, a completed nudge and retire wake the watches of the queue."""

    async def held() -> Claim:
        (claim,) = await kernel.claim("runs", "w")
        return claim

    async def wakes_by(operation: Operation, what: str) -> None:
        await wakes(kernel, QueueTopic("runs"), lambda: kernel.commit(P, operation), what)

    await wakes_by(Enqueue("runs", "a"), "Enqueue")
    await wakes_by((await held()).release(), "Release")
    await wakes_by((await held()).retry("why"), "Retry")
    nudged = await held()
    await kernel.commit(P, Enqueue("runs", "a"))
    await wakes_by(nudged.complete(), "Complete of a nudged item")
    await kernel.commit(P, (await held()).bury("why"))
    await wakes_by(Enqueue("runs", "a"), "Enqueue of a dead item")
    await held()
    await wakes(kernel, QueueTopic("runs"), lambda: kernel.retire("w"), "retire")


@law()
async def a_watch_entered_before_reading_misses_nothing(kernel: Kernel) -> None:
    """A reader that enters a watch, reads, and waits if it finds nothing, sees every entry of many busy writers."""
    total = 100

    async def write() -> None:
        for _ in range(total // 4):
            await kernel.commit(P, Append("log", "s", (ENTRY,)))
            await asyncio.sleep(0)

    async def follow() -> int:
        seen = 0
        with kernel.watch(LogTopic(P, "log", "s")) as watch:
            while seen < total:
                page = await kernel.read_log(P, "log", "s", after=seen)
                if not page.entries:
                    await watch.wait(1.0)
                seen += len(page.entries)
        return seen

    ends = await asyncio.gather(follow(), follow(), *(write() for _ in range(4)))
    equal(ends[:2], [total, total], "the entries that the readers saw")


@law()
async def a_wait_times_out(kernel: Kernel) -> None:
    """A wait returns False when its time is over; an old hint does not wake it twice."""
    with kernel.watch(LogTopic(P, "log", "silent")) as watch:
        equal(await watch.wait(0.02), False, "a wait for nothing")
    with kernel.watch(LogTopic(P, "log", "s")) as watch:
        await kernel.commit(P, Append("log", "s", (ENTRY,)))
        equal(await watch.wait(WAKE_SECONDS), True, "the first wait")


@law()
async def a_closed_watch_is_not_woken(kernel: Kernel) -> None:
    """A watch that was closed is woken no more; other watches of its topic still are."""
    topic = LogTopic(P, "log", "s")
    with kernel.watch(topic) as stays:
        with kernel.watch(topic) as left:
            pass
        await kernel.commit(P, Append("log", "s", (ENTRY,)))
        equal(await stays.wait(WAKE_SECONDS), True, "the watch that stays")
        equal(await left.wait(0.02), False, "the watch that was left")


@law()
async def many_watches_wait_at_once(kernel: Kernel) -> None:
    """A thousand watches can wait at once; a commit wakes the watch of its topic."""
    topics = [LogTopic(P, "log", f"s{n}") for n in range(1000)]
    watches = [kernel.watch(topic) for topic in topics]
    for watch in watches:
        watch.__enter__()
    try:
        tasks = [asyncio.create_task(watch.wait(WAKE_SECONDS)) for watch in watches]
        await asyncio.sleep(0.01)
        await kernel.commit(P, Append("log", "s500", (ENTRY,)))
        equal(await tasks[500], True, "the watch that is meant")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for watch in watches:
            watch.__exit__(None, None, None)


P = "p"


async def write(kernel: Kernel, count: int, *, size: int = 1) -> None:
    for _ in range(count):
        await kernel.commit(P, Append("log", "s", (Draft("note", b"x" * size),)))


async def nothing_comes(entries: AsyncIterator[Entry], *, seconds: float = 0.1) -> None:
    try:
        async with asyncio.timeout(seconds):
            broken(f"no entry was appended, but the tail yielded {await anext(entries)}")
    except TimeoutError:
        return


@law()
async def tail_begins_with_stored_entries(kernel: Kernel) -> None:
    """tail yields the stored entries after its seq, or all if no seq is given."""
    await write(kernel, 10)
    for after, first in ((None, 1), (0, 1), (4, 5), (9, 10)):
        async with following(kernel.tail(P, "log", "s", after=after)) as tail:
            wanted = list(range(first, 11))
            equal([entry.seq for entry in await collect(tail, len(wanted))], wanted, f"the tail after {after}")
            await nothing_comes(tail)


@law()
async def tail_continues_with_new_entries(kernel: Kernel) -> None:
    """A tail that has caught up yields each new entry as it is committed, with all its bytes."""
    async with following(kernel.tail(P, "log", "s")) as tail:
        for number in range(1, 8):
            pending = asyncio.create_task(collect(tail, 1))
            await asyncio.sleep(0.005)
            expect(not pending.done(), "the tail yielded an entry before any was appended")
            await kernel.commit(P, Append("log", "s", (Draft("kind", str(number).encode()),)))
            (entry,) = await pending
            equal((entry.seq, entry.kind, entry.data), (number, "kind", str(number).encode()), "the new entry")


@law()
async def tail_has_no_gap_and_no_repeat(kernel: Kernel) -> None:
    """Tails that start anywhere and stop and resume anywhere, beside busy writers, see 1..n once each in order."""
    total = 300

    async def writer(count: int) -> None:
        for number in range(count):
            await kernel.commit(P, Append("log", "s", (Draft("note", b"x" * (number % 50)),)))
            await asyncio.sleep(0)

    async def reader(step: int) -> None:
        seen = 0
        while seen < total:
            async with following(kernel.tail(P, "log", "s", after=seen)) as tail:
                wanted = list(range(seen + 1, min(seen + step, total) + 1))
                equal([entry.seq for entry in await collect(tail, len(wanted))], wanted, "the seqs of the tail")
                seen = wanted[-1]

    await asyncio.gather(*(writer(total // 4) for _ in range(4)), *(reader(step) for step in (1, 7, 64, total)))


@law()
async def tail_is_complete_over_many_pages(kernel: Kernel) -> None:
    """A tail over more entries and bytes than one page holds is complete."""
    many = 1300
    for _ in range(many // 100):
        await kernel.commit(P, Append("log", "s", tuple(Draft("note", b"") for _ in range(100))))
    await kernel.commit(P, Append("log", "s", tuple(Draft("note", bytes(600_000)) for _ in range(5))))
    async with following(kernel.tail(P, "log", "s")) as tail:
        equal([e.seq for e in await collect(tail, many + 5)], list(range(1, many + 6)), "the seqs of the tail")


@law()
async def every_tail_sees_the_same(kernel: Kernel) -> None:
    """Many tails of one stream see the same entries in the same order."""
    tails = [kernel.tail(P, "log", "s") for _ in range(10)]
    readers = [asyncio.create_task(collect(tail, 40)) for tail in tails]
    commits = [kernel.commit(P, Append("log", "s", (Draft("note", str(n).encode()),))) for n in range(40)]
    await asyncio.gather(*commits)
    answers = await asyncio.gather(*readers)
    for tail in tails:
        async with following(tail):
            pass
    equal([entry.data for entry in answers[0]], [str(n).encode() for n in range(40)], "the entries of the first tail")
    expect(all(answer == answers[0] for answer in answers), "two tails saw different entries")


@law()
async def tail_sees_only_its_stream(kernel: Kernel) -> None:
    """A tail yields entries of its own stream only."""
    async with following(kernel.tail(P, "log", "s")) as tail:
        await kernel.commit(P, Append("log", "t", (Draft("note", b""),)), Append("other", "s", (Draft("note", b""),)))
        await kernel.commit("q", Append("log", "s", (Draft("note", b""),)))
        await nothing_comes(tail)


@law()
async def tail_sees_no_refused_entry(kernel: Kernel) -> None:
    """A tail never yields entries of a refused commit."""
    async with following(kernel.tail(P, "log", "s")) as tail:
        refused = kernel.commit(P, Append("log", "s", (Draft("note", b"no"),)), Version("plain", "none", 1))
        await asyncio.gather(refused, return_exceptions=True)
        await nothing_comes(tail)


@law()
async def tail_below_the_floor_raises(kernel: Kernel) -> None:
    """A tail that starts below the floor raises LogTrimmed; without a seq it starts at the floor."""
    await write(kernel, 8)
    await kernel.commit(P, Trim("log", "s", 5))
    async with following(kernel.tail(P, "log", "s", after=2)) as tail:
        with raises(LogTrimmed):
            await collect(tail, 1)
    async with following(kernel.tail(P, "log", "s")) as tail:
        equal([entry.seq for entry in await collect(tail, 3)], [6, 7, 8], "the tail from the floor on")


@law()
async def a_tail_that_is_overtaken_by_a_trim_raises(kernel: Kernel) -> None:
    """If entries that a tail has not yielded are trimmed, it yields them or raises LogTrimmed."""
    await write(kernel, 3)
    async with following(kernel.tail(P, "log", "s")) as tail:
        equal([entry.seq for entry in await collect(tail, 3)], [1, 2, 3], "the tail before the trim")
        await kernel.commit(P, Append("log", "s", tuple(Draft("note", b"") for _ in range(3))))
        await kernel.commit(P, Trim("log", "s", 5))
        try:
            entry = await soon(anext(tail), "the tail after the trim")
        except LogTrimmed as trimmed:
            equal((trimmed.floor, trimmed.head), (5, 6), "floor and head of LogTrimmed")
        else:
            equal(entry.seq, 4, "the next entry of the tail, skipping none")


@law()
async def a_closed_tail_leaves_nothing_behind(kernel: Kernel) -> None:
    """Tails that are cancelled while they wait, or closed half way, affect neither the kernel nor other tails."""
    await write(kernel, 3)
    for _ in range(20):
        async with following(kernel.tail(P, "log", "s")) as tail:
            await collect(tail, 2)
    async with following(kernel.tail(P, "log", "s", after=3)) as waiting:
        task = asyncio.ensure_future(anext(waiting))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with following(kernel.tail(P, "log", "s", after=3)) as tail:
        await write(kernel, 1)
        equal([entry.seq for entry in await collect(tail, 1)], [4], "another tail")
