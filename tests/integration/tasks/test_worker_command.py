"""`keelbolt worker` in real processes: one process is killed or stopped, and another one continues."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from keelbolt.kernel import open_storage
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskEngine, TaskSnapshot
from keelbolt.tasks.report import report
from keelbolt.tasks.stored_tasks import StoredTask
from tests.integration.tasks.conftest import store_url
from tests.integration.tasks.stage import message

AGENT = '''
import asyncio, os
from keelbolt.tasks import Worker

class Slow(Worker):
    """Takes long in the first attempt, and is quick in the others."""

    async def handle(self, ctx):
        await ctx.step("once", lambda: os.getpid(), idempotent=True)
        await ctx.send_status(f"begun by {os.getpid()}")
        if ctx.attempt == 1 and not os.environ.get("QUICK"):
            await asyncio.sleep(float(ctx.user_text))
        await ctx.complete(f"{os.getpid()}")
'''

PROGRAM = [sys.executable, "-c", "from keelbolt.cli.main import main; main()"]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, request, tmp_path)


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    """Start a worker process, and return when it accepts tasks."""
    (tmp_path / "agent.py").write_text(AGENT)
    processes: list[subprocess.Popen[str]] = []

    def begin(*options: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*PROGRAM, "worker", "agent:Slow", "--storage", url, "--log-format", "json", *options],
            cwd=tmp_path,
            env=os.environ | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stderr is not None
        assert "runs tasks" in json.loads(process.stderr.readline())["message"]
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.fixture
async def client(url: str) -> AsyncIterator[TaskEngine]:
    """Return an engine without a worker, for sending and reading."""
    async with open_storage(url) as kernel, TaskEngine(kernel) as engine:
        yield engine


async def begun(client: TaskEngine, seconds: str) -> str:
    """Return a task that a worker has started and that runs for ``seconds``."""
    sent = await client.tasks.send(message(seconds))
    task_id = sent.task.record.task_id
    async with aclosing(client.tasks.follow(task_id, after=0)) as events:
        async for event in events:
            if not isinstance(event, TaskSnapshot) and b"begun by" in event.data:
                return task_id
    raise AssertionError


async def ended(client: TaskEngine, task_id: str) -> tuple[StoredTask, int]:
    """Wait for the end of the task; return it with the process that ended it."""
    async with aclosing(client.tasks.follow(task_id)) as events:
        async for _ in events:
            pass
    task = await client.tasks.load(task_id)
    whole = await client.store.task(task)
    assert task.view.state is TaskState.completed
    assert whole.artifacts is not None
    return task, int(whole.artifacts[0].parts[0].text or "")


def stopped(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(30)


async def test_a_killed_process_is_replaced(client: TaskEngine, start: Start) -> None:
    """kill -9 of the holder: another process ends the task after the lease, and the report names both."""
    first = start("--lease-seconds", "2")
    task_id = await begun(client, "600")
    second = start("--lease-seconds", "2")
    first.kill()
    killed = time.monotonic()
    task, by = await ended(client, task_id)
    assert by == second.pid
    assert time.monotonic() - killed < 10
    found = await report(client.store, task.scope, task_id)
    assert [(each.attempt, int(each.worker.split(":")[1])) for each in found.attempts] == [
        (1, first.pid),
        (2, second.pid),
    ]
    assert [(step.step, step.state) for step in found.steps] == [("once", "done")]
    assert stopped(second) == 0


async def test_sigterm_releases_tasks_within_a_second(client: TaskEngine, start: Start) -> None:
    """A task that is unfinished after the drain goes to another process at once and costs no attempt."""
    first = start("--drain-seconds", "0.2", "--lease-seconds", "60")
    task_id = await begun(client, "600")
    second = start("--lease-seconds", "60", QUICK="yes")
    signalled = time.time()
    first.send_signal(signal.SIGTERM)
    task, by = await ended(client, task_id)
    assert by == second.pid
    assert first.wait(10) == 0
    found = await report(client.store, task.scope, task_id)
    assert [each.attempt for each in found.attempts] == [1, 1]
    assert found.attempts[1].at / 1_000_000 - signalled < 0.2 + 1.0  # the drain, then less than a second


async def test_sigterm_lets_a_task_end(client: TaskEngine, start: Start) -> None:
    """A task that ends within the drain is not released; the process claims no new task meanwhile."""
    first = start("--drain-seconds", "20")
    task_id = await begun(client, "1")
    first.send_signal(signal.SIGTERM)
    _, by = await ended(client, task_id)
    assert by == first.pid
    assert first.wait(10) == 0
    waiting = await client.tasks.send(message("0"))
    assert (await client.tasks.settled(waiting, seconds=0.5)).view.state is TaskState.submitted


async def test_a_second_signal_ends_it_at_once(client: TaskEngine, start: Start) -> None:
    """The lease expires, and another process gets the task."""
    first = start("--drain-seconds", "600", "--lease-seconds", "2")
    task_id = await begun(client, "600")
    first.send_signal(signal.SIGINT)
    assert first.stderr is not None
    assert "stopping" in first.stderr.readline()
    first.send_signal(signal.SIGTERM)
    assert first.wait(5) == -signal.SIGTERM
    second = start("--lease-seconds", "2")
    assert (await ended(client, task_id))[1] == second.pid


async def test_settings_come_from_the_environment_too(client: TaskEngine, start: Start, url: str) -> None:
    """With one slot, the second task waits for the first. An option takes precedence over the environment."""
    process = start(
        "--drain-seconds", "0", KEELBOLT_CONCURRENCY="1", KEELBOLT_DRAIN_SECONDS="600", KEELBOLT_LEASE_SECONDS="9"
    )
    await begun(client, "600")
    waiting = await client.tasks.send(message("0"))
    assert (await client.tasks.settled(waiting, seconds=1)).view.state is TaskState.submitted
    assert stopped(process) == 0


async def test_tail_follows_the_work_of_another_process(client: TaskEngine, start: Start, url: str) -> None:
    """The command prints the log live, from beginning to end, with no seq missing; then it exits."""
    start()
    task_id = await begun(client, "1")
    tail = [*PROGRAM, "tasks", "tail", task_id, "--storage", url, "--after", "0", "--json"]
    followed = await asyncio.to_thread(subprocess.run, tail, capture_output=True, text=True, check=True, timeout=30)
    lines = [json.loads(line) for line in followed.stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["data"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_tail_of_a_task_that_waits_ends_with_ctrl_c(client: TaskEngine, url: str) -> None:
    sent = await client.tasks.send(message("no worker runs this"))
    tail = [*PROGRAM, "tasks", "tail", sent.task.record.task_id, "--storage", url]
    with subprocess.Popen(tail, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "the task is submitted" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
