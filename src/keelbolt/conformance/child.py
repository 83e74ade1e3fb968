"""A process of its own at a place: `python -m keelbolt.conformance.child`, told by its input what to do.

Its first input line is a pickled (place, job, arguments) in base64, each further line lets a waiting job go on. It
answers with lines of JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from keelbolt.conformance.expect import broken, woken
from keelbolt.conformance.families import FAMILIES
from keelbolt.conformance.subject import DataPlace
from keelbolt.errors import CommitRefused, SchemaMismatch
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.hints import LogTopic, QueueTopic
from keelbolt.kernel.logs import Append, Draft
from keelbolt.kernel.records import Collection, Put, Replace, Take
from keelbolt.kernel.work import Enqueue

P = "p"
CHILD_SECONDS = 45.0
LINE_BYTES = 16 * 1024 * 1024

Job = Callable[..., Awaitable[None]]


# ------------------------------------------------------------------------------------------------ in the new process


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def go() -> None:
    """Say that this process is ready, and wait until it may go on."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)


async def append(kernel: Kernel, *, name: str, streams: list[str], count: int) -> None:
    """Append to all streams in each commit; answer what was acknowledged."""
    await go()
    told = []
    for number in range(count):
        text = f"{name}.{number}"
        receipt = await kernel.commit(P, *(Append("log", s, (Draft("note", text.encode()),)) for s in streams))
        told.append((text, [receipt.seqs("log", stream)[0] for stream in streams]))
    say(told)


async def append_for_ever(kernel: Kernel, *, name: str) -> None:
    """Append and answer each acknowledged seq, until killed."""
    await go()
    for number in range(1_000_000):
        receipt = await kernel.commit(P, Append("log", "s", (Draft("note", f"{name}.{number}".encode()),)))
        say([f"{name}.{number}", receipt.seqs("log", "s")[0]])


async def repeat(kernel: Kernel, *, keys: list[str]) -> None:
    """Append entries with dedupe keys that other processes use as well; answer the seqs."""
    await go()
    told = {}
    for key in keys:
        receipt = await kernel.commit(P, Append("log", "s", (Draft("note", key.encode(), key),)))
        told[key] = receipt.seqs("log", "s")[0]
    say(told)


async def count(kernel: Kernel, *, times: int) -> None:
    """Add to the counter with optimistic versions; answer how often it succeeded."""
    await go()
    done = 0
    for _ in range(times):
        record = await kernel.get(P, "plain", "counter")
        assert record is not None
        with suppress(CommitRefused):
            await kernel.commit(P, Replace("plain", "counter", record.version, str(int(record.body) + 1).encode()))
            done += 1
    say(done)


async def put(kernel: Kernel, *, name: str, count: int) -> None:
    """Put records that are counted; answer when done."""
    await go()
    for number in range(count):
        await kernel.commit(P, Put("counted", f"{name}{number}", b"", {"state": name, "rank": number}))
    say("done")


async def put_grown(kernel: Kernel, *, keys: list[str]) -> None:
    """Put records into a collection that another process has declared anew meanwhile; answer which were written."""
    await go()
    written = []
    with suppress(SchemaMismatch):
        for rank, key in enumerate(keys):
            await kernel.commit(P, Put("grown", key, b"", {"rank": rank}))
            written.append(key)
    say(written)


async def take(kernel: Kernel, *, keys: list[str]) -> None:
    """Try to take each of the records; answer which were won."""
    await go()
    won = []
    for key in keys:
        with suppress(CommitRefused):
            await kernel.commit(P, Take("plain", key))
            won.append(key)
    say(won)


async def claim(kernel: Kernel, *, worker: str, limit: int) -> None:
    """Claim and complete until nothing is left; answer what was held."""
    await go()
    held = []
    while claims := await kernel.claim("runs", worker, limit=limit, lease_seconds=30.0):
        for one in claims:
            await kernel.commit(
                P, one.fenced(), Append("log", "done", (Draft("note", one.key.encode()),)), one.complete()
            )
            held.append([one.key, one.fence])
    say(held)


async def hold(kernel: Kernel, *, worker: str, lease_seconds: float) -> None:
    """Claim, answer the claim, and then try to write under its fence when told to."""
    (one,) = await kernel.claim("runs", worker, lease_seconds=lease_seconds)
    say([one.key, one.fence])
    await go()
    try:
        await kernel.commit(P, one.fenced(), Put("plain", "stale", b""))
    except CommitRefused as refusal:
        say(["refused", refusal.reason, refusal.found])
    else:
        say(["committed"])


async def tail(kernel: Kernel, *, after: int, count: int) -> None:
    """Follow the stream; answer each entry."""
    say("ready")
    entries = kernel.tail(P, "log", "s", after=after)
    for _ in range(count):
        entry = await anext(entries)
        say([entry.seq, entry.data.decode()])


async def watch(kernel: Kernel, *, topic: str, name: str) -> None:
    """Wait until a hint of a queue or a stream comes after which the commit is visible; answer whether it came."""
    with kernel.watch(QueueTopic(name) if topic == "queue" else LogTopic(P, "log", name)) as waiting:
        say("ready")
        say(await woken(waiting, partial(_committed, kernel, topic, name), CHILD_SECONDS / 2))


async def _committed(kernel: Kernel, topic: str, name: str) -> bool:
    if topic == "queue":
        return await kernel.work(P, name, topic) is not None
    return (await kernel.log_state(P, "log", name)).head > 0


async def enqueue(kernel: Kernel, *, keys: list[str]) -> None:
    """Enqueue items; answer when done."""
    await go()
    for key in keys:
        await kernel.commit(P, Enqueue("runs", key))
    say("done")


JOBS: dict[str, Job] = {
    job.__name__: job
    for job in (append, append_for_ever, repeat, count, put, put_grown, take, claim, hold, tail, watch, enqueue)
}


async def _run(place: DataPlace, declare: tuple[Collection, ...], job: str, arguments: dict[str, Any]) -> None:
    async with asyncio.timeout(CHILD_SECONDS), place.open(declare) as kernel:
        await JOBS[job](kernel, **arguments)


def main() -> None:
    place, declare, job, arguments = pickle.loads(base64.b64decode(sys.stdin.readline()))
    asyncio.run(_run(place, declare, job, arguments))


# --------------------------------------------------------------------------------------------------- in the old one


class Child:
    """A running process, seen from the one that started it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def answer(self) -> Any:
        """The next answer."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            errors = (await self._process.stderr.read()).decode()
            broken(f"a process ended without an answer (code {await self._process.wait()}): …{errors[-1500:]}")
        return json.loads(line)

    async def ready(self) -> None:
        if (answer := await self.answer()) != "ready":
            broken(f"a process answered {answer!r} instead of getting ready")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def stop(self) -> None:
        """Stop it with SIGSTOP: it lives, and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def start(
    place: DataPlace, job: Job, *, declare: tuple[Collection, ...] = FAMILIES, **arguments: object
) -> AsyncIterator[Child]:
    """Start a process that does this job at the place; it is gone afterwards."""
    told = base64.b64encode(pickle.dumps((place, declare, job.__name__, arguments)))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "keelbolt.conformance.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(told + b"\n")
        yield Child(process)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.communicate()


if __name__ == "__main__":
    main()
