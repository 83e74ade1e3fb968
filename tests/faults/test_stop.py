"""Processes that are stopped (SIGSTOP) while they hold work or the write lock."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from keelbolt.errors import StorageBusy
from keelbolt.kernel import Append, Claim, Draft, Enqueue, Kernel, Operation, Receipt
from keelbolt.kernel.sqlite import SQLiteKernel
from tests.faults.conftest import Figures
from tests.faults.holder import FAMILIES, PARTITION, QUEUE, attempt
from tests.faults.processes import Child, Children

LEASE_SECONDS = 1.0
TAKEOVER_SECONDS = 1.0  # after the lease's end
ITEMS = 5  # of each holder


async def take_over(kernel: Kernel, wanted: int) -> dict[str, Claim]:
    """Claim until this process holds all requested items."""
    claims: dict[str, Claim] = {}
    until = time.monotonic() + 30
    while len(claims) < wanted and time.monotonic() < until:
        for claim in await kernel.claim(QUEUE, "successor", limit=wanted):
            assert claim.key not in claims, "claimed twice"
            claims[claim.key] = claim
        await asyncio.sleep(0.05)
    return claims


@pytest.mark.timeout(600)
async def test_a_stopped_holder_is_replaced_and_its_fence_refused(
    tmp_path: Path, children: Children, figures: Figures, full: bool
) -> None:
    """After SIGSTOP past the lease another process takes over; writes of the first one after SIGCONT are refused."""
    rounds, holders = (5, 4) if full else (1, 2)
    path = str(tmp_path / "kernel.db")
    refused = written = 0
    slowest = 0.0
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        for number in range(rounds):
            wanted = holders * ITEMS
            keys = [f"{number}-{item}" for item in range(wanted)]
            await kernel.commit(PARTITION, *(Enqueue(QUEUE, key) for key in keys))
            stopped: list[tuple[Child, dict[str, int]]] = []
            began = 0.0
            for holder in range(holders):
                child = children.start("holder", path, f"holder-{number}-{holder}", ITEMS, LEASE_SECONDS)
                fences = json.loads(child.line())
                began = time.monotonic()  # of the last lease
                child.send(signal.SIGSTOP)
                child.stopped()
                stopped.append((child, fences))
            assert sum(len(fences) for _, fences in stopped) == wanted
            claims = await take_over(kernel, wanted)
            slowest = max(slowest, time.monotonic() - began)
            assert sorted(claims) == sorted(keys)
            for child, fences in stopped:
                assert all(claims[key].fence > fence for key, fence in fences.items()), "a fence did not grow"
                child.send(signal.SIGCONT)
                child.tell("go on")
                for _ in fences:
                    outcomes = json.loads(child.line())
                    refused += sum(outcome == "fence" for outcome in outcomes.values())
                    written += sum(outcome != "fence" for outcome in outcomes.values())
                assert child.wait() == 0
            for key, claim in claims.items():
                assert (await kernel.log_state(PARTITION, "events", key)).head == 0, "a stale holder has written"
                await kernel.commit(PARTITION, claim.complete())
        assert [problem async for problem in kernel.check()] == []
    figures(
        "SIGSTOP past the lease",
        takeovers=rounds * holders * ITEMS,
        stale_writes_refused=refused,
        stale_writes_accepted=written,
        s_slowest_takeover=slowest,
        s_lease=LEASE_SECONDS,
    )
    assert written == 0
    assert refused == rounds * holders * ITEMS * 6
    assert slowest <= LEASE_SECONDS + TAKEOVER_SECONDS


async def test_a_current_holder_may_write(tmp_path: Path) -> None:
    """The writes that are refused to a stale holder are accepted from a holder in time."""
    async with SQLiteKernel(str(tmp_path / "kernel.db"), declare=FAMILIES) as kernel:
        await kernel.commit(PARTITION, Enqueue(QUEUE, "a"))
        (claim,) = await kernel.claim(QUEUE, "w")
        outcomes = await attempt(kernel, claim)
    assert (outcomes["append"], outcomes["put"], outcomes["retry"]) == ("written", "written", "written")


async def retried(kernel: Kernel, operation: Operation) -> Receipt:
    """Retry on StorageBusy: the writer may not have noticed yet that the lock is free."""
    until = time.monotonic() + 10
    while True:
        try:
            return await kernel.commit(PARTITION, operation)
        except StorageBusy:
            assert time.monotonic() < until, "the lock is free, but the file is still busy"
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
@pytest.mark.parametrize("point", ["locked", "begun", "saved"])
async def test_a_stopped_writer_does_not_make_others_hang(
    tmp_path: Path,
    children: Children,
    figures: Figures,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    end: signal.Signals,
) -> None:
    """While a process is stopped with the write lock, others can read, and writes raise StorageBusy until it ends."""
    monkeypatch.setattr("keelbolt.kernel.sqlite.writer.LOCK_SECONDS", 0.5)
    path = str(tmp_path / "kernel.db")
    append = Append("events", "others", (Draft("a", b""),))
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        await kernel.commit(PARTITION, append)
        child = children.start("stopper", path, point)
        assert child.line() == "ready"
        child.stopped()
        began = time.monotonic()
        try:
            with pytest.raises(StorageBusy):
                async with asyncio.timeout(10):
                    await kernel.commit(PARTITION, append)
        except BaseException:
            child.kill()  # otherwise closing would wait for it too
            raise
        waited = time.monotonic() - began
        assert (await kernel.log_state(PARTITION, "events", "others")).head == 1
        assert not (await kernel.health()).writes
        child.send(end)
        began = time.monotonic()
        if end == signal.SIGCONT:
            assert child.line() == "committed"
            assert child.wait() == 0
        else:
            child.wait()
        receipt = await retried(kernel, append)
        resumed = time.monotonic() - began
        assert receipt.seqs("events", "others") == (2,), "a commit that was refused as busy was written all the same"
        assert (await kernel.log_state(PARTITION, "events", "stopped")).head == (1 if end == signal.SIGCONT else 0)
        assert [problem async for problem in kernel.check()] == []
    figures(f"stopped at {point!r}, then {end.name}", s_until_StorageBusy=waited, s_until_others_write=resumed)
    assert waited < 9.0  # LOCK_SECONDS, and time for a busy machine
    assert resumed < 9.0


async def test_opening_and_closing_do_not_hang_behind_a_stopped_writer(
    tmp_path: Path, children: Children, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process is stopped with the write lock, opening raises StorageBusy, and closing ends in time."""
    monkeypatch.setattr("keelbolt.kernel.sqlite.writer.LOCK_SECONDS", 0.5)
    monkeypatch.setattr("keelbolt.kernel.sqlite.files.OPEN_SECONDS", 0.5)
    path = str(tmp_path / "kernel.db")
    kernel = SQLiteKernel(path, declare=FAMILIES)
    await kernel.open()
    child = children.start("stopper", path, "begun")
    assert child.line() == "ready"
    child.stopped()
    try:
        began = time.monotonic()
        with pytest.raises(StorageBusy):
            async with asyncio.timeout(15), SQLiteKernel(path, declare=FAMILIES):
                pass
        opening = time.monotonic() - began
        commit = asyncio.ensure_future(kernel.commit(PARTITION, Append("events", "others", (Draft("a", b""),))))
        began = time.monotonic()
        async with asyncio.timeout(15):
            await kernel.close()
        closing = time.monotonic() - began
        with pytest.raises(StorageBusy):
            await commit
    finally:
        child.kill()
    figures("opening and closing behind a stopped writer", s_opening=opening, s_closing=closing)
