"""A pydantic-ai agent with a tool: its text is streamed, and its orders are placed once."""

from __future__ import annotations

import sys

from pydantic_ai import Agent, RunContext

from examples.workers import outside
from examples.workers.scripted_pydantic_ai import model  # or model = "openai:gpt-5"
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.pydantic_ai import KeelboltDurability, pydantic_ai_worker
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext

# The service takes an order with the same key once, so that an order in doubt may be placed again.
durability = KeelboltDurability(tool_in_doubt="retry")
agent = Agent(model, name="shop", deps_type=TaskContext, capabilities=[durability])


@agent.tool
async def order(run: RunContext[TaskContext], item: str) -> str:
    """Order an item."""
    return await outside.order(item, run.deps.idempotency_key(item))


shop = pydantic_ai_worker(agent)

if __name__ == "__main__":
    card = AgentCardConfig(name="Shop", description="Orders things", capabilities=CapabilitiesConfig(streaming=True))
    A2AServer(worker=shop, agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
