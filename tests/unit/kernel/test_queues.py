"""Queues: details of the claim order, the same in both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.kernel.sqlite import SQLiteKernel
from keelbolt.kernel.work import Enqueue, Remove
from keelbolt.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def kernel(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Kernel]:
    made = MemoryKernel(clock=clock) if request.param == "memory" else SQLiteKernel(f"{tmp_path}/file.db", clock=clock)
    async with made:
        yield made


async def claim(kernel: Kernel, limit: int = 1, worker: str = "w") -> list[str]:
    return [claim.key for claim in await kernel.claim("jobs", worker, limit=limit)]


async def test_within_a_lane_priority_then_age(kernel: Kernel, clock: FakeClock) -> None:
    for key, priority in (("old", 0), ("urgent", 5), ("young", 0), ("low", -1)):
        await kernel.commit("p", Enqueue("jobs", key, priority=priority))
        clock.advance(1)
    assert await claim(kernel, 9) == ["urgent", "old", "young", "low"]


async def test_an_item_enqueued_again_gets_a_new_position(kernel: Kernel, clock: FakeClock) -> None:
    await kernel.commit("p", Enqueue("jobs", "a", lane="one"), Enqueue("jobs", "b", lane="one"))
    clock.advance(1)
    await kernel.commit("p", Enqueue("jobs", "b", lane="one", priority=1))
    assert await claim(kernel, 9) == ["b", "a"]


async def test_lanes_take_turns_across_claims(kernel: Kernel, clock: FakeClock) -> None:
    for number in range(3):
        await kernel.commit("p", *(Enqueue("jobs", f"{lane}{number}", lane=lane) for lane in "ab"))
        clock.advance(1)
    assert [key for _ in range(6) for key in await claim(kernel)] in (
        ["a0", "b0", "a1", "b1", "a2", "b2"],
        ["b0", "a0", "b1", "a1", "b2", "a2"],
    )


async def test_delayed_items_wait_and_then_keep_the_order(kernel: Kernel, clock: FakeClock) -> None:
    await kernel.commit("p", Enqueue("jobs", "late", ready_in=10.0), Enqueue("jobs", "soon", ready_in=5.0))
    assert await claim(kernel, 9) == []
    clock.advance(4.999)
    assert await claim(kernel, 9) == []
    clock.advance(5.001)
    assert await claim(kernel, 9) == ["soon", "late"]


async def test_an_item_is_offered_once_however_often_it_moved(kernel: Kernel, clock: FakeClock) -> None:
    for _ in range(3):
        await kernel.commit("p", Enqueue("jobs", "a"), Enqueue("jobs", "b", ready_in=1.0))
        await kernel.commit("p", Remove("jobs", "b"))
    await kernel.commit("p", Enqueue("jobs", "b"))
    clock.advance(5)
    assert sorted(await claim(kernel, 9)) == ["a", "b"]
    assert await claim(kernel, 9) == []


async def test_expired_leases_come_before_everything_in_the_order_of_their_fences(
    kernel: Kernel, clock: FakeClock
) -> None:
    await kernel.commit("p", *(Enqueue("jobs", key) for key in "abc"))
    first = await claim(kernel, 2, "gone")
    clock.advance(15)
    await kernel.commit("p", Enqueue("jobs", "urgent", priority=9))
    assert (await claim(kernel, 9, "w"))[:2] == first


async def test_a_retired_worker_releases_without_counting_the_attempt(kernel: Kernel, clock: FakeClock) -> None:
    await kernel.commit("p", Enqueue("jobs", "nudged"), Enqueue("jobs", "plain"))
    held = await kernel.claim("jobs", "w", limit=2)
    clock.advance(1)
    await kernel.commit("p", Enqueue("jobs", "nudged"))
    clock.advance(9)
    assert await kernel.retire("w") == 2
    assert await kernel.retire("w") == 0
    for key, ready_in in (("nudged", -9.0), ("plain", 0.0)):
        item = await kernel.work("p", "jobs", key)
        assert item is not None
        assert (item.state, item.attempt, item.holder, item.ready_in) == ("waiting", 0, None, ready_in)
    again = await kernel.claim("jobs", "x", limit=2)
    assert min(claim.fence for claim in again) > max(claim.fence for claim in held)
    assert (await kernel.stats()).workers == 1


async def test_listing_goes_by_key_and_state(kernel: Kernel) -> None:
    await kernel.commit("p", *(Enqueue("jobs", key, ready_in=float(key == "c")) for key in "dcba"))
    await kernel.commit("q", Enqueue("jobs", "elsewhere"))
    page = await kernel.list_work("p", "jobs", state="waiting", limit=3)
    assert [item.key for item in page.items] == ["a", "b", "c"]
    rest = await kernel.list_work("p", "jobs", state="waiting", limit=3, cursor=page.cursor)
    assert ([item.key for item in rest.items], rest.cursor) == (["d"], None)
    assert (await kernel.list_work("p", "jobs", state="held")).items == ()
