"""One task that streams many chunks, and its follower."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.prose import sentence
from benchmarks.report import Report
from benchmarks.tasks_echo import message
from keelbolt.kernel import Append, Draft, Entry, open_storage
from keelbolt.protocol.types import Task
from keelbolt.tasks import TaskContext, TaskEngine
from keelbolt.tasks.journal import BUFFER_ENTRIES

CHUNK_BYTES = 200
ARTIFACT = "story"
BURST_SECONDS = 0.001  # chunks received within this time arrived together


@dataclass(frozen=True, slots=True)
class Streamed:
    """The result of one stream: the follower's waits for the chunks, and the bytes written for them."""

    seconds: float  # from the first chunk sent to the last one received
    costs: list[float]  # seconds of each chunk
    written: int | None  # bytes, or None if the system does not count them
    payload: int
    entries: list[bytes]
    task_id: str


async def measure(report: Report, folder: str, count: int, rounds: int) -> None:
    """Measure streams and bare appends in turns, each on a new file; the last stream is then loaded."""
    chunks = [sentence(random.Random(number), CHUNK_BYTES) for number in range(count)]
    part = count // 20
    first, last, rates, bare_rates, costs, loads = [], [], [], [], [], []
    for number in range(rounds):
        path = f"{folder}/stream-{number}.db"
        streamed = await stream(path, chunks)
        # The first twentieth fills the buffer, so the second twentieth is measured in its place.
        first.append(sum(streamed.costs[part : 2 * part]))
        last.append(sum(streamed.costs[-part:]))
        rates.append(count / streamed.seconds)
        bare_rates.append(await appends(f"{folder}/appends-{number}.db", streamed.entries))
        if streamed.written is not None:
            costs.append(streamed.written / streamed.payload)
        loads.append(await loading(path, streamed.task_id))
    rate, bare = statistics.median(rates), statistics.median(bare_rates)
    name = f"{count:,} chunks of {CHUNK_BYTES} bytes in one task"
    report.note(f"{name}, seen by a follower", rate, "/s")
    growth = statistics.median(last) / statistics.median(first)
    report.at_most("the last 5 % of the chunks ÷ the first, once the pipe is full", growth, "×", 1.2)
    if costs:
        report.at_most("bytes written, checkpoint included ÷ bytes of text", statistics.median(costs), "×", 5)
    report.note("the same entries appended by the kernel alone, one commit each", bare, "/s")
    report.at_least("chunks ÷ entries appended by the kernel alone", rate / bare, "×", 0.3)
    report.at_most("loading the finished task ÷ decoding its bytes", statistics.median(loads), "×", 3)


async def stream(path: str, chunks: Sequence[str]) -> Streamed:
    began = 0.0

    async def tell(ctx: TaskContext) -> None:
        nonlocal began
        began = time.perf_counter()
        for chunk in chunks:
            await ctx.emit_text_artifact(chunk, artifact_id=ARTIFACT, append=True)
        await ctx.complete()

    entries: list[Entry] = []
    seen: list[float] = []
    async with open_storage(f"sqlite:///{path}") as kernel, TaskEngine(kernel, tell) as engine:
        await kernel.flush()
        before = written_bytes()
        sent = await engine.tasks.send(message())
        task_id = sent.task.record.task_id
        async with contextlib.aclosing(engine.tasks.follow(task_id, after=0)) as events:
            async for event in events:
                if isinstance(event, Entry) and event.kind == "artifact":
                    seen.append(time.perf_counter())
                    entries.append(event)
    after = written_bytes()  # closing has written the rest of the WAL into the file
    assert len(seen) == len(chunks)
    written = after - before if before is not None and after is not None and after > before else None
    seconds = seen[-1] - began
    texts = [entry.data for entry in entries]
    return Streamed(seconds, costs_of(seen, began), written, sum(map(len, chunks)), texts, task_id)


def costs_of(seen: Sequence[float], began: float) -> list[float]:
    """Return the latency of each chunk. Chunks of one commit arrive together and share its time evenly."""
    costs: list[float] = []
    before, waiting = began, 0
    for at, after in itertools.pairwise([*seen, seen[-1] + 1.0]):
        waiting += 1
        if after - at > BURST_SECONDS:
            costs += [(at - before) / waiting] * waiting
            before, waiting = at, 0
    return costs


def written_bytes() -> int | None:
    """Return the bytes that this process wrote to disks; None if the system does not count them."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return int(dict(line.split(": ", 1) for line in lines)["write_bytes"])


async def appends(path: str, entries: Sequence[bytes]) -> float:
    """Return entries per second, each in its own commit, with as many in flight as a task's buffer holds."""
    async with open_storage(f"sqlite:///{path}") as kernel:
        numbers = iter(range(len(entries)))

        async def caller() -> None:
            for number in numbers:
                await kernel.commit("bench", Append("bench", "stream", (Draft("artifact", entries[number]),)))

        start = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(BUFFER_ENTRIES)))
        return len(entries) / (time.perf_counter() - start)


async def loading(path: str, task_id: str) -> float:
    """Return the time to load the task, relative to decoding it."""
    async with open_storage(f"sqlite:///{path}") as kernel, TaskEngine(kernel) as engine:
        text = await engine.store.task_json(await engine.tasks.load(task_id))
        one, other = [], []
        for _ in range(7):
            start = time.perf_counter()
            await engine.store.task(await engine.tasks.load(task_id))
            loaded = time.perf_counter()
            Task.model_validate_json(text)
            one.append(loaded - start)
            other.append(time.perf_counter() - loaded)
    return statistics.median(one) / statistics.median(other)
