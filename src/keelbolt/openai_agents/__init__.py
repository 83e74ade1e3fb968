"""Sessions of the OpenAI Agents SDK on Keelbolt's storage.

    session = KeelboltSession("user-123", "sqlite:///agent.db")
    result = await Runner.run(agent, "Hello", session=session)

Needs the extra ``openai-agents``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keelbolt.lazy import Needs, lazy_names

if TYPE_CHECKING:
    from keelbolt.openai_agents.session import KeelboltSession
    from keelbolt.openai_agents.worker import openai_agent_worker

__all__ = ["KeelboltSession", "openai_agent_worker"]

_HOMES = {
    "KeelboltSession": "keelbolt.openai_agents.session",
    "openai_agent_worker": "keelbolt.openai_agents.worker",
}

__getattr__ = lazy_names(
    __name__, _HOMES, Needs("agents", "openai-agents", "openai-agents")
)  # ``families`` needs no SDK
