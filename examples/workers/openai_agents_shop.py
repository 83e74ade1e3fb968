"""An agent of the OpenAI Agents SDK with a tool: its text is streamed, and its orders are placed once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, RunContextWrapper, Runner, function_tool, set_tracing_disabled

from examples.workers import outside
from examples.workers.scripted_openai import model  # or model = "gpt-5"
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext


@function_tool
async def order(run: RunContextWrapper[TaskContext], item: str) -> str:
    """Order an item."""
    key = run.context.idempotency_key(item)
    return await run.context.step(f"order {item}", outside.order, item, key, idempotent=True)


agent = Agent(name="Shop", instructions="Order what the user wants.", tools=[order], model=model)


async def words(run: Any) -> AsyncIterator[str]:
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


async def shop(ctx: TaskContext) -> None:
    await ctx.stream_text(words(Runner.run_streamed(agent, ctx.user_text, context=ctx)))
    await ctx.complete()


if __name__ == "__main__":
    set_tracing_disabled(disabled=True)
    card = AgentCardConfig(name="Shop", description="Orders things", capabilities=CapabilitiesConfig(streaming=True))
    A2AServer(worker=shop, agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
