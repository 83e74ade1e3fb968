"""The workers under examples/workers, each in a process that is killed with kill -9 while it works."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.workers.outside import ANSWER
from keelbolt.client import A2AClient, Event, Message, Part, Role, Task, TaskState
from keelbolt.errors import TaskNotCancelableError

ROOT = Path(__file__).parents[3]


class Program:
    """The process of one worker, and its successors after kills; all at one address, on one storage."""

    def __init__(self, name: str, folder: Path, *args: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.ledger = folder / f"{name}.txt"
        self._command = [
            sys.executable,
            "-m",
            f"examples.workers.{name}",
            f"sqlite:///{folder}/{name}.db",
            str(self.port),
            *args,
        ]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environment = {**os.environ, "LEDGER": str(self.ledger)}
        self._process = await asyncio.create_subprocess_exec(
            *self._command, cwd=ROOT, env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        async with A2AClient(self.url, reconnect_seconds=60) as client:
            await client.reachable()

    async def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def killed(self) -> None:
        """Kill the process, and start the next one."""
        await self.kill()
        await self.start()

    def orders(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


@asynccontextmanager
async def running(name: str, folder: Path, *args: str) -> AsyncIterator[Program]:
    program = Program(name, folder, *args)
    await program.start()
    try:
        yield program
    finally:
        await program.kill()


async def send_and_kill(
    client: A2AClient, request: str, program: Program, when: Callable[[str, Event], bool]
) -> tuple[str, Task]:
    """Send a message, kill the process once ``when`` holds, and follow the task to its end. Return text and task."""
    text, killed = "", False
    task_id = ""
    async for event in client.stream_message(request):
        task_id = event.task_id or task_id
        if event.task is not None and event.snapshot:
            text = "".join(part.text or "" for made in event.task.artifacts for part in made.parts)
        elif event.artifact is not None:
            text = event.text if not getattr(event.value, "append", False) else text + event.text
        if when(text, event) and not killed:
            killed = True
            await program.killed()
    assert killed
    return text, await client.get_task(task_id)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until the condition, which may be asynchronous, holds."""
    async with asyncio.timeout(60):
        while not (await found if inspect.isawaitable(found := condition()) else found):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def state(client: A2AClient, task_id: str) -> TaskState:
    return (await client.get_task(task_id)).status.state


def text_in(task: Task) -> str:
    return "".join(part.text or "" for part in task.artifacts[0].parts).strip()


@pytest.mark.parametrize("name", ["pydantic_ai_shop", "openai_agents_shop"])
async def test_a_shop_streams_and_orders_once(name: str, tmp_path: Path) -> None:
    """The process is killed while the model streams: the order is not repeated, and no text is lost or repeated."""
    async with running(name, tmp_path) as program, A2AClient(program.url) as client:
        text, task = await send_and_kill(client, "a kettle, please", program, lambda text, _: text.count(" ") >= 8)
        assert task.status.state is TaskState.completed
        assert text.strip() == text_in(task) == ANSWER
        assert len(program.orders()) == 1


@pytest.mark.peers
async def test_a_graph_waits_for_an_approval(tmp_path: Path) -> None:
    """The process is killed while the user is asked, and while the order is placed."""
    async with running("langgraph_approval", tmp_path) as program, A2AClient(program.url) as client:
        asked = await client.send_message("a kettle")
        assert isinstance(asked, Task)
        assert (asked.status.state, program.orders()) == (TaskState.input_required, [])
        assert asked.status.message is not None
        assert asked.status.message.text == "Order a kettle?"
        await program.killed()
        answer = Message(message_id="yes", role=Role.user, parts=[Part(text="yes")], task_id=asked.id)
        await client.send_message(answer, return_immediately=True)
        await until(program.orders)
        await program.killed()
        events = [event async for event in client.subscribe(asked.id)]
        assert events[-1].state is TaskState.completed
        task = await client.get_task(asked.id)
        assert task.artifacts[0].parts[0].text == "a kettle is ordered"
        assert len(program.orders()) == 1
        refused = await client.send_message("a teapot")
        assert isinstance(refused, Task)
        done = await client.send_message("no", task_id=refused.id)
        assert isinstance(done, Task)
        assert done.artifacts[0].parts[0].text == "nothing was ordered"


async def test_a_long_job_continues_where_it_was(tmp_path: Path) -> None:
    async with running("long_job", tmp_path) as program, A2AClient(program.url) as client:
        seen: list[str] = []

        def at_page_three(_: str, event: Event) -> bool:
            if event.message is not None:
                seen.append(event.message.text)
            return seen[-1:] == ["3 of 8 pages"]

        _, task = await send_and_kill(client, "8", program, at_page_three)
        assert task.status.state is TaskState.completed
        # Progress does not go back; the last report before the kill may come twice.
        assert (seen, sorted(set(seen))) == (sorted(seen), [f"{page} of 8 pages" for page in range(1, 9)])
        book = await client.download(task.artifacts[0].parts[0])
        assert book.decode() == "".join(f"page {page}\n" for page in range(8))
        assert list(tmp_path.glob("*.txt.*")) == []


async def test_a_cancelled_long_job_leaves_no_files(tmp_path: Path) -> None:
    """The process is killed at about the time of the cancel."""
    async with running("long_job", tmp_path) as program, A2AClient(program.url) as client:
        sent = await client.send_message("100", return_immediately=True)
        assert isinstance(sent, Task)
        await until(lambda: list(tmp_path.glob("*.txt.*")))
        await cancelled_and_killed(client, sent.id, program)
        await until(lambda: not list(tmp_path.glob("*.txt.*")))


async def cancelled_and_killed(client: A2AClient, task_id: str, program: Program) -> None:
    """Kill the process at about the time of a cancel; cancel again if the first cancel did not arrive."""
    cancelling = asyncio.create_task(client.cancel_task(task_id))
    await asyncio.sleep(0.005)
    await program.killed()
    await asyncio.gather(cancelling, return_exceptions=True)
    if (await state(client, task_id)) is TaskState.working:
        with suppress(TaskNotCancelableError):  # the first cancel arrived and has ended the task
            await client.cancel_task(task_id)

    async def over() -> bool:
        return (await state(client, task_id)) is TaskState.canceled

    await until(over)


async def test_a_relay_continues_with_the_same_task(tmp_path: Path) -> None:
    """The relay is killed while the other agent streams; then both processes are killed."""
    async with (
        running("pydantic_ai_shop", tmp_path) as shop,
        running("relay", tmp_path, shop.url) as relay,
        A2AClient(relay.url) as client,
        A2AClient(shop.url) as other,
    ):
        text, task = await send_and_kill(client, "a kettle, please", relay, lambda text, _: text.count(" ") >= 5)
        assert task.status.state is TaskState.completed
        assert text.strip() == text_in(task) == ANSWER
        assert len(shop.orders()) == 1
        assert len([found async for found in other.list_tasks()]) == 1

        sent = await client.send_message("another, please", return_immediately=True)
        assert isinstance(sent, Task)

        async def begun() -> bool:
            return bool((await client.get_task(sent.id)).artifacts)

        await until(begun)
        await asyncio.gather(relay.killed(), shop.killed())
        events = [event async for event in client.subscribe(sent.id)]
        assert events[-1].state is TaskState.completed
        assert text_in(await client.get_task(sent.id)) == ANSWER
        assert len(shop.orders()) == 2
        assert len([found async for found in other.list_tasks()]) == 2


async def test_a_cancel_of_a_killed_relay_reaches_the_other_agent(tmp_path: Path) -> None:
    async with (
        running("long_job", tmp_path) as printer,
        running("relay", tmp_path, printer.url) as relay,
        A2AClient(relay.url) as client,
        A2AClient(printer.url) as other,
    ):
        sent = await client.send_message("1000", return_immediately=True)
        assert isinstance(sent, Task)

        async def begun() -> bool:
            return (await client.get_task(sent.id)).status.message is not None

        await until(begun)
        await cancelled_and_killed(client, sent.id, relay)
        [theirs] = [found async for found in other.list_tasks()]

        async def passed_on() -> bool:  # the relay may be canceled before its worker cleans up
            return (await state(other, theirs.id)) is TaskState.canceled

        await until(passed_on)
