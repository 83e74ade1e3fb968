"""A clerk that orders things: a turn runner with tools, memory and a gate, served as an agent, stored in SQLite.

    python examples/turns_agent.py            # a conversation; each message runs in a new engine
    keelbolt serve examples.turns_agent:clerk # the same clerk as an A2A agent: try "order 3 kettles"

The executor is written by hand on the contract of turns. `examples/shop_agent.py` uses the built-in executor and is
shorter. The function `model` stands in for a real model.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from keelbolt.errors import TurnError
from keelbolt.kernel import new_id
from keelbolt.protocol.types import Message as Sent
from keelbolt.protocol.types import Part, Role, Task
from keelbolt.tasks import TaskEngine
from keelbolt.turns import (
    DispatchContext,
    ExecutorHelpers,
    Memory,
    Message,
    Registry,
    Tool,
    ToolCall,
    TopK,
    TurnWorker,
    Window,
    durable_storage,
    hydrate,
    turn_worker,
)

BUDGET = 50  # orders above it need approval
PRICES = {"kettle": 30, "cup": 4, "teapot": 45}


# ---------------------------------------------------------------------------------------------------------- the tools


class Item(BaseModel):
    item: str


class Order(BaseModel):
    item: str
    count: int
    key: str


class Fact(BaseModel):
    text: str


SHOP: dict[str, str] = {}  # an external system that ships each order once, by its key


async def price(args: Item, _ctx: DispatchContext, _meta: Registry) -> str:
    return str(PRICES.get(args.item, 10))


async def order(args: Order, _ctx: DispatchContext, _meta: Registry) -> str:
    SHOP.setdefault(args.key, f"{args.count} × {args.item}")
    return f"ordered {SHOP[args.key]}"


async def remember(args: Fact, ctx: DispatchContext, _meta: Registry) -> str:
    now = datetime.now(UTC)
    fact = Memory(id=new_id(), content=args.text, confidence=1, importance=0.5, created_at=now, updated_at=now)
    await ctx.store_memory(fact)  # committed with the whole iteration, or not at all
    return "noted"


TOOLS = [
    Tool(name="price", description="Returns the price of one item.", input_schema=Item, handler=price),
    Tool(name="order", description="Orders from the shop.", input_schema=Order, handler=order),
    Tool(name="remember", description="Remembers a fact about the user.", input_schema=Fact, handler=remember),
]


# ---------------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class Call:
    tool: str
    args: dict[str, Any]


def model(request: str, done: Sequence[ToolCall], facts: Sequence[Memory]) -> Call | str:
    """Stand-in for a model: return the next tool call, or the answer."""
    results = {call.tool: str(call.results) for call in done}
    if wanted := re.search(r"order (\d+) (\w+?)s?\b", request):
        count, item = int(wanted[1]), wanted[2]
        if "price" not in results:
            return Call("price", {"item": item})
        if "order" not in results:
            return Call("order", {"item": item, "count": count, "total": count * int(results["price"])})
        liked = f" (You said: {facts[-1].content})" if facts else ""
        return f"It is {results['order']}.{liked}"
    if "remember" not in results and request.startswith("I "):
        return Call("remember", {"text": request})
    return "I will remember that." if "remember" in results else 'Try "order 3 kettles".'


# ------------------------------------------------------------------------------------------------------- the executor


async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
    """Run one iteration: make the pending tool call, or decide on the next one. Each is stored before the next starts.

    So a stored intent precedes every side effect: after a crash, another process continues from it.
    """
    ours = list(ctx.own_tool_calls)
    pending = next((call for call in ours if not call.is_complete), None)
    if pending is not None:
        await use(ctx, helpers, pending)
        return
    request = str(ctx.incoming[-1].content)
    decided = model(request, ours, list(ctx.turn_memories))
    now = datetime.now(UTC)
    name = f"{ctx.turn_id}.{ctx.iteration}"  # the same if this iteration is repeated
    if isinstance(decided, Call):
        call = ToolCall(
            id=name, tool=decided.tool, args=decided.args, is_complete=False, created_at=now, updated_at=now
        )
        helpers.report_tool_call(call.id, tool=call.tool, args=call.args)
        await ctx.store_tool_call(call)
        return
    for word in decided.split(" "):
        helpers.report_message(name, f"{word} ")
    helpers.report_message(name, "", is_complete=True)
    await ctx.store_message(Message(id=name, role="assistant", content=decided, created_at=now, updated_at=now))
    ctx.ack()


async def use(ctx: DispatchContext, helpers: ExecutorHelpers, call: ToolCall) -> None:
    """Call the tool, after the user has approved expensive orders."""
    args = dict(call.args)
    total = args.pop("total", 0)
    try:
        if total > BUDGET:
            question = f"{args['count']} × {args['item']} for {total}: shall I?"
            await ctx.wait_for(reason=question, payload=call.args, schema={"const": True})  # approve, or reject
        tool = ctx.tools.get(call.tool)
        assert tool is not None
        if call.tool == "order":
            args["key"] = call.id  # identifies the order if the process dies before the shop's response
        answer, failed = str(await tool.executor(ctx)(args)), False
    except TurnError as error:  # refused by the user or by the tool: passed to the model
        answer, failed = f"not done: {error}", True
    helpers.report_tool_call(call.id, tool=call.tool, args=call.args, results=answer, is_error=failed, is_complete=True)
    await ctx.mutate_tool_call(call.completed(answer, at=datetime.now(UTC), is_error=failed))


# ---------------------------------------------------------------------------------------------------------- the agent


def make_clerk(url: str) -> TurnWorker:
    storage = durable_storage(url)
    runner = storage.runner(
        executor_callback=execute,
        tools=TOOLS,
        turn_input_pipeline=[hydrate(messages=Window(last=50), tool_calls=Window(last=50), memories=TopK(5))],
        max_iterations=20,
    )
    return turn_worker(runner, storage, system_prompt="You are a clerk. Place orders, and ask if they are expensive.")


clerk = make_clerk(os.environ.get("KEELBOLT_STORAGE", "sqlite:///keelbolt.db"))  # the same as `keelbolt serve`


# --------------------------------------------------------------------------------------------------- the conversation


async def say(url: str, text: str, task: Task | None = None) -> Task:
    """Send a message and print the answer. Each call uses a new engine: no state stays in memory."""
    async with TaskEngine.on(url, make_clerk(url)) as engine:
        message = Sent(message_id=new_id(), role=Role.user, parts=[Part(text=text)], context_id="kitchen")
        if task is not None:
            message = message.model_copy(update={"task_id": task.id})
        task = await engine.store.task(await engine.tasks.settled(await engine.tasks.send(message)))
    print(f"you:   {text}")
    asked = task.status.message
    answer = [part.text for artifact in task.artifacts if artifact.name == "message" for part in artifact.parts]
    words = asked.text.splitlines()[0] if asked is not None else "".join(text or "" for text in answer).strip()
    print(f"clerk: {words}   [{task.status.state.name}]")
    return task


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="keelbolt-example-") as folder:
        url = f"sqlite:///{Path(folder) / 'clerk.db'}"
        await say(url, "I like tea.")
        await say(url, "order 2 cups")
        task = await say(url, "order 3 kettles")
        await say(url, "approve", task)
        task = await say(url, "order 2 teapots")
        await say(url, "reject: too dear", task)
        print(f"the shop ships: {', '.join(SHOP.values())}")


if __name__ == "__main__":
    asyncio.run(main())
