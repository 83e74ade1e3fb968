"""Laws of the life of a kernel: opening, declaring, closing, health, and refused uses."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress

from keelbolt.conformance.expect import equal, eventually, expect, following, raises, soon
from keelbolt.conformance.kernel.subject import KernelPlace, law, place_law
from keelbolt.errors import Forked, KeelboltError, NoIndex, NotDeclared, StorageClosed, WrongLoop
from keelbolt.kernel.blobs import Attach
from keelbolt.kernel.contract import Kernel, WorkCounts
from keelbolt.kernel.hints import LogTopic
from keelbolt.kernel.logs import Append, Draft, LogState, Trim
from keelbolt.kernel.records import Collection, Count, Index, Patch, Put, Query
from keelbolt.kernel.work import Enqueue, WorkState

P = "p"
ENTRY = Draft("note", b"x")


def uses(kernel: Kernel) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every way to use a kernel."""

    async def commit() -> object:
        return await kernel.commit(P, Put("plain", "a", b""))

    async def watch() -> None:
        with kernel.watch(LogTopic(P, "log", "s")):
            pass

    async def check() -> list[object]:
        return [problem async for problem in kernel.check()]

    async def tail() -> object:
        async with following(kernel.tail(P, "log", "s", after=0)) as entries:
            return await anext(entries)

    return {
        "commit": commit,
        "declare": lambda: kernel.declare(Collection("more")),
        "flush": kernel.flush,
        "stats": kernel.stats,
        "check": check,
        "sweep": kernel.sweep,
        "partitions": kernel.partitions,
        "get": lambda: kernel.get(P, "plain", "a"),
        "get_many": lambda: kernel.get_many(P, "plain", ["a"]),
        "find": lambda: kernel.find(P, Query("things")),
        "count": lambda: kernel.count(P, Query("things")),
        "read_log": lambda: kernel.read_log(P, "log", "s"),
        "log_state": lambda: kernel.log_state(P, "log", "s"),
        "seq_of": lambda: kernel.seq_of(P, "log", "s", "a"),
        "tail": tail,
        "claim": lambda: kernel.claim("runs", "w"),
        "heartbeat": lambda: kernel.heartbeat("w"),
        "retire": lambda: kernel.retire("w"),
        "work": lambda: kernel.work(P, "runs", "a"),
        "count_work": lambda: kernel.count_work(["runs"]),
        "list_work": lambda: kernel.list_work(P, "runs", state="dead"),
        "stage_blob": lambda: kernel.stage_blob(P, b""),
        "open_blob": lambda: kernel.open_blob(P, "0" * 64),
        "watch": watch,
    }


# -------------------------------------------------------------------------------------------------- open and closed


@place_law()
async def a_closed_storage_is_refused(place: KernelPlace) -> None:
    """Before it is opened and after it is closed, every use of a kernel raises StorageClosed."""
    kernel = place.kernel()
    for name, use in uses(kernel).items():
        with raises(StorageClosed) as caught:
            await use()
        expect("open" in str(caught()), f"the message of {name} does not say what to do: {caught()}")
    async with place.open() as opened:
        kernel = opened
        await kernel.commit(P, Put("plain", "a", b""))
    for use in uses(kernel).values():
        with raises(StorageClosed):
            await use()


@place_law()
async def a_second_close_does_nothing(place: KernelPlace) -> None:
    """Closing a kernel twice, or closing one that was never opened, does nothing."""
    await place.kernel().close()
    async with place.open() as kernel:
        await kernel.commit(P, Put("plain", "a", b""))
        await kernel.close()
        await kernel.close()


@place_law()
async def close_finishes_every_commit(place: KernelPlace) -> None:
    """Commits that were called before close are committed, also if no caller awaits them."""
    async with place.open() as kernel:
        commits = [kernel.commit(P, Append("log", "s", (ENTRY,))) for _ in range(50)]
    receipts = await asyncio.gather(*commits)
    equal([receipt.seqs("log", "s") for receipt in receipts], [(n + 1,) for n in range(50)], "the seqs")


@place_law()
async def close_ends_waiting_tails(place: KernelPlace) -> None:
    """A tail that waits while its kernel is closed raises StorageClosed."""
    async with place.open() as kernel:
        tail = kernel.tail(P, "log", "s")
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0.02)
    with raises(StorageClosed):
        await soon(waiting, "a tail of a closed kernel")


@place_law()
async def leaving_the_context_by_an_error_closes(place: KernelPlace) -> None:
    """Leaving the context by an error closes the kernel after all called commits are finished."""
    opened = None
    with suppress(ZeroDivisionError):
        async with place.open() as kernel:
            opened = kernel
            receipt = kernel.commit(P, Put("plain", "a", b""))
            raise ZeroDivisionError
    assert opened is not None
    equal((await receipt).version("plain", "a"), 1, "the version of the commit before the error")
    with raises(StorageClosed):
        await opened.get(P, "plain", "a")


@place_law()
async def opening_twice_is_refused(place: KernelPlace) -> None:
    """Opening a kernel that is open raises a KeelboltError and leaves it open."""
    async with place.open() as kernel:
        with raises(KeelboltError):
            await kernel.open()
        await kernel.commit(P, Put("plain", "a", b""))


# --------------------------------------------------------------------------------------------------- whose it is


@law()
async def another_loop_is_refused(kernel: Kernel) -> None:
    """Use from another event loop than the opening one raises WrongLoop; other callers are not affected."""

    def in_another_loop(use: Callable[[], Awaitable[object]]) -> BaseException | None:
        async def run() -> None:
            await use()

        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001
            return error
        return None

    for name, use in uses(kernel).items():
        error = await asyncio.to_thread(in_another_loop, use)
        expect(isinstance(error, WrongLoop), f"{name} from another loop ended with {error!r}")
    await kernel.commit(P, Put("plain", "a", b""))
    expect(await kernel.get(P, "plain", "a"), "the kernel can no longer be used in its own loop")


@law()
async def a_forked_child_is_refused(kernel: Kernel) -> None:
    """Use in a child process after fork() raises Forked; the parent is not affected."""
    if not hasattr(os, "fork"):
        return
    await kernel.commit(P, Put("plain", "a", b""))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork() with threads is tested here
        child = os.fork()
    if child == 0:
        os._exit(_count_not_refused(kernel))
    status = await _ended(child)
    equal(status, 0, "the number of uses that a forked child was not refused")
    await kernel.commit(P, Put("plain", "a", b""))
    record = await kernel.get(P, "plain", "a")
    equal(record.version if record else 0, 2, "the version written by the parent afterwards")


def _count_not_refused(kernel: Kernel) -> int:
    """Runs in the child. It has no loop, so each coroutine is sent to its first suspension."""
    allowed = 0
    for use in uses(kernel).values():
        try:
            use().__await__().send(None)
        except Forked:
            continue
        except BaseException:  # noqa: BLE001  (any error other than Forked)
            pass
        allowed += 1
    return allowed


async def _ended(child: int) -> int:
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222  (WNOHANG does not wait)
        if done:
            return os.waitstatus_to_exitcode(status)
        await asyncio.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, child, 0)
    return -1


@place_law()
async def no_threads_are_left_behind(place: KernelPlace) -> None:
    """After close, no thread of the kernel runs."""
    async with place.open() as kernel:
        await kernel.commit(P, Put("plain", "warm", b""))
    before = set(threading.enumerate())
    for _ in range(3):
        async with place.open() as kernel:
            await kernel.commit(P, Append("log", "s", (ENTRY,)))
            await kernel.read_log(P, "log", "s")
            await kernel.stage_blob(P, b"bytes")
    pool = {thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")}

    async def gone() -> bool:
        return not set(threading.enumerate()) - before - pool

    await eventually(gone, f"threads are left: {set(threading.enumerate()) - before - pool}")


# ------------------------------------------------------------------------------------------------------- declaring


@law()
async def a_collection_can_be_declared_later(kernel: Kernel) -> None:
    """A collection that is declared after opening can be used from then on; a second declaration keeps its records."""
    later = Collection("later", fields={"rank": int}, indexes=(Index("by_rank", (), "rank"),), counters=((),))
    with raises(NotDeclared):
        await kernel.get(P, "later", "a")
    for _ in range(2):
        await kernel.declare(later)
        await kernel.commit(P, Put("later", "a", b"", {"rank": 1}))
    page = await kernel.find(P, Query("later", order="rank"))
    equal([record.version for record in page.records], [2], "the versions of the found records")
    equal(await kernel.count(P, Query("later")), Count(1, exact=True), "the count")


@law()
async def a_changed_declaration_rebuilds_indexes_and_counters(kernel: Kernel) -> None:
    """After a changed declaration, records written before are found and counted by the new indexes and counters."""
    fields: dict[str, type[str | int | float | bool]] = {"state": str, "rank": int}
    await kernel.declare(Collection("grown", fields=fields, indexes=(Index("by_state", ("state",)),)))
    await kernel.commit(P, *(Put("grown", f"k{n}", b"", {"state": "ab"[n % 2], "rank": -n}) for n in range(10)))
    with raises(NoIndex):
        await kernel.find(P, Query("grown", order="rank"))
    await kernel.declare(
        Collection("grown", fields=fields, indexes=(Index("by_rank", (), "rank"),), counters=((), ("state",)))
    )
    page = await kernel.find(P, Query("grown", order="rank"), limit=20)
    equal([record.key for record in page.records], [f"k{n}" for n in reversed(range(10))], "the records by rank")
    equal(await kernel.count(P, Query("grown", {"state": "a"})), Count(5, exact=True), "the records of one state")
    with raises(NoIndex):
        await kernel.find(P, Query("grown", {"state": "a"}))
    await kernel.commit(P, Patch("grown", "k0", {"rank": -100, "state": "b"}))
    page = await kernel.find(P, Query("grown", order="rank"), limit=1)
    equal([record.key for record in page.records], ["k0"], "the record that was patched afterwards")
    equal(await kernel.count(P, Query("grown", {"state": "a"})), Count(4, exact=True), "the count afterwards")


@law()
async def a_log_needs_no_declaration(kernel: Kernel) -> None:
    """Logs and queues can be used without being declared."""
    await kernel.commit(P, Append("undeclared.log", "s", (ENTRY,)), Enqueue("undeclared.queue", "a"))
    equal(await kernel.log_state(P, "undeclared.log", "s"), LogState(1, 0), "head and floor")


# --------------------------------------------------------------------------------------------------- looking at it


@place_law()
async def health_never_raises(place: KernelPlace) -> None:
    """health reports working reads and writes while the kernel is open, and does not raise when it is closed."""
    kernel = place.kernel()
    health = await kernel.health()
    equal((health.reads, health.writes), (False, False), "reads and writes before opening")
    async with place.open() as kernel:
        health = await kernel.health()
        equal((health.reads, health.writes), (True, True), "reads and writes while open")
        expect(health.engine and health.detail, f"{health} has no detail")
        expect(health.durability in ("durable", "relaxed"), f"the durability {health.durability!r}")
    health = await kernel.health()
    equal((health.reads, health.writes), (False, False), "reads and writes after closing")


@law()
async def stats_count_everything(kernel: Kernel) -> None:
    """stats counts partitions, records by collection, streams, entries, blobs, work by queue and state, and workers."""
    blob = await kernel.stage_blob(P, b"12345")
    await kernel.commit(
        P,
        *(Put("plain", f"k{n}", b"") for n in range(3)),
        Put("things", "a", b""),
        Append("log", "s", (ENTRY, ENTRY, ENTRY)),
        Append("log", "t", (ENTRY,)),
        Attach(blob.digest, "a"),
        *(Enqueue("runs", f"k{n}") for n in range(4)),
    )
    await kernel.commit("q", Put("plain", "a", b""), Enqueue("other", "a"))
    await kernel.commit(P, Trim("log", "s", 1))
    one, _ = await kernel.claim("runs", "w", limit=2)
    await kernel.commit(P, one.bury("why"))
    stats = await kernel.stats()
    equal(stats.partitions, 2, "partitions")
    equal({name: count for name, count in stats.records.items() if count}, {"plain": 4, "things": 1}, "records")
    equal((stats.streams, stats.entries), (2, 3), "streams and entries")
    equal((stats.blobs, stats.blob_bytes), (1, 5), "blobs and their bytes")
    work = {queue: {state: count for state, count in of.items() if count} for queue, of in stats.work.items()}
    equal(work, {"runs": {"waiting": 2, "held": 1, "dead": 1}, "other": {"waiting": 1}}, "work")
    equal(stats.workers, 1, "workers")
    expect(stats.bytes >= 0, f"bytes are {stats.bytes}")


@law()
async def work_is_counted_by_queue_state_and_holder(kernel: Kernel) -> None:
    """count_work counts the items of the named queues of all partitions by state, and held ones by worker."""
    equal(await kernel.count_work(["runs"]), WorkCounts({}, {}, {}), "the counts of an empty storage")
    for partition in (P, "q"):
        await kernel.commit(partition, *(Enqueue("runs", f"k{n}") for n in range(4)), Enqueue("other", "a"))
    await kernel.commit(P, Enqueue("runs", "later", ready_in=60.0))
    one, _ = await kernel.claim("runs", "w", limit=2)
    (three,) = await kernel.claim("runs", "v", limit=1)
    await kernel.commit(one.partition, one.bury("why"))
    await kernel.commit(three.partition, three.release())
    await kernel.claim("other", "w", limit=1)
    runs: dict[WorkState, int] = {"waiting": 7, "held": 1, "dead": 1}
    other: dict[WorkState, int] = {"waiting": 1, "held": 1, "dead": 0}
    counts = await kernel.count_work(["runs"])
    equal((counts.work, counts.holders), ({"runs": runs}, {"w": 1}), "the counts of one queue")
    counts = await kernel.count_work(["runs", "other"])
    equal((counts.work, counts.holders), ({"runs": runs, "other": other}, {"w": 2}), "the counts of two queues")
    await kernel.retire("w")
    retired = await kernel.count_work(["runs", "none"])
    equal((retired.work["runs"]["waiting"], retired.holders), (8, {}), "the counts after a worker retired")


@law()
async def counts_of_a_partition_are_of_one_moment(kernel: Kernel) -> None:
    """While items are claimed and released, count_work finds each item of a partition in one state, with one holder."""
    items = 6
    await kernel.commit(P, *(Enqueue("runs", f"k{number}") for number in range(items)))
    done = False

    async def work(worker: str) -> None:
        while not done:
            claims = await kernel.claim("runs", worker, limit=2)
            await asyncio.sleep(0)  # an engine in memory does not wait
            for claim in claims:
                await kernel.commit(P, claim.release())

    workers = [asyncio.create_task(work(f"w{number}")) for number in range(3)]
    for _ in range(40):
        counts = await kernel.count_work(["runs", "runs"])
        runs = counts.work["runs"]
        equal(sum(runs.values()), items, "the number of items")
        equal(sum(counts.holders.values()), runs["held"], "the number of items of all holders")
        await asyncio.sleep(0)
    done = True
    await asyncio.gather(*workers)


@law()
async def count_work_has_the_longest_wait_and_the_leases(kernel: Kernel) -> None:
    """count_work has the wait of the first ready item of a queue and the remaining time of each lease."""
    await kernel.commit(P, Enqueue("runs", "low"), Enqueue("later", "a", ready_in=60.0))
    await asyncio.sleep(0.3)
    await kernel.commit("q", Enqueue("runs", "high", priority=5), Enqueue("other", "b"))
    await kernel.heartbeat("w", lease_seconds=60.0)
    counts = await kernel.count_work(["runs", "other", "later"])
    equal(sorted(counts.oldest), ["other", "runs"], "the queues with an item that is ready")
    expect(0.2 <= counts.oldest["runs"] <= 60.0, f"the longest wait is {counts.oldest['runs']} s")
    expect(counts.oldest["other"] < counts.oldest["runs"], "the longest wait is not that of the first item")
    equal(list(counts.workers), ["w"], "the known workers")
    expect(50.0 <= counts.workers["w"] <= 60.0, f"the lease lasts {counts.workers['w']} s")
    await kernel.heartbeat("w", lease_seconds=0.01)
    await asyncio.sleep(0.1)
    left = (await kernel.count_work(["runs"])).workers.get("w", 0.0)
    expect(left <= 0.0, f"a lease that has ended lasts {left} s")


@law()
async def check_finds_no_problem_in_a_sound_storage(kernel: Kernel) -> None:
    """check of a sound storage reports no problem after any kind of write."""
    blob = await kernel.stage_blob(P, bytes(600_000))
    await kernel.commit(P, Put("counted", "a", b"\0", {"state": "a"}), Append("log", "s", (ENTRY,) * 5))
    await kernel.commit(P, Attach(blob.digest, "a"), Trim("log", "s", 2), Enqueue("runs", "a", worker="w"))
    await kernel.commit(P, Patch("counted", "a", {"state": "b"}))
    equal([problem async for problem in kernel.check()], [], "the problems")


@law()
async def sweep_does_not_remove_live_workers(kernel: Kernel) -> None:
    """A sweep never removes a live worker, and the worker keeps its items."""
    await kernel.commit(P, Enqueue("runs", "a"))
    (claim,) = await kernel.claim("runs", "w", lease_seconds=60.0)
    equal((await kernel.sweep()).workers, 0, "the number of swept workers")
    await kernel.commit(P, claim.fenced())
    equal(list(await kernel.claim("runs", "other")), [], "the items that others can claim after the sweep")
