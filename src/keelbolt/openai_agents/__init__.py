"""Sessions of the OpenAI Agents SDK on Keelbolt's storage.

    session = KeelboltSession("user-123", "sqlite:///agent.db")
    result = await Runner.run(agent, "Hello", session=session)

Needs the extra ``openai-agents``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keelbolt.errors import MissingExtra

if TYPE_CHECKING:
    from keelbolt.openai_agents.session import KeelboltSession
    from keelbolt.openai_agents.worker import openai_agent_worker

__all__ = ["KeelboltSession", "openai_agent_worker"]

_NAMES = {"KeelboltSession": "session", "openai_agent_worker": "worker"}


def __getattr__(name: str) -> Any:
    """Import a name on first use. The declarations in ``families`` need no SDK."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("agents") is None:
        raise MissingExtra("openai-agents", "openai-agents")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
