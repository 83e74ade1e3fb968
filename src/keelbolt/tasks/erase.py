"""Erases tasks and contexts for their owners. `keelbolt.data.erasing` does the work, from the declared families."""

from __future__ import annotations

from keelbolt.data.erasing import erase_target
from keelbolt.data.families import EVERYTHING, SubjectLocation
from keelbolt.kernel import Scope
from keelbolt.tasks.families import FACE
from keelbolt.tasks.stored_tasks import StoredTasks


async def erase_task(store: StoredTasks, scope: Scope, task_id: str, *, version: int | None = None) -> bool:
    """Erase the task in any state; its worker can't write any more. Return False if there is none.

    With ``version``, erase it only if its record is still at this version. Every change of status changes the version.
    """
    await store.take_in(scope, task_id)
    return bool(await erase_target(FACE, SubjectLocation(scope, "task", task_id), version=version))


async def erase_context(scope: Scope, context_id: str) -> int:
    """Erase every task of the context, and the worker's value for it; return the number of tasks."""
    erased = await erase_target(FACE, SubjectLocation(scope, "context", context_id))
    return erased.records["tasks"]


async def erase_owner(scope: Scope) -> int:
    """Erase every task and context of one owner; return the number of tasks."""
    erased = await erase_target(FACE, SubjectLocation(scope, EVERYTHING))
    return erased.records["tasks"]
