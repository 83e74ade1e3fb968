"""Whose a task is. The SDK asks for events and webhooks by the task's id alone, so that a directory knows its owner."""

from __future__ import annotations

from collections.abc import Callable

from a2a.server.context import ServerCallContext

from keelbolt.a2a_sdk.families import DIRECTORY, PARTITION
from keelbolt.auth import Principal
from keelbolt.errors import CommitRefused
from keelbolt.storage import Delete, Insert, Kernel

Whose = Callable[[ServerCallContext], str]


def whose(context: ServerCallContext) -> str:
    """The partition of the caller: of its user name, and of the tenant that it asks for, which nobody vouches for."""
    return Principal(owner=context.user.user_name, asked_tenant=context.tenant).partition


class Directory:
    """Task id → partition."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def put(self, task_id: str, partition: str) -> bool:
        """Note whose a new task is; False: it is another's."""
        try:
            await self._kernel.commit(PARTITION, Insert(DIRECTORY, task_id, partition.encode(), {"whose": partition}))
        except CommitRefused:
            return await self.find(task_id) == partition
        return True

    async def find(self, task_id: str) -> str | None:
        found = await self._kernel.get(PARTITION, DIRECTORY, task_id)
        return found.body.decode() if found is not None else None

    async def remove(self, task_id: str, partition: str) -> None:
        """Forget whose a task was, if it was theirs."""
        if await self.find(task_id) == partition:
            await self._kernel.commit(PARTITION, Delete(DIRECTORY, task_id))
