"""One process sweeps in each period; expired data is removed without any policy, in the background."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keelbolt.data import Subject, erase
from keelbolt.data.sweeping import StoreSweeper, last_sweeps, sweep_expired, sweep_in_turn
from keelbolt.errors import StorageUnreachable
from keelbolt.kernel import Collection, Kernel, Put, open_storage
from keelbolt.observability.metrics import Metrics
from keelbolt.tasks import RetentionPolicy, TaskContext, TaskEngine, TaskSettings
from tests.integration.data.filling import fill_state, fill_turns, rows_with

QUICK = TaskSettings(drain_seconds=0.0)
SHORT = Collection("short", expiring=True)


async def greet(ctx: TaskContext) -> None:
    await ctx.complete("hello")


async def test_one_process_sweeps_in_each_period(kernel: Kernel) -> None:
    """Of three processes, one sweeps; its result can be read afterwards."""
    calls = 0

    async def duty(_kernel: Kernel) -> Mapping[str, int]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.1)
        return {"things": calls}

    done = await asyncio.gather(*(sweep_in_turn(kernel, "things", duty, every=60.0) for _ in range(3)))
    assert sorted(done, key=str) == [None, None, {"things": 1}]
    assert await sweep_in_turn(kernel, "things", duty, every=60.0) is None
    assert await sweep_in_turn(kernel, "others", duty, every=0.0) == {"things": 2}
    assert await sweep_in_turn(kernel, "others", duty, every=0.0) == {"things": 3}
    assert await sweep_in_turn(kernel, "things", duty, every=0.0) == {"things": 4}  # of a process with a shorter period
    last = await last_sweeps(kernel)
    assert {name: found["removed"] for name, found in last.items()} == {
        "things": {"things": 4},
        "others": {"things": 3},
    }


async def test_a_failed_sweep_is_repeated(kernel: Kernel) -> None:
    """The same process or another one retries it."""
    calls = 0

    async def duty(_kernel: Kernel) -> Mapping[str, int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StorageUnreachable
        return {}

    with pytest.raises(StorageUnreachable):
        await sweep_in_turn(kernel, "things", duty, every=60.0)
    assert await sweep_in_turn(kernel, "things", duty, every=60.0) == {}


async def test_a_sweep_without_its_lease_stops(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that can't renew its lease stops before another process begins, and its caller continues."""
    monkeypatch.setattr("keelbolt.data.sweeping.LEASE_SECONDS", 0.4)
    ended: list[str] = []

    async def duty(_kernel: Kernel) -> Mapping[str, int]:
        def cut(*_: Any, **__: Any) -> Any:
            raise StorageUnreachable

        monkeypatch.setattr(kernel, "heartbeat", cut)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("canceled")
            raise
        return {}

    async with asyncio.timeout(30):
        assert await sweep_in_turn(kernel, "things", duty, every=60.0) is None
    assert ended == ["canceled"]


async def test_an_agent_sweeps_without_a_policy(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired records, an unfinished erasure and bytes without a record are removed; the metrics count them."""
    monkeypatch.setattr("keelbolt.tasks.engine.EVERY_SECONDS", 0.05)
    monkeypatch.setattr("keelbolt.data.erasing.RESUME_SECONDS", 0.0)
    monkeypatch.setattr("keelbolt.turns.durable.retention.KEPT_SECONDS", -1.0)
    await kernel.declare(SHORT)
    await kernel.commit("ada", Put("short", "1", b"canary-expired", expires_in=0.0))
    await fill_turns(kernel, "acme", "thread-1", canary="canary-staged")
    await fill_state(kernel, "default", "session-1", canary="canary-left")
    with monkeypatch.context() as patched:

        async def killed(*_: Any, **__: Any) -> bool:
            raise SystemError("killed")

        patched.setattr("keelbolt.data.erasing._Eraser.erase", killed)
        with pytest.raises(SystemError):
            await erase(kernel, Subject(kind="session", id="session-1"))
    metrics = Metrics()
    async with TaskEngine(kernel, greet, settings=QUICK, metrics=metrics):
        async with asyncio.timeout(60):
            while await rows_with(kernel, "canary-expired", "canary-left") or not metrics.removed["staged files"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert metrics.removed["expired records"] >= 1
    assert metrics.removed["unfinished erasures"] == 1
    assert f'keelbolt_swept_total{{what="unfinished erasures",process="{os.getpid()}"}} 1' in metrics.text()


async def test_two_engines_keep_one_policy(tmp_path: Path) -> None:
    """The engines share the periods; an engine without a worker sweeps only if it has a policy."""
    url = f"sqlite:///{tmp_path}/file.db"
    async with open_storage(url) as one, open_storage(url) as other:
        policy = RetentionPolicy(completed=0, every=0.05)
        async with TaskEngine(one, greet, settings=QUICK, retention=policy), TaskEngine(other, retention=policy):
            async with asyncio.timeout(60):
                while "tasks" not in await last_sweeps(one):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        async with TaskEngine(other) as reader:
            assert reader._sweeper is None


async def test_a_sweep_that_fails_unexpectedly_is_retried(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """An error in one duty does not end the sweeper, and the log has its traceback."""
    calls: list[str] = []

    async def broken(_kernel: Kernel) -> Mapping[str, int]:
        calls.append("broken")
        raise ZeroDivisionError

    async def sound(_kernel: Kernel) -> Mapping[str, int]:
        calls.append("sound")
        return {}

    sweeper = StoreSweeper(kernel, {"broken": broken, "sound": sound}, every=0.02)
    sweeper.start()
    async with asyncio.timeout(30):
        while calls.count("sound") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await sweeper.stop()
    assert any(record.exc_info for record in caplog.records if "broken" in record.getMessage())


async def test_a_stopped_sweeper_leaves_nothing_running(kernel: Kernel) -> None:
    sweeper = StoreSweeper(kernel, {"expired": sweep_expired}, every=0.01)
    sweeper.start()
    await asyncio.sleep(0.1)
    await sweeper.stop()
    assert [task for task in asyncio.all_tasks() if task.get_name() in ("sweeper", "heartbeats")] == []
