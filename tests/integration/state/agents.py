"""penguiflow's own planner with a model that follows a script."""

from __future__ import annotations

import json
from typing import Any

from penguiflow import Headers, Message, NodePolicy, create
from penguiflow.catalog import build_catalog, tool
from penguiflow.node import Node
from penguiflow.planner import ReactPlanner
from penguiflow.registry import ModelRegistry
from pydantic import BaseModel

CONTEXT = {"tenant_id": "t", "user_id": "u", "session_id": "session", "trace_id": "trace"}


class Words(BaseModel):
    text: str


@tool(desc="echo")  # type: ignore[untyped-decorator]
async def echo(args: Words, _ctx: Any) -> Words:
    return args


@tool(desc="ask a person")  # type: ignore[untyped-decorator]
async def ask(args: Words, ctx: Any) -> Words:
    await ctx.pause("await_input", {"question": args.text})
    return args


class Script:
    """A model that calls these tools one after the other, then answers."""

    def __init__(self, *tools: str) -> None:
        self._tools = list(tools)

    async def complete(self, **_request: Any) -> tuple[str, float]:
        step = self.answer()
        if self._tools:
            step = {"thought": "think", "next_node": self._tools.pop(0), "args": {"text": "words"}}
        return json.dumps(step), 0.0

    def answer(self) -> dict[str, Any]:
        """Return the last step of the script."""
        return {"thought": "", "next_node": "final_response", "args": {"raw_answer": "answer"}}


def planner(store: Any, *tools: str, client: Script | None = None, **options: Any) -> ReactPlanner:
    registry = ModelRegistry()
    for name in ("echo", "ask"):
        registry.register(name, Words, Words)
    catalog = build_catalog([Node(echo, name="echo"), Node(ask, name="ask")], registry)
    return ReactPlanner(llm_client=client or Script(*tools), catalog=catalog, state_store=store, **options)


async def shout(store: Any, trace_id: str, text: str) -> str:
    """Return the answer of a new flow of two nodes."""

    async def upper(message: Message, _ctx: Any) -> Message:
        return message.model_copy(update={"payload": str(message.payload).upper()})

    async def twice(message: Message, _ctx: Any) -> Message:
        return message.model_copy(update={"payload": message.payload * 2})

    nodes = [Node(each, name=each.__name__, policy=NodePolicy(validate="none")) for each in (upper, twice)]
    flow = create(nodes[0].to(nodes[1]), nodes[1].to(), state_store=store)
    flow.run()
    await flow.emit(Message(payload=text, headers=Headers(tenant="t"), trace_id=trace_id))
    answer = await flow.fetch()
    await flow.stop()
    return str(answer.payload)
