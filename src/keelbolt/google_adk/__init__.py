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

from typing import TYPE_CHECKING

from keelbolt.lazy import Needs, lazy_names

if TYPE_CHECKING:
    from keelbolt.google_adk.artifacts import KeelboltArtifactService
    from keelbolt.google_adk.memory import KeelboltMemoryService
    from keelbolt.google_adk.registry import register
    from keelbolt.google_adk.sessions import KeelboltSessionService

__all__ = ["KeelboltArtifactService", "KeelboltMemoryService", "KeelboltSessionService", "register"]

_HOMES = {
    "KeelboltArtifactService": "keelbolt.google_adk.artifacts",
    "KeelboltMemoryService": "keelbolt.google_adk.memory",
    "KeelboltSessionService": "keelbolt.google_adk.sessions",
    "register": "keelbolt.google_adk.registry",
}

__getattr__ = lazy_names(__name__, _HOMES, Needs("google.adk", "google-adk", "google-adk"))  # ``families`` needs no ADK
