"""PostgreSQL: servers restarted and crashed, connections ended, processes stopped."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keelbolt.kernel import Append, Draft, Enqueue, Kernel, open_storage
from keelbolt.kernel.postgres.connection import IDLE_SECONDS, LOCK_SECONDS, OUTAGE_SECONDS
from keelbolt.testing.postgres import OwnPostgres, StopMode, own_postgres
from tests.faults.conftest import Figures
from tests.faults.holder import FAMILIES as HOLDER_FAMILIES
from tests.faults.holder import QUEUE
from tests.faults.postgres_crossing import CALLERS, KEYS
from tests.faults.processes import Child, Children
from tests.faults.test_stop import take_over
from tests.faults.verify import Verdict, notes_of, verify
from tests.faults.writer import FAMILIES, PARTITION

WRITERS = 3
LEASE_SECONDS = 1.0
ITEMS = 5


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


class WriterPool:
    """Writers on one server, none of which may end by itself."""

    def __init__(self, children: Children, folder: Path, url: str, dice: random.Random) -> None:
        self.kills = 0
        self._folder = folder
        self._url = url
        self._children = children
        self._dice = dice
        self._writers: dict[Path, Child] = {}
        self._number = 0

    def fill(self) -> None:
        while len(self._writers) < WRITERS:
            self._number += 1
            name = f"w{self._number}"
            notes = self._folder / f"{name}.notes"
            child = self._children.start("writer", self._url, name, notes, f"{self._dice.random()}")
            self._writers[notes] = child
        for child in self._writers.values():
            if not child.ready:
                child.ready = child.line() == "ready"

    def kill_all(self) -> None:
        for notes in tuple(self._writers):
            self._kill(notes)

    def _kill(self, notes: Path) -> None:
        self._all_there()
        child = self._writers.pop(notes)
        child.kill()
        child.close()
        self.kills += 1

    def _all_there(self) -> None:
        for child in self._writers.values():
            assert child.alive, f"a writer ended by itself with {child.returncode}"

    async def goes_on(self) -> float:
        """Wait until every writer has a new acknowledged commit. Return how long that took."""
        began = time.monotonic()
        before = {notes: _size(notes) for notes in self._writers}
        while not all(_size(notes) > size for notes, size in before.items()):
            self._all_there()
            assert time.monotonic() - began < OUTAGE_SECONDS, "a writer does not go on"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def verdict(self) -> Verdict:
        async with open_storage(self._url, declare=FAMILIES) as kernel:
            return await verify(kernel, notes_of(sorted(self._folder.glob("*.notes"))))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class Follower:
    """Tails that run during the whole test, each with the entries that it has seen."""

    def __init__(self, kernel: Kernel, streams: tuple[str, ...]) -> None:
        self._kernel = kernel
        self.seqs: dict[str, list[int]] = {stream: [] for stream in streams}
        self._tasks = [asyncio.create_task(self._follow(stream)) for stream in streams]

    async def _follow(self, stream: str) -> None:
        async for entry in self._kernel.tail(PARTITION, "events", stream, after=0):
            self.seqs[stream].append(entry.seq)

    async def finish(self) -> int:
        """Check that every entry came in order and without a gap. Return their number."""
        for stream, seqs in self.seqs.items():
            head = (await self._kernel.log_state(PARTITION, "events", stream)).head
            for _ in range(1000):
                if len(seqs) >= head or self._broken():
                    break
                await asyncio.sleep(0.02)
            assert not self._broken(), f"a tail ended: {self._broken()}"
            assert seqs == list(range(1, head + 1)), f"the tail of {stream} saw {len(seqs)} of {head}"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return sum(map(len, self.seqs.values()))

    def _broken(self) -> list[BaseException | None]:
        return [task.exception() for task in self._tasks if task.done() and not task.cancelled()]


def backends(server: OwnPostgres, url: str) -> list[int]:
    name = url.rpartition("/")[2]
    rows = server.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", name
    )
    return [row[0] for row in rows]


# -------------------------------------------------------------------------------------------------- servers that fail


def restart(mode: StopMode) -> Callable[[OwnPostgres, str], None]:
    return lambda server, _url: server.restart(mode)


def kill_postmaster(server: OwnPostgres, _url: str) -> None:
    server.kill()
    server.start()


def kill_backend(server: OwnPostgres, url: str) -> None:
    """Kill a backend: the postmaster treats this as a crash, ends all others and recovers."""
    os.kill(random.choice(backends(server, url)), signal.SIGKILL)


def terminate_backends(server: OwnPostgres, url: str) -> None:
    name = url.rpartition("/")[2]
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)


FAULTS: dict[str, tuple[Callable[[OwnPostgres, str], None], int, int]] = {
    "fast restart": (restart("fast"), 2, 15),
    "immediate restart": (restart("immediate"), 2, 15),
    "kill -9 of the postmaster": (kill_postmaster, 1, 10),
    "kill -9 of a backend": (kill_backend, 1, 15),
    "all backends terminated": (terminate_backends, 5, 50),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
async def test_callers_wait_for_a_server_that_comes_back(
    tmp_path: Path, children: Children, figures: Figures, full: bool, server: OwnPostgres, url: str, fault: str
) -> None:
    """In every kind of outage, no caller fails, no acknowledged commit is lost, and tails see every entry once."""
    strike, few, many = FAULTS[fault]
    rounds = many if full else few
    dice = random.Random(fault)
    writers = WriterPool(children, tmp_path, url, dice)
    writers.fill()
    slowest = 0.0
    async with open_storage(url, declare=FAMILIES) as kernel:
        follower = Follower(kernel, ("s0", "s1"))
        for _ in range(rounds):
            await asyncio.sleep(dice.uniform(0.05, 0.3))
            await asyncio.to_thread(strike, server, url)
            slowest = max(slowest, await writers.goes_on())
        writers.kill_all()
        followed = await follower.finish()
        assert (await kernel.health()).writes
    verdict = await writers.verdict()
    figures(
        f"PostgreSQL: {fault}",
        rounds=rounds,
        **verdict.numbers(),
        failed_callers=0,
        followed_by_tails=followed,
        s_slowest_to_go_on=slowest,
    )
    verdict.assert_clean()
    assert verdict.acknowledged > rounds


async def test_a_server_that_stays_away_raises_an_error(
    figures: Figures, server: OwnPostgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers get an error after a timeout; queued calls do not wait for another one; later all calls work."""
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.OUTAGE_SECONDS", 1.0)
    monkeypatch.setattr("keelbolt.kernel.postgres.readers.OUTAGE_SECONDS", 1.0)
    append = Append("events", "s", (Draft("a", b""),))
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit(PARTITION, append)
        server.stop()
        try:
            began = time.monotonic()
            calls = [kernel.commit(PARTITION, append) for _ in range(2000)]
            calls.append(kernel.get(PARTITION, "doc", "a"))  # type: ignore[arg-type]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            waited = time.monotonic() - began
            assert {type(outcome).__name__ for outcome in outcomes} == {"StorageUnreachable"}
            assert not (await kernel.health()).reads
        finally:
            server.start()
        receipt = await kernel.commit(PARTITION, append)
        assert receipt.seqs("events", "s") == (2,), "a commit that was refused was written all the same"
    figures("PostgreSQL: a server that stays away", callers=len(calls), s_until_the_last_knew=waited)
    assert waited < 15.0


# ------------------------------------------------------------------------------------------------ processes that stop


@pytest.mark.timeout(600)
async def test_a_stopped_holder_is_replaced_and_its_fence_refused(
    children: Children, figures: Figures, full: bool, url: str
) -> None:
    """After SIGSTOP past the lease another process takes over; writes of the first one after SIGCONT are refused."""
    rounds, holders = (5, 4) if full else (1, 2)
    refused = written = 0
    async with open_storage(url, declare=HOLDER_FAMILIES) as kernel:
        for number in range(rounds):
            keys = [f"{number}-{item}" for item in range(holders * ITEMS)]
            await kernel.commit(PARTITION, *(Enqueue(QUEUE, key) for key in keys))
            stopped: list[tuple[Child, dict[str, int]]] = []
            for holder in range(holders):
                child = children.start("postgres_holder", url, f"holder-{number}-{holder}", ITEMS, LEASE_SECONDS)
                fences = json.loads(child.line())
                child.send(signal.SIGSTOP)
                child.stopped()
                stopped.append((child, fences))
            claims = await take_over(kernel, len(keys))
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
    figures(
        "PostgreSQL: SIGSTOP past the lease",
        takeovers=rounds * holders * ITEMS,
        stale_writes_refused=refused,
        stale_writes_accepted=written,
    )
    assert (refused, written) == (rounds * holders * ITEMS * 6, 0)


async def test_a_process_stopped_with_its_locks_does_not_stop_others(
    children: Children, figures: Figures, url: str
) -> None:
    """The server releases the locks of a process stopped in mid-batch; when it continues, its batch is written once."""
    append = Append("events", "shared", (Draft("other", b"other"),))
    async with open_storage(url, declare=FAMILIES) as kernel:
        await kernel.commit(PARTITION, append)
        child = children.start("postgres_stopper", url)
        assert child.line() == "ready"
        child.stopped()
        began = time.monotonic()
        receipt = await kernel.commit(PARTITION, append)
        waited = time.monotonic() - began
        assert receipt.seqs("events", "shared") == (2,)
        child.send(signal.SIGCONT)
        assert child.line() == "3"
        assert child.wait() == 0
        page = await kernel.read_log(PARTITION, "events", "shared")
        assert [entry.kind for entry in page.entries] == ["other", "other", "stopped"]
    figures("PostgreSQL: SIGSTOP with the locks in hand", s_others_waited=waited, s_limit=IDLE_SECONDS)
    assert waited < LOCK_SECONDS


# -------------------------------------------------------------------------------------------------------- deadlocks


@pytest.mark.timeout(600)
async def test_opposite_orders_do_not_deadlock(
    children: Children, figures: Figures, full: bool, server: OwnPostgres, url: str
) -> None:
    """Processes that write the same keys in opposite orders, and claim the work that they enqueue, never deadlock."""
    batches = 400 if full else 40
    async with open_storage(url, declare=FAMILIES) as kernel:
        crossing = [
            children.start("postgres_crossing", url, order, batches, order)
            for order in ("forward", "backward", "forward", "backward")
        ]
        committed = sum([int(await asyncio.to_thread(child.line, 300)) for child in crossing])
        assert [child.wait() for child in crossing] == [0] * len(crossing)
        heads = [(await kernel.log_state(PARTITION, "events", f"k{number:02}")).head for number in range(KEYS)]
    deadlocks = server.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", url=url)
    figures("PostgreSQL: opposite key orders", batches=committed, keys=KEYS, deadlocks=deadlocks[0][0])
    assert committed == 4 * CALLERS * batches
    assert heads == [committed] * KEYS
    assert deadlocks[0][0] == 0
