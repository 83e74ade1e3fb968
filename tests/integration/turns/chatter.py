"""An agent made by `chat_executor` that buys something three times at once on one thread, and can be killed anywhere.

python chatter.py URL FOLDER STEP     dies with SIGKILL at this step of its event loop (-1: never). Begun again, it goes
                                      on. At the end it prints how many steps it took and what it found

A step is one resumption of any coroutine: every await of the agent, the turns, the tools and the engine is one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any

from keelbolt.protocol.types import Message, Part, Role, TaskState
from keelbolt.tasks import Envelope, TaskEngine, TaskSettings
from keelbolt.testing.model import ScriptedModel, call
from keelbolt.turns import ModelRequest, chat_executor, durable_storage, tool, turn_worker

TASKS = 3
steps = 0


class Stepping(Coroutine[Any, Any, Any]):
    """Counts the steps of a coroutine, and ends the process at one of them."""

    def __init__(self, inner: Coroutine[Any, Any, Any], last: int) -> None:
        self._inner = inner
        self._last = last

    def _count(self) -> None:
        global steps  # noqa: PLW0603 - of the whole process
        if steps == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    def send(self, value: Any) -> Any:
        self._count()
        return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        self._count()
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


def script(request: ModelRequest) -> Any:
    """Looks at the price, pays, answers: the same whenever it is asked the same."""
    asked = max(number for number, entry in enumerate(request.messages) if entry.role == "user")
    done = [each.name for entry in request.messages[asked:] for each in entry.calls]
    if "price" not in done:
        return ["Let me look. ", call("price", item="kettle")]
    return call("pay", amount=30) if "pay" not in done else "It is paid."


def agent(url: str, folder: Path) -> tuple[Any, Any]:
    @tool
    async def price(item: str) -> int:
        """What it costs."""
        return 30 if item == "kettle" else 10

    @tool(needs_approval="May I pay {amount}?")
    async def pay(amount: int, call_id: str) -> str:
        """Pay it."""
        await asyncio.sleep(0)
        with (folder / call_id).open("a") as book:  # the other side knows a payment by its key
            book.write(f"{amount}\n")
        await asyncio.sleep(0)
        return "paid"

    storage = durable_storage(url)
    runner = storage.runner(executor_callback=chat_executor(ScriptedModel(script), tools=[price, pay]))
    return storage, turn_worker(runner, storage, system_prompt="You are a clerk.")


async def buy(engine: TaskEngine, number: int) -> str:
    """Order, approve when asked, and return the state at the end. A repeat of it goes on where it was."""
    order = Message(message_id=f"order-{number}", role=Role.user, parts=[Part(text="buy")], context_id="kitchen")
    sent = await engine.tasks.send(order, Envelope(key=order.message_id))
    task_id = sent.task.record.task_id
    while True:
        now = await engine.tasks.load(task_id)
        if now.view.state.terminal:
            return now.view.state.name
        if now.view.state is TaskState.input_required:
            yes = Message(
                message_id=f"yes-{number}-{now.record.turn.number}",
                role=Role.user,
                parts=[Part(text="yes")],
                task_id=task_id,
            )
            await engine.tasks.send(yes, Envelope(key=yes.message_id))
        await asyncio.sleep(0.02)


async def main(url: str, folder: Path) -> None:
    storage, worker = agent(url, folder)
    settings = TaskSettings.of(lease_seconds=1.0, heartbeat_seconds=0.3, max_attempts=50)
    async with TaskEngine.on(url, worker, settings=settings) as engine, asyncio.timeout(60):
        states = await asyncio.gather(*(buy(engine, number) for number in range(TASKS)))
        (tenant,) = {gate.tenant for gate in await storage.gates.list(state="settled")}
        rows = [row async for row in storage.export(tenant, thread="kitchen")]
    messages = [row["data"] for row in rows if row["kind"] == "message"]
    calls = [row["data"] for row in rows if row["kind"] == "tool_call"]
    found = {
        "steps": steps,
        "states": states,
        "asked": sum(each["role"] == "user" for each in messages),
        "answers": [each["content"] for each in messages if each["role"] == "assistant"].count("It is paid."),
        "calls": sorted(each["tool"] for each in calls if each["is_complete"]),
        "pending": sum(not each["is_complete"] for each in calls),
        "paid": sorted(len(book.read_text().split()) for book in folder.iterdir()),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    last = int(sys.argv[3])
    with asyncio.Runner() as running:
        running.get_loop().set_task_factory(
            lambda loop, coro, **more: asyncio.Task(Stepping(coro, last), loop=loop, **more)
        )
        running.run(main(sys.argv[1], Path(sys.argv[2])))
