"""Redis and Valkey: writers killed, servers killed and restarted, connections broken, under full load."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keelbolt.storage import open_storage
from keelbolt.testing.valkey import OwnValkey, own_valkey
from tests.faults.conftest import Figures
from tests.faults.processes import Children
from tests.faults.test_postgres import Crowd, Follower
from tests.faults.verify import Verdict
from tests.faults.writer import FAMILIES, STREAMS

LONGEST_SECONDS = 10.0  # the timeout of a call; nobody waits longer


@pytest.fixture(params=["always", "everysec"])
def server(request: pytest.FixtureRequest) -> Iterator[OwnValkey]:
    with own_valkey(settings={"appendfsync": request.param}) as started:
        yield started


@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    tmp_path: Path, children: Children, figures: Figures, full: bool, server: OwnValkey
) -> None:
    """Whoever is killed, wherever it is: what was acknowledged is there, whole, once and in order, and others go on."""
    crowd = Crowd(children, tmp_path, server.url, random.Random(2))
    wanted, every = (90, 30) if full else (9, 6)
    verdict = Verdict()
    while crowd.kills < wanted:
        crowd.fill()
        crowd.kill_one()
        if crowd.kills % every == 0:
            crowd.kill_all()
            verdict = await crowd.verdict()
            verdict.assert_clean()
    crowd.kill_all()
    verdict = await crowd.verdict()
    figures("Redis: kill -9 of writers", kills=crowd.kills, **verdict.numbers(), s_longest_wait=verdict.slowest)
    verdict.assert_clean()
    assert verdict.acknowledged > crowd.kills
    assert verdict.slowest < LONGEST_SECONDS


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
    """No caller fails, nothing acknowledged is lost, and tails see every entry once, however the server goes down."""
    strike, few, many = FAULTS[fault]
    dice = random.Random(fault)
    crowd = Crowd(children, tmp_path, server.url, dice)
    crowd.fill()
    slowest = 0.0
    async with open_storage(server.url, declare=FAMILIES) as kernel:
        follower = Follower(kernel, tuple(f"s{number}" for number in range(STREAMS)))
        for _ in range(many if full else few):
            time.sleep(dice.uniform(0.0, 0.3))
            strike(server)
            slowest = max(slowest, await crowd.goes_on())
        crowd.kill_all()
        seen = await follower.finish()
    verdict = await crowd.verdict()
    figures(f"Redis: {fault}", times=many if full else few, seen=seen, s_slowest=slowest, **verdict.numbers())
    verdict.assert_clean()
    assert verdict.acknowledged > 0
