"""Processes that run turns; some kill themselves.

python turners.py turn URL WHERE     one turn of three iterations with the id turn-1; WHERE is the point of its death:
                                     before-N, in-N, after-N of an iteration, or never. Prints a line for each iteration
python turners.py leased URL WHERE   the same turn under a lease; with WHERE=stop it stops itself in iteration 1
python turners.py many URL NAME COUNT  COUNT turns on one thread; prints a line when ready, starts when it reads one
python turners.py concurrent URL NAME COUNT  the same turns concurrently, each of which stores a memory too
python turners.py serve URL WHERE    an agent with the turns of *turn*, which wait at a gate in iteration 1
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parents[3]))

from keelbolt.errors import TurnTakenOver
from keelbolt.tasks import TaskEngine, TaskSettings
from keelbolt.turns import (
    DispatchContext,
    DurableStorage,
    ExecutorHelpers,
    TurnInput,
    TurnRunner,
    TurnScope,
    durable_storage,
    hydrate,
    turn_worker,
)
from tests.integration.turns.stage import memory, message, thought, tool_call

LEASE_SECONDS = 1.0
TURN_LEASE_SECONDS = 3.0  # long enough for a busy machine to renew the lease


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def three_iterations(storage: DurableStorage, where: str, *, gate: bool = False) -> TurnRunner:
    """Each iteration stores a message, a thought and a call with their own ids; the last iteration acknowledges."""

    async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        number = ctx.iteration
        print(f"iteration {number}", flush=True)
        if where == f"before-{number}":
            die()
        if gate and number == 1:
            print(f"answer {await ctx.wait_for(reason='Go on?')}", flush=True)
        helpers.report_message(f"m{number}", "half ")
        await ctx.store_message(message(f"m{number}", f"half {number}", role="assistant"))
        await ctx.store_tool_call(tool_call("call_0" if number == 0 else f"call_{number}"))
        await ctx.checkpoint()  # stored even if the iteration is repeated: equal values are no error
        if where == f"in-{number}":
            die()
        if where == "stop" and number == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        helpers.report_message(f"m{number}", str(number), is_complete=True)
        await ctx.store_thought(thought(f"t{number}"))
        await ctx.store_memory(memory(f"f{number}"))
        if number == 2:
            ctx.ack()

    runner = storage.runner(
        executor_callback=execute, turn_input_pipeline=[hydrate("messages", "thoughts", "tool_calls")]
    )

    def ended(end: Any) -> None:
        if where == f"after-{getattr(end, 'iteration', 2)}":
            die()

    runner.observe("iteration_end", ended)
    runner.observe("dispatch_end", ended)
    return runner


async def turn(url: str, where: str) -> None:
    async with durable_storage(url) as storage:
        runner = three_iterations(storage, where)
        given = TurnInput(system_prompt="Go.", stash={"scope": TurnScope("acme", "thread-1")}, turn_id="turn-1")
        result = await runner.run_result(given)
        assert result.ok, result.errors
        print(f"{result.status} {result.context.iterations_done}+{result.iterations}", flush=True)


async def leased(url: str, where: str) -> None:
    async with durable_storage(url) as storage:
        runner = three_iterations(storage, where)
        async with storage.leased(runner, again=lambda _left: None, lease_seconds=TURN_LEASE_SECONDS) as turns:
            given = TurnInput(
                system_prompt="Go.",
                scope=TurnScope("acme", "thread-1"),
                turn_id="turn-1",
                incoming=[message("asked", "go")],
            )
            try:
                print((await turns.run(given)).status, flush=True)
            except TurnTakenOver:
                print("taken over", flush=True)


async def many(url: str, name: str, count: int) -> None:
    async with durable_storage(url) as storage:

        async def execute(ctx: DispatchContext, _helpers: Any) -> None:
            await ctx.store_message(message(f"{ctx.turn_id}.{ctx.iteration}"))
            await ctx.store_tool_call(tool_call())
            if ctx.iteration == 1:
                ctx.ack()

        runner = storage.runner(executor_callback=execute, turn_input_pipeline=[hydrate("messages")])
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(count):
            given = TurnInput(
                system_prompt="Go.", stash={"scope": TurnScope("acme", "thread-1")}, turn_id=f"{name}{number}"
            )
            result = await runner.run_result(given)
            assert result.ok, result.errors


async def concurrent(url: str, name: str, count: int) -> None:
    """Run several concurrent turns on one thread, each of which stores to the thread and to the agent."""
    async with durable_storage(url) as storage:
        runs: Counter[str] = Counter()

        async def execute(ctx: DispatchContext, _helpers: Any) -> None:
            runs[f"{ctx.turn_id}.{ctx.iteration}"] += 1
            await ctx.store_message(message(f"{ctx.turn_id}.{ctx.iteration}"))
            await ctx.store_memory(memory(f"{ctx.turn_id}.{ctx.iteration}"))
            if ctx.iteration == 1:
                ctx.ack()

        runner = storage.runner(executor_callback=execute, turn_input_pipeline=[hydrate("messages")])
        print("ready", flush=True)
        sys.stdin.readline()
        given = [
            TurnInput(system_prompt="Go.", stash={"scope": TurnScope("acme", "thread-1")}, turn_id=f"{name}{number}")
            for number in range(count)
        ]
        for result in await asyncio.gather(*map(runner.run_result, given)):
            assert result.ok, result.errors
        assert set(runs.values()) == {1}


async def serve(url: str, where: str) -> None:
    storage = durable_storage(url)
    worker = turn_worker(three_iterations(storage, where, gate=True), storage, system_prompt="Go.")
    async with TaskEngine.on(url, worker, settings=TaskSettings.of(lease_seconds=LEASE_SECONDS)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    match sys.argv[1]:
        case "turn":
            asyncio.run(turn(*sys.argv[2:]))
        case "leased":
            asyncio.run(leased(*sys.argv[2:]))
        case "many":
            asyncio.run(many(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        case "concurrent":
            asyncio.run(concurrent(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        case _:
            asyncio.run(serve(*sys.argv[2:]))
