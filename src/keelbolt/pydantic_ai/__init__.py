"""A pydantic-ai agent as the worker of an agent server.

    agent = Agent("openai:gpt-5", name="shop", capabilities=[KeelboltDurability()])
    server = A2AServer(worker=pydantic_ai_worker(agent), agent_card=card, storage="sqlite:///agent.db")

Needs the extra ``pydantic-ai``.
"""

from __future__ import annotations

from importlib.util import find_spec

from keelbolt.errors import MissingExtra

if find_spec("pydantic_ai") is None:
    raise MissingExtra("pydantic-ai", "pydantic-ai-slim")

from keelbolt.pydantic_ai.worker import KeelboltDurability, pydantic_ai_worker

__all__ = ["KeelboltDurability", "pydantic_ai_worker"]
