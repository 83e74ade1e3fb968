"""Registers Keelbolt's services with ADK's command line, by URL scheme."""

from __future__ import annotations

from typing import Any

from google.adk.cli.service_registry import ServiceRegistry, get_service_registry

from keelbolt.google_adk.artifacts import KeelboltArtifactService
from keelbolt.google_adk.memory import KeelboltMemoryService
from keelbolt.google_adk.sessions import KeelboltSessionService

PREFIX = "keelbolt+"
ENGINES = ("memory", "sqlite", "postgresql", "postgres", "redis", "rediss", "valkey", "valkeys")


def register(*, tenant: str = "default", registry: ServiceRegistry | None = None) -> None:
    """Let ADK open session, artifact, memory and A2A task stores by URLs such as ``keelbolt+sqlite:///agent.db``.

    Call it in ``services.py`` of the directory that is given to ``adk web`` or ``adk api_server``.
    """
    registry = registry if registry is not None else get_service_registry()

    def sessions(uri: str, **_options: Any) -> KeelboltSessionService:
        return KeelboltSessionService(_url(uri), tenant=tenant)

    def artifacts(uri: str, **_options: Any) -> KeelboltArtifactService:
        return KeelboltArtifactService(_url(uri), tenant=tenant)

    def memories(uri: str, **_options: Any) -> KeelboltMemoryService:
        return KeelboltMemoryService(_url(uri), tenant=tenant)

    def tasks(uri: str, **_options: Any) -> Any:
        from keelbolt.google_adk.tasks import LazyTaskStore  # noqa: PLC0415  (needs a2a-sdk, which ADK does not)

        return LazyTaskStore(_url(uri))

    for engine in ENGINES:
        scheme = PREFIX + engine
        registry.register_session_service(scheme, sessions)
        registry.register_artifact_service(scheme, artifacts)
        registry.register_memory_service(scheme, memories)
        registry._register_task_store_service(scheme, tasks)  # noqa: SLF001  (the one way to do it)


def _url(uri: str) -> str:
    return uri.removeprefix(PREFIX)
