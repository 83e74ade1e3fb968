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
from keelbolt.openai_agents.worker import openai_agent_worker

__all__ = ["KeelboltSession", "openai_agent_worker"]
