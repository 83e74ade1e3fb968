"""Dead letters: tasks that were given up after their last attempt. They are failed; operators drop or requeue them."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_core import from_json

from keelbolt.auth.principal import Principal
from keelbolt.errors import UnsupportedOperationError
from keelbolt.kernel import Remove, Scope, WorkItem
from keelbolt.protocol.types import Message, Role, TaskState
from keelbolt.tasks.families import QUEUE
from keelbolt.tasks.record import TaskRecord
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks

REQUEUED = (TaskState.failed, TaskState.rejected, TaskState.canceled)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A work item that was given up, and its task (None: the task was erased)."""

    scope: Scope
    task_id: str
    attempts: int
    reason: str
    record: TaskRecord | None

    @property
    def principal(self) -> Principal | None:
        """The owner of the task; None if unknown."""
        return owner_of(self.scope, self.record) if self.record is not None else None


def owner_of(scope: Scope, record: TaskRecord) -> Principal | None:
    """Return the principal that sent the task's message, if the scope belongs to it."""
    who = Principal.from_json(record.turn.principal)
    return who if who.partition == scope.partition else None


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Some dead letters, and the cursor of the next page (None: this is the last page)."""

    letters: tuple[DeadLetter, ...]
    cursor: str | None


async def dead_letters(store: StoredTasks, scope: Scope, *, limit: int = 50, cursor: str | None = None) -> DeadPage:
    """Return the dead letters of a scope, by task id."""
    page = await scope.list_work(QUEUE, state="dead", limit=limit, cursor=cursor)
    return DeadPage(tuple([await _letter(store, scope, item) for item in page.items]), page.cursor)


async def _letter(store: StoredTasks, scope: Scope, item: WorkItem) -> DeadLetter:
    record = await store.record(scope, item.key)
    attempts = min(item.attempt, item.max_attempts)  # the last claim was only made to end the task
    return DeadLetter(scope, item.key, attempts, item.reason or "", record)


async def drop(scope: Scope, task_id: str) -> bool:
    """Remove the dead letter; its task stays failed. Return False if there is none."""
    item = await scope.work(QUEUE, task_id)
    if item is None or item.state != "dead":
        return False
    await scope.commit(Remove(QUEUE, task_id))
    return True


async def second_try(store: StoredTasks, task: StoredTask) -> Message:
    """Return the message that requeues a task that ended without an answer.

    It is the user's last message, in the same context, with a reference to the task. Its id is derived from the task's
    id, so that it is sent once. Raises UnsupportedOperationError if the task can't be requeued.
    """
    if task.view.state not in REQUEUED:
        raise UnsupportedOperationError(
            f"the task is {task.view.state.name}; only failed, rejected and canceled tasks can be requeued"
        )
    task_id = task.record.task_id
    for stretch in reversed(await store.values(task, task.view.history)):
        for body in reversed(from_json(b"[%b]" % stretch)):
            if body["role"] == Role.user:
                message = Message.model_validate(body)
                known = [other for other in message.reference_task_ids or [] if other != task_id]
                return message.model_copy(
                    update={
                        "message_id": f"requeue-{task_id}",
                        "task_id": None,
                        "context_id": task.record.context_id,
                        "reference_task_ids": [*known, task_id],
                    }
                )
    raise UnsupportedOperationError("the task has no user message to send again")
