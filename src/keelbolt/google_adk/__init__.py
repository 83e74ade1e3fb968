"""Google ADK on our storage: sessions, artifacts and memories.

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

from importlib.util import find_spec

from keelbolt.errors import MissingExtra

try:
    _found = find_spec("google.adk") is not None
except ModuleNotFoundError:  # there is no package ``google``
    _found = False
if not _found:
    raise MissingExtra("google-adk", "google-adk")

from keelbolt.google_adk.artifacts import KeelboltArtifactService
from keelbolt.google_adk.memory import KeelboltMemoryService
from keelbolt.google_adk.registry import register
from keelbolt.google_adk.sessions import KeelboltSessionService

__all__ = ["KeelboltArtifactService", "KeelboltMemoryService", "KeelboltSessionService", "register"]
