"""Power loss: unsynced writes are lost, in any order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from keelbolt.kernel import Append, Attach, Collection, Draft, Durability, Enqueue, Kernel, Operation, Put
from keelbolt.kernel.sqlite import SQLiteKernel, connection, writer
from tests.faults.conftest import Figures
from tests.faults.disk import Cut, Disk, Write, anything, nothing

PARTITION = "power"
FAMILIES = (Collection("doc", fields={"number": int}),)
STREAMS = 3
MOMENTS = {"write wal": 60, "sync wal": 8, "write database": 40, "sync database": 2}  # most skipped before a cut


@dataclass
class Run:
    """The acknowledged commits in order, and the cuts, each with the number of commits acknowledged before it."""

    acknowledged: list[tuple[int, int]] = field(default_factory=list)  # stream, seq
    cuts: list[tuple[Cut, int]] = field(default_factory=list)


@asynccontextmanager
async def opened(disk: Disk, durability: Durability) -> AsyncIterator[Kernel]:
    async with SQLiteKernel(
        "kernel.db", durability=durability, declare=FAMILIES, connect=disk.connect, shared=False, reserve=False
    ) as kernel:
        yield kernel


async def run(durability: Durability, cuts: int, dice: random.Random, *, obeys_sync: bool = True) -> Run:
    """Write until this many cuts were made, each before a random write or sync."""
    disk = Disk()
    result = Run()
    async with opened(disk, durability) as kernel:
        moment, left = "write wal", 40

        def before(what: str) -> None:
            nonlocal moment, left
            left -= what == moment
            if left <= 0 and len(result.cuts) < cuts:
                result.cuts.append((disk.cut(what), len(result.acknowledged)))
                moment = dice.choice(list(MOMENTS))
                left = dice.randint(1, MOMENTS[moment])

        disk.obeys_sync = obeys_sync
        disk.before = before

        async def write(stream: int) -> None:
            number = 0
            while len(result.cuts) < cuts and number < 50 * cuts:
                number += 1
                data = dice.randbytes(dice.choice((20, 300, 6000)))
                operations: list[Operation] = [
                    Append("log", f"s{stream}", (Draft("a", data),)),
                    Append("log", "order", (Draft("a", str(stream).encode()),)),
                    Put("doc", f"s{stream}", data, {"number": number}),
                    Enqueue("queue", f"s{stream} {number % 50}"),
                ]
                if number % 40 == 0:
                    blob = await kernel.stage_blob(PARTITION, data * 3)
                    operations.append(Attach(blob.digest, f"s{stream} {number}"))
                receipt = await kernel.commit(PARTITION, *operations)
                result.acknowledged.append((stream, receipt.seqs("log", f"s{stream}")[0]))

        await asyncio.gather(*(write(stream) for stream in range(STREAMS)))
        disk.before = lambda _what: None
    assert len(result.cuts) == cuts, "SQLite does not do what it should be interrupted in"
    return result


async def lost_after(cut: Cut, acknowledged: list[tuple[int, int]], keep: Callable[[Write], Write | None]) -> int:
    """Open after the power loss. Return how many acknowledged commits are lost. Fail on any other damage."""
    async with opened(cut.after(keep), "durable") as kernel:
        heads = []
        for stream in range(STREAMS):
            page = await kernel.read_log(PARTITION, "log", f"s{stream}", limit=10_000, max_bytes=1 << 30)
            assert [entry.seq for entry in page.entries] == list(range(1, page.head + 1)), "a hole in the log"
            record = await kernel.get(PARTITION, "doc", f"s{stream}")
            found = (record.version, record.body) if record else (0, b"")
            last = (page.head, page.entries[-1].data) if page.entries else (0, b"")
            assert found == last, "half a commit"
            heads.append(page.head)
        order = await kernel.read_log(PARTITION, "log", "order", limit=10_000, max_bytes=1 << 30)
        in_order = Counter(int(entry.data) for entry in order.entries)
        assert [in_order[stream] for stream in range(STREAMS)] == heads, "a hole in the order of commits"
        problems = [problem async for problem in kernel.check()]
        assert problems == [], f"cut before {cut.moment}"
        await kernel.commit(PARTITION, Append("log", "s0", (Draft("a", b"it goes on"),)))
    return sum(seq > heads[stream] for stream, seq in acknowledged)


@pytest.fixture(autouse=True)
def _small_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make checkpoints frequent, so that some cuts happen during them."""
    monkeypatch.setattr(connection, "WAL_PAGES", 60)
    monkeypatch.setattr(writer, "WAL_PAGES", 60, raising=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("durability", ["durable", "relaxed"])
async def test_power_loss(durability: Durability, figures: Figures, full: bool) -> None:
    """`durable` loses nothing acknowledged; `relaxed` loses at most the last moments. Neither has gaps or damage."""
    dice = random.Random(durability)
    cuts = 300 if full else 50
    result = await run(durability, cuts, dice)
    moments: Counter[str] = Counter()
    held_back, losses, reordered = 0, [], []
    for cut, acknowledged in result.cuts:
        moments[cut.moment] += 1
        held_back += cut.unsynced
        durable = result.acknowledged[:acknowledged]
        losses.append(await lost_after(cut, durable, nothing))
        reordered.append(await lost_after(cut, durable, anything(dice)))
    figures(
        f"power loss, {durability}",
        cuts=2 * len(result.cuts),
        acknowledged=len(result.acknowledged),
        unsynced_writes=held_back,
        lost=sum(losses) + sum(reordered),
        cuts_that_lost=sum(loss > 0 for loss in losses + reordered),
        lost_at_most=max(losses + reordered),
        moments=dict(sorted(moments.items())),
    )
    assert held_back > len(result.cuts), "the disk held nothing back: this proves nothing"
    assert set(moments) == set(MOMENTS)
    if durability == "durable":
        assert sum(losses) + sum(reordered) == 0
    else:
        assert max(losses + reordered) > 0, "relaxed lost nothing: is it relaxed?"


async def test_a_disk_that_never_syncs_loses_what_was_acknowledged(figures: Figures) -> None:
    """Checks the test itself: if syncs are ignored, it finds lost commits."""
    dice = random.Random(4)
    result = await run("durable", 10, dice, obeys_sync=False)
    losses = [await lost_after(cut, result.acknowledged[:acknowledged], nothing) for cut, acknowledged in result.cuts]
    figures("power loss, no sync (control)", cuts=len(losses), lost=sum(losses))
    assert sum(losses) > 0
