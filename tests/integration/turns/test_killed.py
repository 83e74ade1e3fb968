"""Turns whose process is killed with SIGKILL continue in another process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import DispatchFlushError, TurnTakenOver
from keelbolt.protocol.types import Task, TaskState
from keelbolt.tasks import TaskEngine
from keelbolt.turns import DispatchContext, DurableStorage, TurnInput, durable_storage
from tests.integration.tasks.stage import message as task_message
from tests.integration.turns.stage import Calls, Turn, message

TURNERS = str(Path(__file__).with_name("turners.py"))
SCOPE = {"tenant": "acme", "thread": "thread-1"}


def run(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, TURNERS, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode, done.stdout.splitlines()


DEATHS = [
    ("after-0", ["iteration 0"], ["iteration 1", "iteration 2", "ack 1+2"]),
    ("before-1", ["iteration 0", "iteration 1"], ["iteration 1", "iteration 2", "ack 1+2"]),
    ("in-1", ["iteration 0", "iteration 1"], ["iteration 1", "iteration 2", "ack 1+2"]),
    ("after-1", ["iteration 0", "iteration 1"], ["iteration 2", "ack 2+1"]),
    ("after-2", ["iteration 0", "iteration 1", "iteration 2"], ["ack 3+0"]),
]


@pytest.mark.parametrize(("where", "first", "second"), DEATHS, ids=[row[0] for row in DEATHS])
async def test_a_turn_killed_between_iterations_continues(
    tmp_path: Path, where: str, first: list[str], second: list[str]
) -> None:
    """A turn restarted with its id repeats no stored iteration, and each value is stored once and in order."""
    await goes_on(f"sqlite:///{tmp_path}/turns.db", where, first, second)


async def test_a_turn_killed_in_an_iteration_continues(lasting_url: str) -> None:
    await goes_on(lasting_url, *DEATHS[2])


async def goes_on(url: str, where: str, first: list[str], second: list[str]) -> None:
    assert run("turn", url, where) == (-9, first)
    assert run("turn", url, "never") == (0, second)
    async with durable_storage(url) as storage:
        calls = Calls(storage.callbacks(), Turn("later"))
        assert await calls.ids() == ["m0", "m1", "m2"]
        assert await calls.ids("tool_call") == ["call_0", "call_1", "call_2"]
        assert await calls.ids("thought") == ["t0", "t1", "t2"]
        assert await calls.ids("memory") == ["f0", "f1", "f2"]


async def test_two_processes_run_turns_on_one_thread(lasting_url: str, full: bool) -> None:
    """No value is lost or duplicated, each turn keeps its order, and equal call ids are distinct."""
    count = 100 if full else 15
    processes = [
        subprocess.Popen(
            [sys.executable, TURNERS, "many", lasting_url, name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    async with durable_storage(lasting_url) as storage:
        rows: list[dict[str, Any]] = [row async for row in storage.export("acme")]
    for kind in ("message", "tool_call"):
        ours = [row for row in rows if row["kind"] == kind]
        seqs = [row["seq"] for row in ours]
        assert seqs == sorted(set(seqs))
        for name in ("a", "b"):
            turns = [row["turn"] for row in ours if row["turn"].startswith(name)]
            each = 2 if kind == "message" else 1
            assert turns == [f"{name}{number}" for number in range(count) for _ in range(each)]


async def test_a_run_that_was_taken_over_stores_nothing(storage: DurableStorage) -> None:
    """After a takeover, the iterations of the process that was presumed dead are refused."""
    stuck, go_on = asyncio.Event(), asyncio.Event()

    async def slow(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(message(f"slow-{ctx.iteration}"))
        if ctx.iteration == 1:
            stuck.set()
            await go_on.wait()
            ctx.ack()

    async def quick(ctx: DispatchContext, _helpers: Any) -> None:
        await ctx.store_message(message(f"quick-{ctx.iteration}"))
        ctx.ack()

    given = TurnInput(system_prompt="Go.", stash={"scope": SCOPE}, turn_id="turn-1")
    running = asyncio.create_task(storage.runner(executor_callback=slow).run_result(given))
    await stuck.wait()
    assert (await storage.runner(executor_callback=quick).run_result(given)).ok
    go_on.set()
    late = await running
    assert (late.status, type(late.errors[0])) == ("nack", DispatchFlushError)
    assert isinstance(late.errors[0].__cause__, TurnTakenOver)
    assert await Calls(storage.callbacks(), Turn()).ids() == ["slow-0", "quick-1"]


class Server:
    """An agent in another process."""

    def __init__(self, url: str, where: str) -> None:
        command = [sys.executable, TURNERS, "serve", url, where]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def lines(self) -> list[str]:
        """Return the output of the process after it ended."""
        output, _ = self.process.communicate()
        return output.splitlines()

    def stop(self) -> list[str]:
        self.process.kill()
        return self.lines()


@pytest.fixture
def serve(lasting_url: str) -> Iterator[Callable[[str], Server]]:
    """Start servers that end with the test."""
    started: list[Server] = []

    def start(where: str) -> Server:
        started.append(Server(lasting_url, where))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


async def test_a_task_continues_in_another_process(lasting_url: str, serve: Callable[[str], Server]) -> None:
    """Processes are killed in an iteration, at the question of the next process, and after the answer."""

    async def reach(task_id: str, state: TaskState) -> Task:
        async with asyncio.timeout(60):
            while True:
                found = await engine.tasks.load(task_id)
                if found.view.state == state:
                    return await engine.store.task(found)
                await asyncio.sleep(0.02)

    async with TaskEngine.on(lasting_url) as engine:
        task_id = (await engine.tasks.send(task_message("go"))).task.task_id
        first = serve("in-0")
        assert await asyncio.to_thread(first.lines) == ["iteration 0"]
        assert first.process.returncode == -9
        second = serve("never")
        asked = await reach(task_id, TaskState.input_required)
        assert asked.status.message is not None
        assert asked.status.message.text.startswith("Go on?\n")
        assert second.stop() == ["iteration 0", "iteration 1"]
        answered = task_message("approve", task_id=task_id, context_id=asked.context_id)
        await engine.tasks.send(answered)
        third = serve("in-1")
        assert await asyncio.to_thread(third.lines) == ["iteration 1", "answer True"]
        assert third.process.returncode == -9
        fourth = serve("never")
        task = await reach(task_id, TaskState.completed)
        assert fourth.stop() == ["iteration 1", "answer True", "iteration 2"]
    shown = {each.artifact_id: "".join(part.text or "" for part in each.parts) for each in task.artifacts}
    assert shown == {"message-1-m0": "half 0", "message-1-m1": "half 1", "message-1-m2": "half 2"}
