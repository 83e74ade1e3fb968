"""Several concurrent turns on one thread: each commits, and each of its iterations runs once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import TurnStorageDuplicateId
from keelbolt.turns import DispatchContext, TurnInput, TurnRunner, TurnScope, durable_storage, hydrate
from keelbolt.turns.durable import DurableStorage, clocks
from tests.integration.turns.stage import Calls, Turn, memory, message, tool_call

WRITERS = Path(__file__).with_name("turners.py")
TURNS = 16


def turn_input(turn_id: str, thread: str = "thread-1") -> TurnInput:
    return TurnInput(system_prompt="Go.", stash={"scope": TurnScope("acme", thread)}, turn_id=turn_id)


def runner_of(storage: DurableStorage, runs: Counter[str]) -> TurnRunner:
    """Return a runner of two iterations; each stores to the thread (a message, a call) and to the agent (a memory)."""

    async def execute(ctx: DispatchContext, _helpers: Any) -> None:
        name = f"{ctx.turn_id}.{ctx.iteration}"
        runs[name] += 1
        await asyncio.sleep(0)
        await ctx.store_message(message(name, role="assistant"))
        await ctx.store_memory(memory(name))
        await ctx.store_tool_call(tool_call())
        if ctx.iteration == 1:
            ctx.ack()

    return storage.runner(executor_callback=execute, turn_input_pipeline=[hydrate("messages")])


@pytest.mark.parametrize("turns", [2, TURNS])
async def test_concurrent_turns_on_one_thread_with_history(url: str, turns: int) -> None:
    """A commit increments two clocks (thread and agent). The storage is new to the process and has a history."""
    runs: Counter[str] = Counter()
    if not url.startswith("memory"):
        async with durable_storage(url) as before:
            result = await runner_of(before, runs).run_result(turn_input("before"))
            assert result.ok, result.errors
    async with durable_storage(url) as storage, asyncio.timeout(60):
        runner = runner_of(storage, runs)
        results = await asyncio.gather(*(runner.run_result(turn_input(f"t{n}")) for n in range(turns)))
        assert [result.errors for result in results if not result.ok] == []
        assert set(runs.values()) == {1}
        found = await storage.callbacks()["fetch_messages_callback"](Turn())  # type: ignore[arg-type, misc]
        assert {each.id for each in found} == set(runs)
        memories = await storage.callbacks()["fetch_memories_callback"](Turn())  # type: ignore[arg-type, misc]
        assert len(memories) == len(runs)


async def test_refused_commits_do_not_disturb_the_others(url: str) -> None:
    """Every second commit is refused because its id is taken; the others succeed."""
    async with durable_storage(url) as storage, asyncio.timeout(60):
        calls = Calls(storage.callbacks(), Turn())
        await calls.store_message(message("taken"))

        async def store(number: int) -> str:
            async with storage.unit_of_work(turn := Turn(f"turn-{number}")):
                mine = Calls(storage.callbacks(), turn)
                await mine.store_message(message("taken" if number % 2 else f"m{number}", f"content {number}"))
                await mine.store_memory(memory(f"f{number}"))
            return f"m{number}"

        done = await asyncio.gather(*(store(number) for number in range(20)), return_exceptions=True)
        assert [isinstance(each, TurnStorageDuplicateId) for each in done] == [False, True] * 10
        stored = [f"m{number}" for number in range(0, 20, 2)]
        assert sorted(await calls.ids()) == sorted(["taken", *stored])
        assert len(await calls.fetch("memory")) == 10


@pytest.mark.parametrize("processes", [3])
def test_concurrent_processes_on_one_thread(lasting_url: str, processes: int) -> None:
    """Three processes run eight concurrent turns each: all of them commit."""
    command = [sys.executable, str(WRITERS), "concurrent", lasting_url]
    running = [
        subprocess.Popen([*command, f"p{number}-", "8"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(processes)
    ]
    for each in running:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in running:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    outputs = [each.communicate(timeout=120)[0] for each in running]
    assert [each.returncode for each in running] == [0] * processes, outputs


async def test_the_number_of_remembered_clocks_is_limited(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts the threads of all tenants. A forgotten clock is read again."""
    monkeypatch.setattr(clocks, "_REMEMBERED", 10)
    monkeypatch.setattr(clocks, "_CHECKED", 5)
    async with durable_storage(url) as storage:
        for again in range(2):
            for number in range(40):
                turn = Turn(f"turn-{again}", tenant=f"tenant-{number % 4}", thread=f"thread-{number}")
                await Calls(storage.callbacks(), turn).store_message(message(f"m{again}"))
        kept = storage._store.clocks._tenants
        assert sum(len(tenant.clocks) for tenant in kept.values()) < 20
        assert await Calls(storage.callbacks(), Turn(tenant="tenant-0", thread="thread-0")).ids() == ["m0", "m1"]
