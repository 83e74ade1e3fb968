"""A clerk that looks up prices and pays: a model with two tools and a gate, served as an agent, stored in SQLite.

    python examples/shop_agent.py             # a conversation with a scripted model; needs no network
    OPENAI_API_KEY=… keelbolt serve examples.shop_agent:clerk   # as an A2A agent, with a real model

Each message of the conversation runs in a new engine: no state stays in memory between the question and the answer.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

from keelbolt.kernel import new_id
from keelbolt.protocol.types import Message, Part, Role, Task
from keelbolt.tasks import TaskEngine
from keelbolt.testing.model import ScriptedModel, call
from keelbolt.turns import (
    Model,
    ModelRequest,
    OpenAIModel,
    TurnWorker,
    chat_executor,
    durable_storage,
    tool,
    turn_worker,
)

BANK: dict[str, int] = {}  # an external system that makes each payment once, by its key


@tool
def price(item: str) -> int:
    """Return the price of an item in euros."""
    return {"kettle": 30, "teapot": 45}.get(item, 10)


@tool(needs_approval="May I pay {amount} EUR for the {item}?", timeout=30, retries=2)
async def pay(item: str, amount: int, call_id: str) -> dict[str, Any]:
    """Pay for an item."""
    BANK.setdefault(call_id, amount)
    return {"item": item, "paid": BANK[call_id]}


def script(request: ModelRequest) -> Any:
    """Stand-in for a model: look up the price, pay, answer."""
    asked = max(number for number, entry in enumerate(request.messages) if entry.role == "user")
    item = request.messages[asked].text.split()[-1]
    results = [entry for entry in request.messages[asked:] if entry.role == "tool"]
    if not results:
        return ["Let me look. ", call("price", item=item)]
    if len(results) == 1:
        return call("pay", item=item, amount=int(results[0].text))
    return f"I did not pay for the {item}." if results[1].is_error else f"The {item} is yours."


def make_clerk(url: str) -> TurnWorker:
    storage = durable_storage(url)
    model: Model = OpenAIModel("gpt-5-mini") if "OPENAI_API_KEY" in os.environ else ScriptedModel(script)
    runner = storage.runner(executor_callback=chat_executor(model, tools=[price, pay]))
    return turn_worker(runner, storage, system_prompt="You are a clerk. Look up the price, then pay.")


clerk = make_clerk(os.environ.get("KEELBOLT_STORAGE", "sqlite:///keelbolt.db"))  # the same as `keelbolt serve`


async def say(url: str, text: str, task: Task | None = None) -> Task:
    async with TaskEngine.on(url, make_clerk(url)) as engine:
        message = Message(message_id=new_id(), role=Role.user, parts=[Part(text=text)], context_id="kitchen")
        if task is not None:
            message = message.model_copy(update={"task_id": task.id})
        task = await engine.store.task(await engine.tasks.settled(await engine.tasks.send(message)))
    print(f"you:   {text}")
    asked = task.status.message
    told = ["".join(part.text or "" for part in each.parts) for each in task.artifacts if each.name == "message"]
    words = " ".join(asked.text.splitlines()) if asked is not None else told[-1]
    print(f"clerk: {words}   [{task.status.state.name}]")
    return task


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="keelbolt-example-") as folder:
        url = f"sqlite:///{Path(folder) / 'clerk.db'}"
        task = await say(url, "buy a kettle")
        await say(url, "yes", task)
        task = await say(url, "buy a teapot")
        await say(url, "no, too dear", task)
        print(f"the bank has paid {sum(BANK.values())} EUR in {len(BANK)} payment")


if __name__ == "__main__":
    asyncio.run(main())
