"""Google ADK on Keelbolt's storage: sessions, artifacts and memories.

    url = "sqlite:///agent.db"
    runner = Runner(
        app_name="shop", agent=agent,
        session_service=KeelboltSessionService(url),
        artifact_service=KeelboltArtifactService(url),
        memory_service=KeelboltMemoryService(url),
    )

For ``adk web`` and ``adk api_server``, call `register` in ``services.py`` of the agents' directory; then their options
take URLs such as ``keelbolt+sqlite:///agent.db``. Needs the extra ``google-adk``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from keelbolt.errors import MissingExtra

if TYPE_CHECKING:
    from keelbolt.google_adk.artifacts import KeelboltArtifactService
    from keelbolt.google_adk.memory import KeelboltMemoryService
    from keelbolt.google_adk.registry import register
    from keelbolt.google_adk.sessions import KeelboltSessionService

__all__ = ["KeelboltArtifactService", "KeelboltMemoryService", "KeelboltSessionService", "register"]

_NAMES = {
    "KeelboltArtifactService": "artifacts",
    "KeelboltMemoryService": "memory",
    "register": "registry",
    "KeelboltSessionService": "sessions",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use. The declarations in ``families`` need no ADK."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = find_spec("google.adk") is not None
    except ModuleNotFoundError:  # there is no package ``google``
        found = False
    if not found:
        raise MissingExtra("google-adk", "google-adk")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
