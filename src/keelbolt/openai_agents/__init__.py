"""Sessions of the OpenAI Agents SDK on our storage.

    session = KeelboltSession("user-123", "sqlite:///agent.db")
    result = await Runner.run(agent, "Hello", session=session)

Needs the extra ``openai-agents``.
"""

from __future__ import annotations

from importlib.util import find_spec

from keelbolt.errors import MissingExtra

if find_spec("agents") is None:
    raise MissingExtra("openai-agents", "openai-agents")

from keelbolt.openai_agents.session import KeelboltSession

__all__ = ["KeelboltSession"]
