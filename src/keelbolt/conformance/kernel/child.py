"""Jobs that the laws of several processes run in new processes; see `keelbolt.conformance.child`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from keelbolt.conformance.child import CHILD_SECONDS, go, say
from keelbolt.conformance.kernel.subject import woken
from keelbolt.errors import CommitRefused, SchemaMismatch
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.hints import LogTopic, QueueTopic
from keelbolt.kernel.logs import Append, Draft
from keelbolt.kernel.records import Put, Replace, Take
from keelbolt.kernel.work import Enqueue

P = "p"


async def append(kernel: Kernel, *, name: str, streams: list[str], count: int) -> None:
    """Append to all streams in each commit; reply with the acknowledged entries."""
    await go()
    reported = []
    for number in range(count):
        text = f"{name}.{number}"
        receipt = await kernel.commit(P, *(Append("log", s, (Draft("note", text.encode()),)) for s in streams))
        reported.append((text, [receipt.seqs("log", stream)[0] for stream in streams]))
    say(reported)


async def append_for_ever(kernel: Kernel, *, name: str) -> None:
    """Append until killed; reply with each acknowledged seq."""
    await go()
    for number in range(1_000_000):
        receipt = await kernel.commit(P, Append("log", "s", (Draft("note", f"{name}.{number}".encode()),)))
        say([f"{name}.{number}", receipt.seqs("log", "s")[0]])


async def repeat(kernel: Kernel, *, keys: list[str]) -> None:
    """Append entries with dedupe keys that other processes use as well; reply with the seqs."""
    await go()
    reported = {}
    for key in keys:
        receipt = await kernel.commit(P, Append("log", "s", (Draft("note", key.encode(), key),)))
        reported[key] = receipt.seqs("log", "s")[0]
    say(reported)


async def count(kernel: Kernel, *, times: int) -> None:
    """Add to the counter with optimistic versions; reply with the number of successes."""
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
    """Put records that are counted; reply when done."""
    await go()
    for number in range(count):
        await kernel.commit(P, Put("counted", f"{name}{number}", b"", {"state": name, "rank": number}))
    say("done")


async def put_grown(kernel: Kernel, *, keys: list[str]) -> None:
    """Put records into a collection whose declaration another process has changed; reply with the written keys."""
    await go()
    written = []
    with suppress(SchemaMismatch):
        for rank, key in enumerate(keys):
            await kernel.commit(P, Put("grown", key, b"", {"rank": rank}))
            written.append(key)
    say(written)


async def take(kernel: Kernel, *, keys: list[str]) -> None:
    """Try to take each of the records; reply with the taken keys."""
    await go()
    won = []
    for key in keys:
        with suppress(CommitRefused):
            await kernel.commit(P, Take("plain", key))
            won.append(key)
    say(won)


async def claim(kernel: Kernel, *, worker: str, limit: int) -> None:
    """Claim and complete until no item is left; reply with the keys and fences."""
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
    """Claim, reply with the claim, wait, and then write under its fence."""
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
    """Follow the stream; reply with each entry."""
    say("ready")
    entries = kernel.tail(P, "log", "s", after=after)
    for _ in range(count):
        entry = await anext(entries)
        say([entry.seq, entry.data.decode()])


async def watch(kernel: Kernel, *, topic: str, name: str) -> None:
    """Wait for a hint after which the commit is visible; reply whether it came."""
    with kernel.watch(QueueTopic(name) if topic == "queue" else LogTopic(P, "log", name)) as waiting:
        say("ready")
        say(await woken(waiting, partial(_committed, kernel, topic, name), CHILD_SECONDS / 2))


async def _committed(kernel: Kernel, topic: str, name: str) -> bool:
    if topic == "queue":
        return await kernel.work(P, name, topic) is not None
    return (await kernel.log_state(P, "log", name)).head > 0


async def enqueue(kernel: Kernel, *, keys: list[str]) -> None:
    """Enqueue items; reply when done."""
    await go()
    for key in keys:
        await kernel.commit(P, Enqueue("runs", key))
    say("done")
