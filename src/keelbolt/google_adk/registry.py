"""Registers Keelbolt's services with ADK's command line, by URL scheme."""

from __future__ import annotations

from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.tasks.task_store import TaskStore as PlainTaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task
from google.adk.cli.service_registry import ServiceRegistry, get_service_registry

from keelbolt.a2a_sdk.families import FAMILIES as SDK_FAMILIES
from keelbolt.a2a_sdk.tasks import KeelboltPlainTaskStore, KeelboltTaskStore, ScopeResolver, owner_partition
from keelbolt.google_adk.artifacts import KeelboltArtifactService
from keelbolt.google_adk.memory import KeelboltMemoryService
from keelbolt.google_adk.sessions import KeelboltSessionService
from keelbolt.kernel import Kernel
from keelbolt.kernel.connection import KernelConnection
from keelbolt.tasks import stored_tasks
from keelbolt.tasks.families import FAMILIES

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

        return LazyTaskStore(_url(uri))

    for engine in ENGINES:
        scheme = PREFIX + engine
        registry.register_session_service(scheme, sessions)
        registry.register_artifact_service(scheme, artifacts)
        registry.register_memory_service(scheme, memories)
        registry._register_task_store_service(scheme, tasks)  # noqa: SLF001  (the one way to do it)


def _url(uri: str) -> str:
    return uri.removeprefix(PREFIX)


# ---------------------------------------------------------------------------------------------------------------- tasks


class LazyTaskStore(PlainTaskStore):
    """Stores A2A tasks at this URL."""

    def __init__(self, url: str) -> None:
        self._connection = KernelConnection(url, [*FAMILIES, *SDK_FAMILIES])

    async def save(self, task: Task, context: ServerCallContext) -> None:
        await self._connection.call(lambda kernel: _on(kernel).save(task, context))

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        return await self._connection.call(lambda kernel: _on(kernel).get(task_id, context))

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        return await self._connection.call(lambda kernel: _on(kernel).list(params, context))

    async def close(self) -> None:
        await self._connection.aclose()

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        await self._connection.call(lambda kernel: _on(kernel).delete(task_id, context))


def _on(kernel: Kernel) -> KeelboltPlainTaskStore:
    return KeelboltPlainTaskStore(
        KeelboltTaskStore(stored_tasks.StoredTasks(kernel), ScopeResolver(kernel, owner_partition))
    )
