"""A pydantic-ai agent with a tool: its text is streamed, and its orders are placed once."""

from __future__ import annotations

import sys

from pydantic_ai import Agent, RunContext

from examples.workers import outside
from examples.workers.scripted_pydantic_ai import model  # or model = "openai:gpt-5"
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext

agent = Agent(model, deps_type=TaskContext, instructions="Order what the user wants.")


@agent.tool
async def order(run: RunContext[TaskContext], item: str) -> str:
    """Order an item."""
    key = run.deps.idempotency_key(item)
    return await run.deps.step(f"order {item}", outside.order, item, key, idempotent=True)


async def shop(ctx: TaskContext) -> None:
    async with agent.run_stream(ctx.user_text, deps=ctx) as answer:
        await ctx.stream_text(answer.stream_text(delta=True))
    await ctx.complete()


if __name__ == "__main__":
    card = AgentCardConfig(name="Shop", description="Orders things", capabilities=CapabilitiesConfig(streaming=True))
    A2AServer(worker=shop, agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
