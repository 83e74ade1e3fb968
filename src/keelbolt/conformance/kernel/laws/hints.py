"""Laws of hints: a commit wakes the watches of its topics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from keelbolt.conformance.expect import equal
from keelbolt.conformance.kernel.subject import law
from keelbolt.kernel.commits import Operation
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.hints import LogTopic, QueueTopic, Topic
from keelbolt.kernel.logs import Append, Draft, Drop
from keelbolt.kernel.work import Claim, Enqueue

P = "p"
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
