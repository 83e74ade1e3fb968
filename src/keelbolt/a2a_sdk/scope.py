"""Finds the owner of a task."""

from __future__ import annotations

from collections.abc import Callable

from a2a.server.context import ServerCallContext

from keelbolt.a2a_sdk.families import DIRECTORY, PARTITION
from keelbolt.auth import Principal
from keelbolt.errors import CommitRefused
from keelbolt.kernel import Delete, Insert, Kernel, Scope

Whose = Callable[[ServerCallContext], str]


def owner_partition(context: ServerCallContext) -> str:
    """Return the caller's partition: its user name and the tenant that it requests, which is not verified."""
    return Principal(owner=context.user.user_name, asked_tenant=context.tenant).partition


class ScopeResolver:
    """Returns the scope of a call, and by a directory that of a task: the SDK requests events by task id alone."""

    def __init__(self, kernel: Kernel, whose: Whose) -> None:
        self._kernel = kernel
        self._whose = whose
        self._tasks = kernel.scoped(PARTITION)

    def scope(self, context: ServerCallContext) -> Scope:
        """Return the scope of the caller."""
        return self._kernel.scoped(self._whose(context))

    async def put(self, task_id: str, scope: Scope) -> bool:
        """Store the owner of a new task. Return False if the id belongs to another owner."""
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
        """Remove a task's entry if it belongs to this scope."""
        if await self.find(task_id) == scope:
            await self._tasks.commit(Delete(DIRECTORY, task_id))
