"""An agent of the OpenAI Agents SDK with a tool: its text is streamed, and its orders are placed once."""

from __future__ import annotations

import sys

from agents import Agent, RunContextWrapper, function_tool, set_tracing_disabled

from examples.workers import outside
from examples.workers.scripted_openai import model  # or model = "gpt-5"
from keelbolt.openai_agents import openai_agent_worker
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext


@function_tool
async def order(run: RunContextWrapper[TaskContext], item: str) -> str:
    """Order an item."""
    return await outside.order(item, run.context.idempotency_key(item))


agent = Agent(name="Shop", instructions="Order what the user wants.", tools=[order], model=model)

# The service takes an order with the same key once, so that an order in doubt may be placed again.
shop = openai_agent_worker(agent, tool_in_doubt="retry")

if __name__ == "__main__":
    set_tracing_disabled(disabled=True)
    card = AgentCardConfig(name="Shop", description="Orders things", capabilities=CapabilitiesConfig(streaming=True))
    A2AServer(worker=shop, agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
