"""Whose a task is. The SDK asks for events and webhooks by the task's id alone, so that a directory knows its owner."""

from __future__ import annotations

from collections.abc import Callable

from a2a.server.context import ServerCallContext

from keelbolt.a2a_sdk.families import DIRECTORY, PARTITION
from keelbolt.auth import Principal
from keelbolt.errors import CommitRefused
from keelbolt.storage import Delete, Insert, Kernel, Scope

Whose = Callable[[ServerCallContext], str]


def whose(context: ServerCallContext) -> str:
    """The partition of the caller: of its user name, and of the tenant that it asks for, which nobody vouches for."""
    return Principal(owner=context.user.user_name, asked_tenant=context.tenant).partition


class Directory:
    """Which scope a call means, and in which scope each task lies."""

    def __init__(self, kernel: Kernel, whose: Whose) -> None:
        self._kernel = kernel
        self._whose = whose
        self._tasks = kernel.scoped(PARTITION)

    def scope(self, context: ServerCallContext) -> Scope:
        """The scope of the caller."""
        return self._kernel.scoped(self._whose(context))

    async def put(self, task_id: str, scope: Scope) -> bool:
        """Note whose a new task is; False: it is another's."""
        try:
            whose = {"whose": scope.partition}
            await self._tasks.commit(Insert(DIRECTORY, task_id, scope.partition.encode(), whose))
        except CommitRefused:
            return await self.find(task_id) == scope
        return True

    async def find(self, task_id: str) -> Scope | None:
        found = await self._tasks.get(DIRECTORY, task_id)
        return self._kernel.scoped(found.body.decode()) if found is not None else None

    async def remove(self, task_id: str, scope: Scope) -> None:
        """Forget whose a task was, if it was theirs."""
        if await self.find(task_id) == scope:
            await self._tasks.commit(Delete(DIRECTORY, task_id))
