"""Agents made by `chat_executor` that can be killed at any await.

python chatter.py    reads requests, one JSON object per line, and answers each with one line. It forks a process for
                     each request, so that a run needs no imports; the process dies with a real SIGKILL

A request has ``program``, ``url`` (the storage), ``folder`` (for the payments), ``name`` (of the conversation) and
``step``: the step at which the process kills itself, -1 for never. A restarted process continues the conversation. The
answer has the ``code`` of the process, the state that it ``found`` at its end, and its ``error`` output.

readme      the agent of the page *One program for each face*, word for word, called over A2A: one purchase
concurrent  an agent with the same tools on the task engine: three purchases at once on one thread

A step is one resumption of any task of the event loop: one step follows every await that suspends in the agent, the
turns, the tools, the engine and the client.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any

from keelbolt.client import A2AClient
from keelbolt.protocol.types import Message, Part, Role, Task, TaskState
from keelbolt.server import A2AServer
from keelbolt.tasks import Envelope, TaskEngine, TaskSettings
from keelbolt.testing.model import ScriptedModel, call
from keelbolt.turns import DurableStorage, ModelRequest, chat_executor, durable_storage, tool, turn_worker

FACES = Path(__file__).parents[3] / "docs/tutorial/faces.md"
CONCURRENT = 3
RUN_SECONDS = 90
SETTINGS = {"KEELBOLT_LEASE_SECONDS": "1.0", "KEELBOLT_HEARTBEAT_SECONDS": "0.3", "KEELBOLT_MAX_ATTEMPTS": "50"}
steps = 0


class Stepping(Coroutine[Any, Any, Any]):
    """Counts the steps of a coroutine, and kills the process at one of them."""

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


class Bank:
    """A bank that identifies a payment by its key. Each attempt is a line in the file of that key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pay(self, key: str, amount: int) -> None:
        with (self.folder / key).open("a") as book:
            book.write(f"{amount}\n")

    def attempts(self) -> list[int]:
        return sorted(len(book.read_text().split()) for book in self.folder.iterdir())


def script(request: ModelRequest) -> Any:
    """A deterministic model: looks up the price, pays, answers."""
    asked = max(number for number, entry in enumerate(request.messages) if entry.role == "user")
    done = [each.name for entry in request.messages[asked:] for each in entry.calls]
    if "price" not in done:
        return ["Let me look. ", call("price", item="kettle")]
    return call("pay", item="kettle", amount=30) if "pay" not in done else "It is paid."


# ------------------------------------------------------------------------------------ the agent of the documentation


def readme_agent(url: str, bank: Bank) -> tuple[DurableStorage, A2AServer]:
    """The program of docs/tutorial/faces.md, with another storage, a scripted model, and a bank."""
    (program,) = [
        text for text in re.findall(r"```python\n(.*?)```", FACES.read_text(), re.DOTALL) if "# shop.py" in text
    ]
    for old, new in (
        ('"sqlite:///shop.db"', repr(url)),
        ('OpenAIModel("gpt-5-mini")', "MODEL"),
        ('    return {"item": item, "paid"', '    BANK.pay(call_id, amount)\n    return {"item": item, "paid"'),
    ):
        assert old in program, f"docs/tutorial/faces.md has no {old}"
        program = program.replace(old, new)
    names: dict[str, Any] = {"__name__": "shop", "MODEL": ScriptedModel(script), "BANK": bank}
    exec(compile(program, "shop.py", "exec"), names)
    return names["storage"], names["server"]


async def readme(url: str, bank: Bank, name: str) -> dict[str, Any]:
    """Buy one kettle, and approve on request. A repeated call continues."""
    storage, server = readme_agent(url, bank)
    async with A2AClient("http://localhost", app=server.app) as client:
        options: dict[str, Any] = {
            "context_id": name,
            "message_id": f"order-{name}",
            "idempotency_key": f"order-{name}",
        }
        task = await client.send_message("buy a kettle", **options)
        while isinstance(task, Task) and not task.status.state.terminal:
            if task.status.state is TaskState.input_required:
                more: dict[str, Any] = {"message_id": f"yes-{name}", "idempotency_key": f"yes-{name}"}
                task = await client.send_message("yes", task_id=task.id, **more)
            else:
                await asyncio.sleep(0.02)
                task = await client.get_task(task.id)
        assert isinstance(task, Task)
        return {"states": [task.status.state.name], **await kept(storage, name)}


# -------------------------------------------------------------------------------------------------- three at a time


async def concurrent(url: str, bank: Bank, name: str) -> dict[str, Any]:
    @tool
    async def price(item: str) -> int:
        """What it costs."""
        return 30 if item == "kettle" else 10

    @tool(needs_approval="May I pay {amount} for the {item}?")
    async def pay(item: str, amount: int, call_id: str) -> str:
        """Pay it."""
        await asyncio.sleep(0)
        bank.pay(call_id, amount)
        await asyncio.sleep(0)
        return f"{item} paid"

    storage = durable_storage(url)
    runner = storage.runner(executor_callback=chat_executor(ScriptedModel(script), tools=[price, pay]))
    worker = turn_worker(runner, storage, system_prompt="You are a clerk.")
    async with TaskEngine.on(url, worker, settings=TaskSettings.of()) as engine:
        states = await asyncio.gather(*(buy(engine, name, number) for number in range(CONCURRENT)))
        return {"states": states, **await kept(storage, name)}


async def buy(engine: TaskEngine, name: str, number: int) -> str:
    """Order, approve on request, and return the final state. A repeated call continues."""
    order = Message(message_id=f"order-{name}-{number}", role=Role.user, parts=[Part(text="buy")], context_id=name)
    sent = await engine.tasks.send(order, Envelope(key=order.message_id))
    while True:
        now = await engine.tasks.settled(sent)
        if now.state is not TaskState.input_required:
            return now.state.name
        yes = Message(
            message_id=f"yes-{name}-{number}-{now.record.turn.number}",
            role=Role.user,
            parts=[Part(text="yes")],
            task_id=now.task_id,
        )
        sent = await engine.tasks.send(yes, Envelope(key=yes.message_id))


async def kept(storage: DurableStorage, name: str) -> dict[str, Any]:
    """Return the stored turns of this conversation."""
    (tenant,) = {gate.tenant for gate in await storage.gates.list(state="settled")}
    rows = [row async for row in storage.export(tenant, thread=name)]
    messages = [row["data"] for row in rows if row["kind"] == "message"]
    calls = [row["data"] for row in rows if row["kind"] == "tool_call"]
    return {
        "asked": sum(each["role"] == "user" for each in messages),
        "answers": [each["content"] for each in messages if each["role"] == "assistant"].count("It is paid."),
        "calls": sorted(each["tool"] for each in calls if each["is_complete"]),
        "pending": sum(not each["is_complete"] for each in calls),
    }


# ----------------------------------------------------------------------------------------------------------- forking


async def work(request: dict[str, Any]) -> dict[str, Any]:
    bank = Bank(Path(request["folder"]))
    program = {"readme": readme, "concurrent": concurrent}[request["program"]]
    async with asyncio.timeout(RUN_SECONDS):
        found = await program(request["url"], bank, request["name"])
    return {"steps": steps, **found, "paid": bank.attempts()}


def child(request: dict[str, Any], answer: int) -> None:
    last = request["step"]
    try:
        with asyncio.Runner() as running:
            running.get_loop().set_task_factory(
                lambda loop, coro, **more: asyncio.Task(Stepping(coro, last), loop=loop, **more)
            )
            found: dict[str, Any] = {"found": running.run(work(request))}
    except BaseException:
        found = {"error": traceback.format_exc()}
    with os.fdopen(answer, "w") as pipe:
        json.dump(found, pipe)
    os._exit(1 if "error" in found else 0)


def main() -> None:
    os.environ.update(SETTINGS)
    for line in sys.stdin:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            child(json.loads(line), writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            output = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"code": code, **(json.loads(output) if output else {})}), flush=True)


if __name__ == "__main__":
    main()
