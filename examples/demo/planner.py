"""A skill that is a turn runner: it stores a thought, calls a tool, and waits for a person.

The output of the model is scripted. Each iteration is one commit: if the process dies between two iterations, another
process continues with the next one.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime

from pydantic import BaseModel

from keelbolt.protocol.card import SkillConfig
from keelbolt.turns import (
    DispatchContext,
    ExecutorHelpers,
    Message,
    Registry,
    Thought,
    Tool,
    ToolCall,
    TurnWorker,
    durable_storage,
    hydrate,
    turn_worker,
)

PLAN = SkillConfig(
    id="plan",
    name="Plan a trip",
    description="A turn runner: it thinks, calls a weather tool, and asks before it books.",
    tags=["turns", "tools", "approval"],
    examples=["plan a trip to Rome"],
)


class Place(BaseModel):
    city: str


async def weather(args: Place, _ctx: DispatchContext, _meta: Registry) -> str:
    return f"sunny in {args.city}"


def planner(storage: str, *, pace: float = 1.0) -> TurnWorker:
    """Return the worker; it opens the storage itself."""

    async def execute(ctx: DispatchContext, helpers: ExecutorHelpers) -> None:
        """Run one iteration; called until it calls `ack`."""
        await asyncio.sleep(0.7 * pace)
        now = datetime.now(UTC)
        asked = next(str(message.content) for message in reversed([*ctx.turn_messages]) if message.role == "user")
        found = re.search(r"to (\w+)", asked)
        city = found[1].title() if found else "Rome"
        if ctx.iteration == 0:
            thought = f"They want to go to {city}. What will the weather be?"
            helpers.report_thought("weather", thought, is_complete=True)
            await ctx.store_thought(Thought(id="weather", content=thought, created_at=now, updated_at=now))
        elif ctx.iteration == 1:
            call = ToolCall(
                id="weather", tool="weather", args={"city": city}, is_complete=False, created_at=now, updated_at=now
            )
            await ctx.store_tool_call(call)
            tool = ctx.tools.get(call.tool)
            assert tool is not None
            answer = str(await tool.executor(ctx)(call.args))
            helpers.report_tool_call("weather", tool="weather", args=call.args, results=answer, is_complete=True)
            await ctx.mutate_tool_call(call.completed(answer, at=now))
        else:
            yes = await ctx.wait_for(reason=f"It is sunny. Approve the train to {city}?", payload={"city": city})
            reply = f"The train to {city} is booked." if yes is True else f"No train to {city}, then."
            name = f"answer-{ctx.turn_id}"
            helpers.report_message(name, reply, is_complete=True)
            await ctx.store_message(Message(id=name, role="assistant", content=reply, created_at=now, updated_at=now))
            ctx.ack()

    kept = durable_storage(storage)
    runner = kept.runner(
        executor_callback=execute,
        turn_input_pipeline=[hydrate("messages")],
        tools=[Tool(name="weather", description="The weather of a city.", input_schema=Place, handler=weather)],
    )
    return turn_worker(runner, kept, system_prompt="You plan trips.", agent="planner")
