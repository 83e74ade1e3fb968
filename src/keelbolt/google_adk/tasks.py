"""The task store of ADK's A2A agents: the store of `keelbolt.a2a_sdk`, opened at its first call."""

from __future__ import annotations

from a2a.server.context import ServerCallContext
from a2a.server.tasks.task_store import TaskStore as PlainTaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task

from keelbolt.a2a_sdk.families import FAMILIES as SDK_FAMILIES
from keelbolt.a2a_sdk.scope import ScopeResolver, whose
from keelbolt.a2a_sdk.tasks import KeelboltPlainTaskStore, KeelboltTaskStore
from keelbolt.kernel import Kernel
from keelbolt.kernel.connection import KernelConnection
from keelbolt.tasks import stored_tasks
from keelbolt.tasks.families import FAMILIES


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
    return KeelboltPlainTaskStore(KeelboltTaskStore(stored_tasks.StoredTasks(kernel), ScopeResolver(kernel, whose)))
