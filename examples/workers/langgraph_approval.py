"""A LangGraph graph with an interrupt: it asks before it orders."""

from __future__ import annotations

import sys
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from examples.workers import outside
from keelbolt.protocol.card import AgentCardConfig, CapabilitiesConfig
from keelbolt.server import A2AServer
from keelbolt.tasks import TaskContext


class Order(TypedDict):
    item: str
    approved: bool
    receipt: str


def graph(ctx: TaskContext) -> Any:
    async def approve(order: Order) -> dict[str, Any]:
        return {"approved": interrupt(f"Order {order['item']}?") == "yes"}

    async def place(order: Order) -> dict[str, Any]:
        key = ctx.idempotency_key("order")
        return {"receipt": await ctx.step("order", outside.order, order["item"], key, idempotent=True)}

    builder: Any = StateGraph(Order)
    builder.add_node(approve).add_node(place).add_edge(START, "approve")
    builder.add_conditional_edges("approve", lambda order: "place" if order["approved"] else "__end__")
    return builder.compile(checkpointer=InMemorySaver())


async def clerk(ctx: TaskContext) -> None:
    runs, thread = graph(ctx), {"configurable": {"thread_id": ctx.task_id}}
    given: Any = {"item": ctx.user_text}
    while "__interrupt__" in (order := await runs.ainvoke(given, thread)):
        given = Command(resume=(await ctx.ask(order["__interrupt__"][0].value)).text)
    await ctx.complete(order.get("receipt", "nothing was ordered"))


if __name__ == "__main__":
    card = AgentCardConfig(
        name="Clerk", description="Orders what you approve", capabilities=CapabilitiesConfig(streaming=True)
    )
    A2AServer(worker=clerk, agent_card=card, storage=sys.argv[1]).run(port=int(sys.argv[2]))
