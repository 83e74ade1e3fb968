"""PostgreSQL behind a network that fails: cut at every byte of a commit, slow, silent, and lost responses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from keelbolt.errors import CommitInDoubt, StorageUnreachable
from keelbolt.kernel import Append, Draft, Enqueue, Put
from keelbolt.kernel.postgres import PostgresKernel
from keelbolt.kernel.postgres.committer import locks_of
from keelbolt.kernel.postgres.connection import connect, writer_settings
from keelbolt.testing.postgres import OwnPostgres, own_postgres
from keelbolt.testing.proxy import Direction, Proxy
from tests.faults.conftest import Figures
from tests.faults.writer import FAMILIES, PARTITION

LOG, STREAM = "events", "s"


class ByProxy(PostgresKernel):
    """Only its committer connects through the proxy, so that every byte of a commit is counted."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        super().__init__(url, declare=FAMILIES)
        self._by_proxy = proxy.url(url)
        self.connects = 0
        self.before_connecting: Callable[[], Awaitable[Any]] | None = None

    async def _connect_writer(self) -> Any:
        self.connects += 1
        if self.before_connecting is not None:
            await self.before_connecting()
        return await connect(self._by_proxy, settings=writer_settings(self.durability))


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as started:
        yield started


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    with server.database() as made:
        yield made


@pytest.fixture
async def proxy(server: OwnPostgres) -> AsyncIterator[Proxy]:
    async with Proxy("127.0.0.1", server.port) as made:
        yield made


@pytest.fixture
async def kernel(url: str, proxy: Proxy) -> AsyncIterator[ByProxy]:
    async with ByProxy(url, proxy) as opened:
        for number in range(3):  # the statements are prepared, the partition is known
            await append(opened, f"warm {number}")
        yield opened
        proxy.allow()


async def append(kernel: PostgresKernel, tag: str) -> int:
    """Make a commit without a dedupe key: written twice, it would be stored twice."""
    receipt = await kernel.commit(
        PARTITION, Append(LOG, STREAM, (Draft("a", tag.encode()),)), Put("doc", "d", tag.encode())
    )
    return receipt.seqs(LOG, STREAM)[0]


async def written(kernel: PostgresKernel) -> Counter[str]:
    tags: Counter[str] = Counter()
    after = 0
    while page := (await kernel.read_log(PARTITION, LOG, STREAM, after=after)).entries:
        tags.update(entry.data.decode() for entry in page)
        after = page[-1].seq
    return tags


async def bytes_of_a_commit(kernel: ByProxy, proxy: Proxy) -> dict[Direction, int]:
    before = dict(proxy.passed)
    await append(kernel, "measured")
    await asyncio.sleep(0.05)
    return {"up": proxy.passed["up"] - before["up"], "down": proxy.passed["down"] - before["down"]}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_commit_cut_at_any_byte_happens_once(
    kernel: ByProxy, proxy: Proxy, figures: Figures, full: bool, direction: Direction
) -> None:
    """A commit is stored once if cut before BEGIN, with its locks, loaded, written, or after COMMIT was sent."""
    length = (await bytes_of_a_commit(kernel, proxy))[direction]
    cuts = range(0, length + 1, 4 if full else max(length // 24, 1))
    acknowledged: dict[str, int] = {}
    connects = kernel.connects
    for cut in [*cuts, length - 1, length]:
        proxy.cut_after(cut, direction)
        tag = f"{direction} {cut} {len(acknowledged)}"
        acknowledged[tag] = await append(kernel, tag)
        proxy.allow()
    tags = await written(kernel)
    state = await kernel.log_state(PARTITION, LOG, STREAM)
    figures(
        f"PostgreSQL: commit cut in its bytes {direction}",
        cuts=len(acknowledged),
        bytes_of_a_commit=length,
        reconnects=kernel.connects - connects,
        lost=sum(tags[tag] == 0 for tag in acknowledged),
        doubles=sum(tags[tag] > 1 for tag in acknowledged),
    )
    assert all(tags[tag] == 1 for tag in acknowledged)
    assert len(set(acknowledged.values())) == len(acknowledged)
    assert state.head == sum(tags.values())
    assert kernel.connects - connects >= len(acknowledged) - 2


async def test_late_responses_are_awaited(kernel: ByProxy, proxy: Proxy, figures: Figures) -> None:
    """A slow network only makes commits slow."""
    proxy.delay(0.15)
    began = time.monotonic()
    await append(kernel, "slow")
    took = time.monotonic() - began
    proxy.allow()
    figures("PostgreSQL: answers delayed by 0.3 s", s_commit=took, reconnects=kernel.connects - 1)
    assert (await written(kernel))["slow"] == 1
    assert kernel.connects == 1


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_half_open_connection_is_dropped(
    kernel: ByProxy, proxy: Proxy, figures: Figures, monkeypatch: pytest.MonkeyPatch, direction: Direction
) -> None:
    """An open but silent connection is dropped after the statement timeout; another one makes the commit, once."""
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.STATEMENT_SECONDS", 1.0)
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.LOCK_SECONDS", 0.5)
    proxy.swallow(direction)
    began = time.monotonic()
    call = asyncio.ensure_future(append(kernel, "half open"))
    await asyncio.sleep(0.3)
    proxy.allow()
    await call
    took = time.monotonic() - began
    figures(f"PostgreSQL: half-open, silent {direction}", s_commit=took, s_limit=1.5)
    assert (await written(kernel))["half open"] == 1
    assert kernel.connects == 2


# ------------------------------------------------------------------------------------------------------------ doubts


async def cut_before_the_answer(kernel: ByProxy, proxy: Proxy) -> None:
    """The next commit is written, and the response to its COMMIT is lost."""
    length = (await bytes_of_a_commit(kernel, proxy))["down"]
    proxy.cut_after(length - 1, "down")


async def test_a_commit_without_a_response_is_in_doubt(
    kernel: ByProxy, proxy: Proxy, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server does not return after COMMIT was sent, the caller gets CommitInDoubt; it is stored at most once."""
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.OUTAGE_SECONDS", 0.5)
    await cut_before_the_answer(kernel, proxy)
    call = asyncio.ensure_future(append(kernel, "in doubt"))
    for _ in range(1000):
        if (await written(kernel))["in doubt"]:
            break
        await asyncio.sleep(0.001)
    proxy.refuse()
    with pytest.raises(CommitInDoubt, match="may or may not"):
        await call
    proxy.allow()
    await append(kernel, "after")
    tags = await written(kernel)
    figures("PostgreSQL: the answer to COMMIT lost for good", reported="CommitInDoubt", written=tags["in doubt"])
    assert tags["in doubt"] <= 1
    assert tags["after"] == 1


async def test_a_commit_that_was_never_sent_is_not_in_doubt(
    kernel: ByProxy, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server is away before COMMIT is sent, nothing is written, and the error reports that."""
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.OUTAGE_SECONDS", 0.5)
    proxy.refuse()
    with pytest.raises(StorageUnreachable) as caught:
        await append(kernel, "never")
    assert caught.value.retryable
    proxy.allow()
    await append(kernel, "after")
    assert (await written(kernel))["never"] == 0


@pytest.mark.parametrize("freed", [True, False])
async def test_a_commit_in_doubt_is_not_reported_as_busy(
    kernel: ByProxy, proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch, freed: bool
) -> None:
    """A retry that finds a held lock does not report "nothing was written": it waits, or raises CommitInDoubt."""
    monkeypatch.setattr("keelbolt.kernel.postgres.connection.LOCK_SECONDS", 0.2)
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.OUTAGE_SECONDS", 30.0 if freed else 1.0)
    await cut_before_the_answer(kernel, proxy)
    number = locks_of("keelbolt", [(PARTITION, (Append(LOG, STREAM, (Draft("a", b""),)),))])[0]
    other = await asyncpg.connect(url)
    try:
        locked = asyncio.Event()

        async def lock() -> None:
            """Another session takes the lock between the two attempts."""
            if not locked.is_set():
                await other.execute("SELECT pg_advisory_lock($1)", number)
                locked.set()

        kernel.before_connecting = lock
        call = asyncio.ensure_future(append(kernel, "contested"))
        await locked.wait()
        if freed:
            await asyncio.sleep(1.0)
            assert not call.done()
            await other.execute("SELECT pg_advisory_unlock($1)", number)
            await call
        else:
            with pytest.raises(CommitInDoubt):
                await call
    finally:
        await other.close()
    assert (await written(kernel))["contested"] == 1


# ------------------------------------------------------------------------------------------------------------ claims


@pytest.mark.timeout(600)
async def test_a_claim_cut_at_any_byte_loses_no_work(url: str, proxy: Proxy, figures: Figures, full: bool) -> None:
    """An item whose claim was committed without a response is not lost: the worker gets it."""
    step = 4 if full else 32
    claimed: Counter[str] = Counter()
    cuts = 0
    async with PostgresKernel(url, declare=FAMILIES) as direct, PostgresKernel(proxy.url(url), connections=1) as kernel:
        await direct.commit(PARTITION, *(Enqueue("jobs", f"warm {number}") for number in range(6)))
        before = dict(proxy.passed)
        lengths: dict[Direction, int] = {"up": 0, "down": 0}
        for _ in range(3):
            await kernel.claim("jobs", "w", limit=2, lease_seconds=600)
            lengths = {"up": proxy.passed["up"] - before["up"], "down": proxy.passed["down"] - before["down"]}
            before = dict(proxy.passed)
        for direction, length in lengths.items():
            for cut in [*range(0, length - 1, step), length - 1, length]:
                await direct.commit(PARTITION, Enqueue("jobs", f"{direction} {cut}"))
                proxy.cut_after(cut, direction)
                claims = await kernel.claim("jobs", "w", limit=2, lease_seconds=600)
                proxy.allow()
                claimed.update(claim.key for claim in claims)
                for claim in claims:
                    await direct.commit(PARTITION, claim.complete())
                cuts += 1
        left = (await direct.list_work(PARTITION, "jobs", state="waiting")).items
        held = (await direct.list_work(PARTITION, "jobs", state="held")).items
    figures("PostgreSQL: claims cut at any byte", cuts=cuts, claimed=len(claimed), lost=len(left) + len(held) - 6)
    assert [item.key for item in left] == []
    assert sorted(item.key for item in held) == [f"warm {number}" for number in range(6)]
    assert len(claimed) == cuts
    assert set(claimed.values()) == {1}
