"""Turns with a lease, without an agent server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from keelbolt.data import Subject, erase
from keelbolt.errors import CommitInDoubt, InvalidValue, StorageUnreachable, TurnTakenOver
from keelbolt.kernel import Kernel, open_storage
from keelbolt.testing.worker import KernelLink
from keelbolt.turns import (
    DispatchContext,
    DurableStorage,
    LeasedTurns,
    LeftTurn,
    TurnInput,
    TurnScope,
    durable_storage,
    hydrate,
)
from keelbolt.turns.durable.families import TURN_RUNS, TURNS
from keelbolt.turns.durable.scope import partition_of
from tests.integration.turns.stage import Calls, Turn, message
from tests.integration.turns.test_killed import TURNERS, run
from tests.integration.turns.turners import TURN_LEASE_SECONDS, three_iterations

ACME = TurnScope("acme", "thread-1")


def again(left: LeftTurn) -> TurnInput:
    return TurnInput(system_prompt="Go.", scope=left.scope)


@asynccontextmanager
async def leased(url: str) -> AsyncIterator[tuple[DurableStorage, LeasedTurns]]:
    """Start a process that takes over turns."""
    async with durable_storage(url) as storage:
        runner = three_iterations(storage, "never")
        async with storage.leased(runner, again=again, lease_seconds=TURN_LEASE_SECONDS) as turns:
            yield storage, turns


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.05)


async def items(kernel: Kernel) -> int:
    return sum((await kernel.count_work([TURN_RUNS])).work.get(TURN_RUNS, {}).values())


async def ended(storage: DurableStorage) -> bool:
    return not await items(storage.kernel)


async def everything_once(storage: DurableStorage) -> None:
    calls = Calls(storage.callbacks(), Turn("later"))
    assert await calls.ids() == ["asked", "m0", "m1", "m2"]
    assert await calls.ids("tool_call") == ["call_0", "call_1", "call_2"]
    assert await calls.ids("thought") == ["t0", "t1", "t2"]


async def test_a_killed_turn_continues_without_a_caller(lasting_url: str) -> None:
    """Another process with the same runner continues after the last stored iteration."""
    assert await asyncio.to_thread(run, "leased", lasting_url, "in-1") == (-9, ["iteration 0", "iteration 1"])
    async with leased(lasting_url) as (storage, _):
        await until(lambda: ended(storage))
        await everything_once(storage)


async def test_a_stopped_turn_stores_nothing_after_its_lease(lasting_url: str) -> None:
    """Another process has finished the turn; writes of the stopped process are refused."""
    command = (sys.executable, TURNERS, "leased", lasting_url, "stop")
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert [await child.stdout.readline() for _ in range(2)] == [b"iteration 0\n", b"iteration 1\n"]
        async with leased(lasting_url) as (storage, _):
            await until(lambda: ended(storage))
            child.send_signal(signal.SIGCONT)
            rest = await asyncio.wait_for(child.stdout.read(), 30)
            assert rest in (b"taken over\n", b"nack\n"), "its lease was lost, or its next write was refused"
            await everything_once(storage)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def test_a_turn_runs_and_leaves_no_work_item(url: str) -> None:
    async with leased(url) as (storage, turns):
        given = TurnInput(system_prompt="Go.", scope=ACME, incoming=[message("asked", "go")])
        assert (await turns.run(given)).ok
        assert await ended(storage)
        await everything_once(storage)


async def test_a_process_that_cannot_renew_its_lease_stops_its_turns(
    storage: DurableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets TurnTakenOver before the lease ends; once the lease can be renewed the turn continues."""
    runs: list[str] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        runs.append(ctx.turn_id)
        if len(runs) == 1:
            await asyncio.Event().wait()
        ctx.ack()

    async def fails(*_args: Any, **_options: Any) -> None:
        raise StorageUnreachable

    runner = storage.runner(executor_callback=execute, turn_input_pipeline=[hydrate("messages")])
    async with storage.leased(runner, again=again, lease_seconds=TURN_LEASE_SECONDS) as turns:
        running = asyncio.create_task(turns.run(TurnInput(system_prompt="Go.", scope=ACME)))
        while not runs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with monkeypatch.context() as patched:
            patched.setattr(storage.kernel, "heartbeat", fails)
            with pytest.raises(TurnTakenOver):
                await asyncio.wait_for(running, TURN_LEASE_SECONDS)
        await until(lambda: ended(storage))
        assert len(runs) == 2
        assert runs[0] == runs[1]


async def state_of(storage: DurableStorage, turn_id: str) -> object:
    record = await storage.kernel.get(partition_of("acme"), TURNS, f"thread/thread-1/{turn_id}")
    return None if record is None else record.fields["state"]


async def test_a_turn_that_is_given_up_is_shown_as_failed(
    storage: DurableStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last attempt the turn is listed as failed, not as running, because no process continues it."""
    started = asyncio.Event()

    async def execute(_ctx: DispatchContext, _helpers: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    async def fails(*_args: Any, **_options: Any) -> None:
        raise StorageUnreachable

    monkeypatch.setattr("keelbolt.turns.durable.leased.MAX_ATTEMPTS", 1)
    runner = storage.runner(executor_callback=execute)
    async with storage.leased(runner, again=again, lease_seconds=TURN_LEASE_SECONDS) as turns:
        running = asyncio.create_task(turns.run(TurnInput(system_prompt="Go.", scope=ACME, turn_id="t")))
        await started.wait()
        assert await state_of(storage, "t") == "running"
        with monkeypatch.context() as patched:
            patched.setattr(storage.kernel, "heartbeat", fails)
            with pytest.raises(TurnTakenOver):
                await asyncio.wait_for(running, 10 * TURN_LEASE_SECONDS)

        async def failed() -> bool:
            return await state_of(storage, "t") == "failed"

        await until(failed)
    assert (await storage.kernel.count_work([TURN_RUNS])).work[TURN_RUNS]["dead"] == 1


async def test_a_turn_that_fails_can_be_started_again(storage: DurableStorage) -> None:
    states: list[object] = []

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        states.append(await state_of(storage, "t"))
        if len(states) == 1:
            raise ValueError("no")
        ctx.ack()

    runner = storage.runner(executor_callback=execute)
    async with storage.leased(runner, again=again, lease_seconds=TURN_LEASE_SECONDS) as turns:
        given = TurnInput(system_prompt="Go.", scope=ACME, turn_id="t")
        assert not (await turns.run(given)).ok
        assert await state_of(storage, "t") == "failed"
        assert (await turns.run(given)).ok
        assert await state_of(storage, "t") == "ended"
    assert states == ["running", "running"]


async def test_a_turn_is_run_by_one_process(url: str) -> None:
    """A second run with the same id is refused during the first; erasing the thread ends both."""
    async with durable_storage(url) as storage:
        started, erased = asyncio.Event(), asyncio.Event()

        async def execute(ctx: DispatchContext, _helpers: Any) -> None:
            started.set()
            await erased.wait()
            await ctx.store_message(message("late"))
            ctx.ack()

        runner = storage.runner(executor_callback=execute)
        async with storage.leased(runner, again=again) as turns:
            given = TurnInput(system_prompt="Go.", scope=ACME, turn_id="t", incoming=[message("asked", "go")])
            running = asyncio.create_task(turns.run(given))
            await started.wait()
            with pytest.raises(TurnTakenOver, match="another process runs this turn"):
                await turns.run(given)
            await erase(storage.kernel, Subject(kind="thread", id="thread-1", tenant="acme"))
            erased.set()
            assert (await running).status == "nack"
            assert await ended(storage)


async def test_a_runner_of_another_storage_is_refused(storage: DurableStorage) -> None:
    async with durable_storage("memory:") as other:
        runner = other.runner(executor_callback=lambda ctx, _helpers: ctx.ack())
        with pytest.raises(InvalidValue, match=r"storage\.runner"):
            storage.leased(runner, again=again)


@pytest.mark.parametrize("outage", [False, True], ids=["store back", "store away"])
async def test_a_turn_whose_begin_is_in_doubt_is_not_held(outage: bool) -> None:
    """The caller gets the error, and the work item does not stay with this process, which can also stop."""
    async with open_storage("memory:") as kernel:
        line = KernelLink(kernel)
        async with durable_storage(cast("Kernel", line)) as storage:
            turns = storage.leased(three_iterations(storage, "never"), again=again)
            await turns.__aenter__()

            async def commit(*given: Any, **named: Any) -> Any:
                del line.commit
                await kernel.commit(*given, **named)
                line.cut = outage
                raise CommitInDoubt

            line.commit = commit  # type: ignore[attr-defined]
            with pytest.raises(CommitInDoubt):
                await turns.run(TurnInput(system_prompt="Go.", scope=ACME))
            if not outage:
                await until(lambda: ended(storage))
            async with asyncio.timeout(30):
                await turns.__aexit__(None, None, None)
            line.cut = False
