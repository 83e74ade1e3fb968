"""An item is never held without a lease, because no other worker could take it over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from keelbolt.kernel import Enqueue, Kernel, open_storage
from keelbolt.kernel.postgres import queues
from keelbolt.kernel.postgres.committer import worker_locks_of
from keelbolt.testing.postgres import OwnPostgres, own_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


class Paused:
    """Replaces a function of `queues`: it runs, and then its transaction stays open until `over` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.over = asyncio.Event(), asyncio.Event()
        self._function = getattr(queues, name)
        monkeypatch.setattr(queues, name, self)

    async def __call__(self, *args: Any) -> Any:
        result = await self._function(*args)
        self.reached.set()
        await self.over.wait()
        return result


async def _beside(paused: Paused, first: Any, second: Any) -> None:
    """Run ``second`` while the transaction of ``first`` is open."""
    one = asyncio.create_task(first)
    await paused.reached.wait()
    two = asyncio.create_task(second)
    await asyncio.wait([two], timeout=0.5)
    paused.over.set()
    await asyncio.gather(one, two)


async def _enqueue(kernel: Kernel) -> None:
    await kernel.commit("p", Enqueue("jobs", "new", worker="w"))


async def _held_without_a_lease(kernel: Kernel) -> set[str]:
    counts = await kernel.count_work(["jobs"])
    return counts.holders.keys() - counts.workers.keys()


@pytest.mark.parametrize("how", ["enqueue", "claim"])
async def test_a_worker_claims_while_it_retires(server: OwnPostgres, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    async with open_storage(server.create_database()) as kernel:
        await kernel.commit("p", Enqueue("jobs", "waiting"))
        await kernel.heartbeat("w")
        paused = Paused(monkeypatch, "retire")
        await _beside(paused, kernel.retire("w"), _enqueue(kernel) if how == "enqueue" else kernel.claim("jobs", "w"))
        assert (await kernel.count_work(["jobs"])).holders == {"w": 1}
        assert await _held_without_a_lease(kernel) == set()


async def test_a_worker_claims_while_its_ended_lease_is_swept(
    server: OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_storage(server.create_database()) as kernel:
        await kernel.heartbeat("w", lease_seconds=0.01)
        await asyncio.sleep(0.05)
        paused = Paused(monkeypatch, "sweep_blobs_and_workers")
        await _beside(paused, kernel.sweep(), _enqueue(kernel))
        assert (await kernel.count_work(["jobs"])).holders == {"w": 1}
        assert await _held_without_a_lease(kernel) == set()


def test_locks_of_workers_are_taken_in_one_order() -> None:
    """Batches that take them in different orders block each other while a worker retires."""
    workers = [f"w{number}" for number in range(20)]
    commits = [("p", [Enqueue("jobs", each, worker=each)]) for each in workers]
    locks = worker_locks_of("s", commits)
    assert locks == worker_locks_of("s", commits[::-1]) == sorted(locks)
    assert len(locks) == 20


async def test_a_commit_gives_a_higher_fence_than_a_claim_that_came_between(server: OwnPostgres) -> None:
    """A commit's ids are issued before it locks the item; a claim and a release by another process may come between."""
    url = server.create_database()
    async with open_storage(url) as kernel:
        await kernel.commit("p", Enqueue("jobs", "a"))
        (claim,) = await kernel.claim("jobs", "other")
        await kernel.commit("p", claim.release())
        server.execute("SELECT setval('keelbolt.ids', 1)", url=url)  # the commit's ids are older than the claim
        receipt = await kernel.commit("p", Enqueue("jobs", "a", worker="w"))
        assert receipt.fence("jobs", "a") > claim.fence


async def test_a_retired_item_that_was_enqueued_meanwhile_keeps_its_place(server: OwnPostgres) -> None:
    """It waits since it was enqueued again, not since its worker retired."""
    async with open_storage(server.create_database()) as kernel:
        await kernel.commit("p", Enqueue("jobs", "first", worker="w"))
        await kernel.commit("p", Enqueue("jobs", "first"))
        await kernel.commit("p", Enqueue("jobs", "second"))
        assert await kernel.retire("w") == 1
        assert [claim.key for claim in await kernel.claim("jobs", "v", limit=2)] == ["first", "second"]
