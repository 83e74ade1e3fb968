"""Redis and Valkey: servers killed and restarted, connections broken, under full load."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keelbolt.kernel import Collection, Insert, open_storage
from keelbolt.kernel.redis import servers as redis_store
from keelbolt.kernel.redis.engine import RedisKernel
from keelbolt.testing.valkey import OwnValkey, own_valkey
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.test_postgres import Follower, WriterPool
from tests.faults.writer import FAMILIES, STREAMS


@pytest.fixture(params=["always", "everysec"])
def server(request: pytest.FixtureRequest) -> Iterator[OwnValkey]:
    with own_valkey(settings={"appendfsync": request.param}) as started:
        yield started


def kill(server: OwnValkey) -> None:
    server.kill()
    server.start()


def restart(server: OwnValkey) -> None:
    server.restart()


def break_connections(server: OwnValkey) -> None:
    server.execute("CLIENT", "KILL", "TYPE", "normal")
    server.execute("CLIENT", "KILL", "TYPE", "pubsub")


FAULTS: dict[str, tuple[Callable[[OwnValkey], None], int, int]] = {
    "kill -9 of the server": (kill, 4, 60),
    "restart": (restart, 2, 20),
    "all connections ended": (break_connections, 5, 60),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
async def test_callers_wait_for_a_server_that_comes_back(
    tmp_path: Path, children: Children, figures: Figures, full: bool, server: OwnValkey, fault: str
) -> None:
    """In every kind of outage, no caller fails, no acknowledged commit is lost, and tails see every entry once."""
    strike, few, many = FAULTS[fault]
    dice = random.Random(fault)
    writers = WriterPool(children, tmp_path, server.url, dice)
    writers.fill()
    slowest = 0.0
    async with open_storage(server.url, declare=FAMILIES) as kernel:
        follower = Follower(kernel, tuple(f"s{number}" for number in range(STREAMS)))
        for _ in range(many if full else few):
            time.sleep(dice.uniform(0.0, 0.3))
            strike(server)
            slowest = max(slowest, await writers.goes_on())
        writers.kill_all()
        seen = await follower.finish()
    verdict = await writers.verdict()
    figures(f"Redis: {fault}", times=many if full else few, seen=seen, s_slowest=slowest, **verdict.numbers())
    verdict.assert_clean()
    assert verdict.acknowledged > 0


async def test_a_list_of_keys_is_complete_although_the_server_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart invalidates the SCAN cursor; a new index that misses records would hide them."""
    monkeypatch.setattr(redis_store, "SCAN_COUNT", b"50")
    wanted = {f"key {number}" for number in range(2000)}
    with own_valkey() as server:
        async with open_storage(server.url, declare=[Collection("c")]) as kernel:
            assert isinstance(kernel, RedisKernel)
            for first in range(0, 2000, 500):
                await kernel.commit("p", *[Insert("c", f"key {number}", b"") for number in range(first, first + 500)])
            found: set[str] = set()
            layout = kernel._store.layout
            async for key in kernel._store.keys(layout.records("c", "p")):
                if not found:
                    await asyncio.to_thread(server.restart)
                found.add(key.rpartition(b"/")[2].decode())
    assert found == wanted
