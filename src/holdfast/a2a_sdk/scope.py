"""Whose a task is. The SDK asks for events and webhooks by the task's id alone, so that a directory knows its owner."""

from __future__ import annotations

from collections.abc import Callable

from a2a.server.context import ServerCallContext

from holdfast.auth import Principal
from holdfast.storage import Collection, Delete, Kernel, Put

DIRECTORY = "sdk_directory"
PARTITION = "~a2a-sdk"

Whose = Callable[[ServerCallContext], str]

FAMILY = Collection(DIRECTORY)


def whose(context: ServerCallContext) -> str:
    """The partition of the caller: of its tenant and its user name."""
    return Principal(owner=context.user.user_name, tenant=context.tenant).partition


class Directory:
    """Task id → partition."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def put(self, task_id: str, partition: str) -> None:
        await self._kernel.commit(PARTITION, Put(DIRECTORY, task_id, partition.encode()))

    async def find(self, task_id: str) -> str | None:
        found = await self._kernel.get(PARTITION, DIRECTORY, task_id)
        return found.body.decode() if found is not None else None

    async def remove(self, task_id: str) -> None:
        await self._kernel.commit(PARTITION, Delete(DIRECTORY, task_id))
