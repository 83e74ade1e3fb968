"""The figures of the storage kernel, measured in one run on one storage."""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from benchmarks.load import CHUNK, TASKS, Load, commits
from benchmarks.processes import ENVIRONMENT, program
from benchmarks.report import Report
from keelbolt.kernel import (
    Append,
    Collection,
    Draft,
    Index,
    Insert,
    Kernel,
    Operation,
    Query,
    new_id,
    open_storage,
)

Progress = Callable[[str], None]

NOTES = Collection("bench-note", fields={"state": str, "at": int}, indexes=(Index("by_state", ("state",), "at"),))
ROUNDS = 5


async def run(url: str | None, *, quick: bool = False, progress: Progress = lambda _: None) -> Report:
    """Measure the storage at this URL (None: a SQLite file in a temporary directory)."""
    if url is not None:
        return await _run(url, quick=quick, progress=progress)
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder:
        return await _run(f"sqlite:///{folder}/bench.db", quick=quick, progress=progress)


async def _run(url: str, *, quick: bool, progress: Progress) -> Report:
    report = Report()
    seconds = 1.0 if quick else 3.0
    progress("the import")
    _import_time(report)
    progress("group commit beside a bare loop and one transaction per call")
    if kernel_path(url):
        await _group_commit_sqlite(report, url, seconds)
    elif url.startswith("postgres"):
        await _group_commit_postgres(report, url, seconds)
    elif not url.startswith("memory"):
        await _group_commit_redis(report, url, seconds)
    async with open_storage(url, declare=[TASKS, NOTES]) as kernel:
        if kernel.engine != "memory":
            progress("several processes")
            await _processes(report, url, seconds)
            progress("wake-ups in another process")
            await _wake_ups(report, kernel, url, 100 if quick else 500)
            await _tails(report, kernel, url, seconds)
        progress("long logs")
        await _long_log(report, kernel, 10_000 if quick else 100_000)
        progress("a large blob")
        await _blob(report, kernel, 50 if quick else 500)
        progress("many records")
        await _many_records(report, kernel, 50_000 if quick else 1_000_000, progress)
    return report


def kernel_path(url: str) -> str | None:
    """Return the path of a SQLite URL."""
    return url.split("///", 1)[1].split("?", maxsplit=1)[0] if url.startswith("sqlite") else None


def _import_time(report: Report) -> None:
    code = "import time; t = time.process_time(); import keelbolt; print(time.process_time() - t)"
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(ROUNDS)]
    report.at_most("import keelbolt, CPU", 1000 * statistics.median(times), "ms", 100)


# -------------------------------------------------------------------------------------------------------- commits


async def _group_commit_sqlite(report: Report, url: str, seconds: float) -> None:
    """Measure the engine, a bare loop of its statements, and one transaction per call in turns; compare medians."""
    from benchmarks.bare import bare_rate
    from keelbolt.kernel.sqlite import SQLiteKernel

    path = kernel_path(url)
    loads: list[Load] = []
    singles: list[float] = []
    bares: list[float] = []
    for number in range(3):
        async with SQLiteKernel(f"{path}-{number}-group", declare=[TASKS]) as kernel:
            loads.append(await commits(kernel, seconds=seconds))
        bares.append(await asyncio.to_thread(bare_rate, f"{path}-{number}-bare", seconds=seconds))
        async with SQLiteKernel(f"{path}-{number}-single", declare=[TASKS], batch=1) as kernel:
            singles.append((await commits(kernel, seconds=seconds)).rate)
    for place in Path(str(path)).parent.glob(f"{Path(str(path)).name}-[0-9]-*"):
        if place.is_file():
            place.unlink()
    rate = statistics.median(load.rate for load in loads)
    report.note("durable commits, 64 callers", rate, "/s")
    report.note("acknowledged, p50", statistics.median(load.p50 for load in loads), "ms")
    report.note("acknowledged, p99", statistics.median(load.p99 for load in loads), "ms")
    report.at_least("group commit ÷ one transaction per call", rate / statistics.median(singles), "×", 5)
    report.at_least("group commit ÷ bare loop in batches", rate / statistics.median(bares), "×", 0.6)


async def _group_commit_postgres(report: Report, url: str, seconds: float) -> None:
    """Measure as on SQLite, with 32 callers, each in its own schema."""
    from benchmarks.bare_postgres import bare_rate
    from keelbolt.kernel.postgres import PostgresKernel

    loads, singles, bares = [], [], []
    for number in range(3):
        async with PostgresKernel(url, schema=f"bench_group_{number}", declare=[TASKS]) as kernel:
            loads.append(await commits(kernel, seconds=seconds, callers=32))
        bares.append(await bare_rate(url, f"bench_bare_{number}", seconds=seconds, rows=32))
        async with PostgresKernel(url, schema=f"bench_single_{number}", declare=[TASKS], batch=1) as kernel:
            singles.append((await commits(kernel, seconds=seconds, callers=32)).rate)
    rate, p99 = statistics.median(load.rate for load in loads), statistics.median(load.p99 for load in loads)
    report.note("durable commits, 32 callers", rate, "/s")
    report.note("acknowledged, p50", statistics.median(load.p50 for load in loads), "ms")
    report.note("acknowledged, p99", p99, "ms")
    report.at_least("group commit ÷ one transaction per call", rate / statistics.median(singles), "×", 2)
    bare = statistics.median(bare.rate for bare in bares)
    report.at_least("group commit ÷ bare loop of multi-row statements", rate / bare, "×", 0.45)
    bare_p99 = statistics.median(bare.p99 for bare in bares)
    report.at_most("acknowledged, p99 ÷ a bare transaction's", p99 / bare_p99, "×", 3)


async def _group_commit_redis(report: Report, url: str, seconds: float) -> None:
    """Measure the engine and raw pipelined calls of its function, in turns."""
    from benchmarks.bare_redis import raw_rate

    loads: list[Load] = []
    raws: list[float] = []
    for _ in range(3):
        async with open_storage(url, declare=[TASKS]) as kernel:
            loads.append(await commits(kernel, seconds=seconds))
        raws.append(await raw_rate(url, seconds=seconds, calls=64))
    rate = statistics.median(load.rate for load in loads)
    report.note("durable commits, 64 callers", rate, "/s")
    report.note("acknowledged, p50", statistics.median(load.p50 for load in loads), "ms")
    report.note("acknowledged, p99", statistics.median(load.p99 for load in loads), "ms")
    report.at_least("group commit ÷ raw pipelined calls", rate / statistics.median(raws), "×", 0.5)


async def _processes(report: Report, url: str, seconds: float) -> None:
    one = await asyncio.to_thread(_in_processes, url, seconds, 1)
    three = await asyncio.to_thread(_in_processes, url, seconds, 3)
    total, single = sum(load.rate for load in three), one[0].rate
    worst = max(load.p99 for load in three)
    report.note("durable commits, 3 processes together", total, "/s")
    if kernel_path(url):
        report.at_least("3 processes ÷ 1 process", total / single, "×", 0.8)
        report.at_most("p99 of 3 processes ÷ of 1", worst / one[0].p99, "×", 3)
    else:
        report.note("3 processes ÷ 1 process", total / single, "×")


def _in_processes(url: str, seconds: float, processes: int) -> list[Load]:
    starts_at = str(time.monotonic() + 1.5)
    command = program("load", url, str(seconds), starts_at)
    children = [subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return [Load(**json.loads(child.communicate()[0])) for child in children]


# ----------------------------------------------------------------------------------------------------------- logs


async def _wake_ups(report: Report, kernel: Kernel, url: str, count: int) -> None:
    """Another process appends entries with its clock; this process tails. Both read the same monotonic clock."""
    stream = new_id()
    child = await asyncio.create_subprocess_exec(*program("pulse", url, stream, str(count)), env=ENVIRONMENT)
    times: list[float] = []
    async with aclosing(_entries(kernel, stream)) as entries:
        async for data in entries:
            times.append(1000 * (time.monotonic() - float(data)))
            if len(times) == count:
                break
    await child.wait()
    times.sort()
    most = {"sqlite": 2, "postgresql": 20, "redis": 5}[kernel.engine]
    report.at_most("a tail in another process sees a commit, p50", times[count // 2], "ms", most)
    report.note("a tail in another process sees a commit, p99", times[int(count * 0.99)], "ms")


async def _tails(report: Report, kernel: Kernel, url: str, seconds: float) -> None:
    """Measure the cost for writers of 100 tails in four other processes, on the written logs."""
    alone = (await commits(kernel, seconds=seconds, callers=32)).rate
    command = program("tails", url, "25", str(seconds + 2))
    children = [
        await asyncio.create_subprocess_exec(*command, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE)
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout is not None
        await child.stdout.readline()  # the process is ready
    watched = (await commits(kernel, seconds=seconds, callers=32, partition="bench/tailed")).rate
    for child in children:
        await child.communicate()
    if kernel_path(url):  # five processes on one file: reported, without a target
        report.note("commits with 100 tails in 4 processes ÷ without", watched / alone, "×")
    else:
        report.at_least("commits with 100 tails in 4 processes ÷ without", watched / alone, "×", 0.8)


async def _entries(kernel: Kernel, stream: str) -> AsyncGenerator[bytes, None]:
    async for entry in kernel.tail("bench/pulse", "bench-log", stream, after=0):
        yield entry.data


async def _long_log(report: Report, kernel: Kernel, length: int) -> None:
    """Measure appends to a long log and to a short one, in turns."""
    partition = "bench/logs"
    long, short = new_id(), new_id()
    for _ in range(length // 500):
        await kernel.commit(partition, Append("bench-log", long, (Draft("chunk", CHUNK),) * 500))
    await kernel.commit(partition, Append("bench-log", short, (Draft("chunk", CHUNK),) * 100))

    async def append(stream: str) -> None:
        for _ in range(50):
            await kernel.commit(partition, Append("bench-log", stream, (Draft("chunk", CHUNK),)))

    ratio = await _compare(lambda: append(long), lambda: append(short), rounds=20)
    report.at_most(f"an append at seq {length:,} ÷ at seq 100", ratio, "×", 1.2)


async def _compare(
    one: Callable[[], Awaitable[object]], other: Callable[[], Awaitable[object]], *, rounds: int
) -> float:
    """Return the ratio of both durations: the median of rounds in which both take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for number, call in enumerate((one, other)):
            start = time.perf_counter()
            await call()
            times[number].append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


# ---------------------------------------------------------------------------------------------------------- blobs


async def _blob(report: Report, kernel: Kernel, megabytes: int) -> None:
    async def source() -> AsyncIterator[bytes]:
        for number in range(megabytes):
            yield number.to_bytes(4) * (1 << 18)

    await kernel.stage_blob("bench/blobs", b"warm" * 1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    blob = await kernel.stage_blob("bench/blobs", source())
    written = time.perf_counter()
    reader = await kernel.open_blob("bench/blobs", blob.digest)
    size = 0
    async for chunk in reader.chunks():
        size += len(chunk)
    read = time.perf_counter()
    assert size == blob.size == megabytes << 20
    rise = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    report.at_most(f"memory rise while {megabytes} MB pass through", rise, "MB", 64)
    report.note("a blob is written at", megabytes / (written - start), "MB/s")
    report.note("a blob is read at", megabytes / (read - written), "MB/s")


# -------------------------------------------------------------------------------------------------------- records


async def _many_records(report: Report, kernel: Kernel, count: int, progress: Progress) -> None:
    """Measure pages from the middle of a large and of a small collection, in turns."""
    small = count // 100 if count < 1_000_000 else 10_000
    start = time.perf_counter()
    await _fill(kernel, "bench/small", small, progress)
    await _fill(kernel, "bench/large", count, progress)
    report.note("records inserted in commits of 500", (count + small) / (time.perf_counter() - start), "/s")

    async def page(partition: str, size: int) -> None:
        for state in ("working", "completed"):
            query = Query("bench-note", {"state": state}, "at", until=size // 2, newest_first=True)
            found = await kernel.find(partition, query, limit=50)
            assert len(found.records) == 50

    ratio = await _compare(lambda: page("bench/large", count), lambda: page("bench/small", small), rounds=200)
    report.at_most(f"a page of find at {count:,} records ÷ at {small:,}", ratio, "×", 2)


async def _fill(kernel: Kernel, partition: str, count: int, progress: Progress) -> None:
    step = 500
    waiting: list[Awaitable[object]] = []
    for first in range(0, count, step):
        operations: list[Operation] = [
            Insert("bench-note", new_id(), CHUNK, {"state": ("working", "completed")[at % 2], "at": at})
            for at in range(first, first + step)
        ]
        waiting.append(kernel.commit(partition, *operations))
        if len(waiting) == 10:
            await asyncio.gather(*waiting)
            waiting.clear()
            if first % 50_000 < step * 10:
                progress(f"many records: {first:,} of {count:,}")
    await asyncio.gather(*waiting)
