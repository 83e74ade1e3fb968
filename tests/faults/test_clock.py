"""The wall clock jumps forward and back: no lease, expiry or ready time follows it. A reboot ends leases."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from keelbolt.errors import CommitRefused
from keelbolt.kernel import Enqueue, Kernel, Put
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.testing.clock import FakeClock
from tests.faults.conftest import Figures
from tests.faults.prober import FAMILIES, LEASE_SECONDS, PARTITION
from tests.faults.processes import Children

HOUR = 3600.0


def faketime_library() -> str:
    for library in sorted(Path("/usr/lib").glob("**/faketime/libfaketime.so.1")):
        return str(library)
    pytest.skip("faketime is not installed: no process can be given another wall clock")


async def claimed(kernel: Kernel, worker: str, lease_seconds: float = 15.0) -> list[str]:
    return [claim.key for claim in await kernel.claim("queue", worker, limit=10, lease_seconds=lease_seconds)]


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_jump_of_the_wall_clock_moves_nothing(tmp_path: Path, jump: float) -> None:
    """Only elapsed time ends a lease, expires a record or makes work ready."""
    clock = FakeClock()
    path = str(tmp_path / "kernel.db")
    async with SQLiteKernel(path, declare=FAMILIES, clock=clock) as kernel:
        await kernel.commit(PARTITION, Enqueue("queue", "held"), Put("doc", "a", b"", expires_in=40.0))
        assert await claimed(kernel, "holder") == ["held"]
        await kernel.commit(PARTITION, Enqueue("queue", "later", ready_in=10.0))
        clock.jump(jump)
        assert await claimed(kernel, "thief") == []
        assert await kernel.get(PARTITION, "doc", "a")
    async with SQLiteKernel(path, declare=FAMILIES, clock=clock) as kernel:  # opened after the jump
        clock.advance(9.0)
        assert await claimed(kernel, "thief") == []
        clock.advance(2.0)
        assert await claimed(kernel, "thief", 60.0) == ["later"]
        clock.jump(jump)
        clock.advance(3.9)
        assert await claimed(kernel, "thief", 60.0) == []
        clock.advance(0.2)
        assert await claimed(kernel, "thief", 60.0) == ["held"]
        clock.advance(24.8)
        assert await kernel.get(PARTITION, "doc", "a")
        clock.advance(0.2)
        assert await kernel.get(PARTITION, "doc", "a") is None


async def test_a_new_boot_ends_all_leases(tmp_path: Path) -> None:
    """After a reboot no work is held, old fences are refused, and expiry continues by the wall clock."""
    clock = FakeClock()
    path = str(tmp_path / "kernel.db")
    async with SQLiteKernel(path, declare=FAMILIES, clock=clock) as kernel:
        await kernel.commit(PARTITION, Enqueue("queue", "held"), Put("doc", "a", b"", expires_in=HOUR))
        await kernel.commit(PARTITION, Enqueue("queue", "later", ready_in=HOUR))
        (old,) = await kernel.claim("queue", "holder", lease_seconds=HOUR)
    clock.reboot(seconds=60.0)
    async with SQLiteKernel(path, declare=FAMILIES, clock=clock) as kernel:
        (new,) = await kernel.claim("queue", "successor", limit=10)
        assert (new.key, new.attempt) == ("held", 2)
        assert new.fence > old.fence
        with pytest.raises(CommitRefused):
            await kernel.commit(PARTITION, old.complete())
        clock.advance(HOUR - 62.0)
        assert await kernel.get(PARTITION, "doc", "a")
        clock.advance(4.0)
        assert await kernel.get(PARTITION, "doc", "a") is None
        assert "later" in await claimed(kernel, "successor")


@pytest.mark.parametrize("offset", ["+3600s", "-3600s"])
async def test_a_process_with_a_wrong_wall_clock_steals_nothing(
    tmp_path: Path, children: Children, figures: Figures, full: bool, offset: str
) -> None:
    """A process whose clock is an hour off claims only free work, and sees only records that are not expired."""
    library = faketime_library()
    path = str(tmp_path / "kernel.db")
    env = {"LD_PRELOAD": library, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    async with SQLiteKernel(path, declare=FAMILIES) as kernel:
        await kernel.commit(PARTITION, *(Enqueue("queue", f"held-{number}") for number in range(5)))
        held = await claimed(kernel, "holder", LEASE_SECONDS)
        await kernel.commit(
            PARTITION,
            Enqueue("queue", "later", ready_in=60.0),
            Put("doc", "short-lived", b"", expires_in=60.0),
        )
        child = children.start("prober", path, "prober", env=env)
        wall = json.loads(child.line())
        assert abs(wall - time.time() - float(offset[:-1])) < 60, "faketime has no effect"
        until = time.monotonic() + (12.0 if full else 1.5)
        looks = 0
        last_beat = 0.0
        while time.monotonic() < until:
            last_beat = time.monotonic()
            await kernel.heartbeat("holder", lease_seconds=LEASE_SECONDS)
            child.tell("look")
            assert json.loads(child.line()) == [{}, True]
            looks += 1
            await asyncio.sleep(0.05)
        stolen: dict[str, int] = {}
        while len(stolen) < len(held) and time.monotonic() < last_beat + 30:
            child.tell("look")
            claims, sees = json.loads(child.line())
            assert sees
            stolen |= claims
            await asyncio.sleep(0.05)
        takeover = time.monotonic() - last_beat
        assert sorted(stolen) == sorted(held)
        assert LEASE_SECONDS <= takeover < LEASE_SECONDS + 1.0
        assert await claimed(kernel, "holder") == [], "claimed twice"
    figures(f"wall clock {offset}", looks=looks, stolen=0, s_until_takeover_after_the_last_heartbeat=takeover)
