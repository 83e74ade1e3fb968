"""The erasure of a large tenant beside writers of another one, each in its own process."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.processes import ENVIRONMENT, program
from benchmarks.report import Report
from keelbolt.data import Subject, erase
from keelbolt.data.erasing import declare
from keelbolt.kernel import Put, Scope, open_storage
from keelbolt.langgraph.families import CHECKPOINTS, partition_of

Result = dict[str, float]

GONE, STAYS = "gone", "stays"
STEP = 250  # records of one commit
OF_A_THREAD = 200
WRITERS = 8
LEAST_RATE = 10_000  # records per second
MOST_WAIT = 3.0  # ratio of the writers' p99 during the erasure to that before it


@dataclass(frozen=True, slots=True)
class Counts:
    records: int
    alone_seconds: float  # how long the writers are measured before the erasure


FULL = Counts(records=1_000_000, alone_seconds=10.0)
QUICK = Counts(records=50_000, alone_seconds=2.0)


async def run(url: str | None, *, quick: bool = False, progress: Callable[[str], None] = print) -> Report:
    """Fill a storage, write beside nothing, then beside the erasure."""
    counts = QUICK if quick else FULL
    report = Report()
    with tempfile.TemporaryDirectory(prefix="keelbolt-bench-") as folder:
        url = url or f"sqlite:///{folder}/erase.db"
        progress(f"writing {counts.records:,} records")
        async with open_storage(url) as kernel:
            await declare(kernel)
            await fill(Scope(kernel, partition_of(GONE)), counts.records)
        progress("other writers alone")
        alone, _ = await _beside(url, asyncio.sleep(counts.alone_seconds, {}))
        progress(f"erasing {counts.records:,} records beside them")
        beside, result = await _beside(url, _erased(url))
    report.note("records erased", result["records"], "")
    report.at_least("records erased, beside other writers", result["records"] / result["seconds"], "/s", LEAST_RATE)
    report.note("memory of the process that erases", result["bytes"] / 1e6, "MB")
    report.note("p99 of the other writers alone", alone * 1000, "ms")
    report.at_most("p99 of the other writers ÷ that alone", beside / alone, "×", MOST_WAIT)
    return report


async def _beside(url: str, work: Awaitable[Result]) -> tuple[float, Result]:
    """Run writers beside this work; return the p99 of their commits in seconds, and the result of the work."""
    writers = await asyncio.create_subprocess_exec(
        *program("erase", "write", url), env=ENVIRONMENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert writers.stdout is not None
    await writers.stdout.readline()  # they write
    result = await work
    output, _ = await writers.communicate(b"")  # closes their input, which stops them
    return float(output), result


async def _erased(url: str) -> Result:
    """Erase in another process."""
    process = await asyncio.create_subprocess_exec(
        *program("erase", "erase", url), env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    result: Result = json.loads(output)
    return result


# ------------------------------------------------------------------------------------------------- in other processes


async def fill(scope: Scope, count: int) -> None:
    """Write the records of many LangGraph threads."""
    several = asyncio.Semaphore(WRITERS)

    async def write(first: int) -> None:
        async with several:
            thread = f"t{first // OF_A_THREAD}"
            await scope.commit(*(_record(thread, f"c{number:08}", 200) for number in range(first, first + STEP)))

    await asyncio.gather(*map(write, range(0, count, STEP)))


def _record(thread: str, checkpoint: str, size: int) -> Put:
    fields = {"thread": thread, "lane": f"{thread}:", "run": None, "id": checkpoint}
    return Put(CHECKPOINTS, f"{thread}:{checkpoint}", b"x" * size, fields)


async def write(url: str) -> None:
    """Commit with a pause after each commit until the input ends; print the p99."""
    times: list[float] = []

    async def writer(scope: Scope, thread: str) -> None:
        for number in itertools.count():
            began = time.perf_counter()
            await scope.commit(*(_record(thread, f"c{number:08}-{each}", 300) for each in range(3)))
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)

    async with open_storage(url) as kernel:
        await declare(kernel)
        scope = Scope(kernel, partition_of(STAYS))
        writers = [asyncio.create_task(writer(scope, f"{os.getpid()}-{number}")) for number in range(WRITERS)]
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in writers:
            task.cancel()
        await asyncio.wait(writers)
    times.sort()
    print(times[int(len(times) * 0.99)])


async def erase_all(url: str) -> None:
    """Erase the tenant; print records, seconds and the bytes of this process."""
    async with open_storage(url) as kernel:
        began = time.perf_counter()
        erased = await erase(kernel, Subject(kind="tenant", id=GONE))
        seconds = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"records": erased.total, "seconds": seconds, "bytes": most}))


if __name__ == "__main__":
    what, storage = sys.argv[1:]
    asyncio.run({"erase": erase_all, "write": write}[what](storage))
