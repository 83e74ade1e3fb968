"""penguiflow's own planner with a model that follows a script."""

from __future__ import annotations

import json
from typing import Any

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
    """Calls these tools one after the other, and then answers."""

    def __init__(self, *tools: str) -> None:
        self._tools = list(tools)

    async def complete(self, **_request: Any) -> tuple[str, float]:
        step: dict[str, Any] = {"thought": "", "next_node": "final_response", "args": {"raw_answer": "answer"}}
        if self._tools:
            step = {"thought": "think", "next_node": self._tools.pop(0), "args": {"text": "words"}}
        return json.dumps(step), 0.0


def planner(store: Any, *tools: str) -> ReactPlanner:
    registry = ModelRegistry()
    for name in ("echo", "ask"):
        registry.register(name, Words, Words)
    catalog = build_catalog([Node(echo, name="echo"), Node(ask, name="ask")], registry)
    return ReactPlanner(llm_client=Script(*tools), catalog=catalog, state_store=store)
