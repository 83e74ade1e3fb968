"""A LangGraph graph with an interrupt: it asks for approval before it orders."""

from __future__ import annotations

import sys
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from examples.workers import outside
from keelbolt.langgraph import GraphContext, KeelboltSaver, langgraph_worker
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer


class Order(TypedDict):
    item: str
    approved: bool
    receipt: str


async def approve(order: Order) -> dict[str, Any]:
    return {"approved": interrupt(f"Order {order['item']}?") == "yes"}


async def place(order: Order, runtime: Runtime[GraphContext]) -> dict[str, Any]:
    key = runtime.context["task"].idempotency_key("order")
    return {"receipt": await outside.order(order["item"], key)}


builder: Any = StateGraph(Order, context_schema=GraphContext)
builder.add_node("approve", approve)
builder.add_node("place", place)
builder.add_edge(START, "approve")
builder.add_conditional_edges("approve", lambda order: "place" if order["approved"] else "__end__")


if __name__ == "__main__":
    storage, port = sys.argv[1], int(sys.argv[2])
    clerk = langgraph_worker(
        builder.compile(checkpointer=KeelboltSaver(storage)),
        given=lambda ctx: {"item": ctx.user_text},
        result=lambda order: order.get("receipt", "nothing was ordered"),
    )
    card = AgentCardConfig(
        name="Clerk", description="Orders what you approve", capabilities=CapabilitiesConfig(streaming=True)
    )
    A2AServer(worker=clerk, agent_card=card, storage=storage).run(port=port)
