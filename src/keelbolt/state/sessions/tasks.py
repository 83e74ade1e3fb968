"""The tasks of a session that this process knows, with their parents and children, and the limits of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from keelbolt.state.events.steering import MAX_STEERING_PAYLOAD_BYTES
from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType, utc_now

LEASE_SECONDS = 15.0
FINAL = frozenset({TaskStatus.COMPLETE, TaskStatus.FAILED, TaskStatus.CANCELLED})


@dataclass(slots=True)
class SessionLimits:
    """Limits of one session. 0 or None means no limit.

    ``max_tasks_per_session`` and ``max_background_tasks`` count unfinished tasks, ``max_concurrent_tasks`` the tasks
    that run in this process at the same time; the others wait for a turn. A process that does not renew its lease for
    ``lease_seconds`` counts as dead, and its tasks are recovered (the first session of a store sets this value).
    """

    max_tasks_per_session: int = 8
    max_background_tasks: int = 4
    max_concurrent_tasks: int = 3
    max_task_runtime_s: float | None = 900
    steering_queue_size: int = 200
    max_pending_patches: int = 32
    max_steering_payload_bytes: int = MAX_STEERING_PAYLOAD_BYTES
    max_steering_events_per_task: int = 512
    lease_seconds: float = LEASE_SECONDS


def is_over(task: TaskState) -> bool:
    """Return whether the task's status is final."""
    return task.status in FINAL


class TaskRegistry:
    """Tasks in order of creation. A finished task does not change."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskState] = {}
        self._children: dict[str, list[str]] = {}
        self._parent: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: TaskState) -> TaskState:
        """Add a task or replace its state."""
        known = task.task_id in self._tasks
        self._tasks[task.task_id] = task
        parent = task.context_snapshot.spawned_from_task_id
        if not known and parent and parent != task.task_id:
            self._parent[task.task_id] = parent
            self._children.setdefault(parent, []).append(task.task_id)
        return task

    def seed(self, tasks: Iterable[TaskState]) -> None:
        """Add stored tasks; known tasks are newer and stay."""
        for task in tasks:
            if task.task_id not in self._tasks:
                self.add(task)

    def get(self, task_id: str) -> TaskState | None:
        """Return the task, or None."""
        return self._tasks.get(task_id)

    def tasks(self, *, status: TaskStatus | None = None) -> list[TaskState]:
        """Return all tasks, or those with a status."""
        return [task for task in self._tasks.values() if status is None or task.status == status]

    def active(self, task_type: TaskType | None = None) -> Iterator[TaskState]:
        """Yield the unfinished tasks."""
        for task in self._tasks.values():
            if not is_over(task) and (task_type is None or task.task_type == task_type):
                yield task

    def remove(self, task_id: str) -> None:
        """Remove a task. Its children keep their place in the tree."""
        if self._tasks.pop(task_id, None) is not None and (parent := self._parent.pop(task_id, None)):
            self._children[parent].remove(task_id)

    def parent(self, task_id: str) -> str | None:
        """Return the id of the task that spawned it."""
        return self._parent.get(task_id)

    def children(self, task_id: str) -> tuple[str, ...]:
        """Return the ids of the tasks that it spawned, in order."""
        return tuple(self._children.get(task_id, ()))

    def to_cancel(self, task_id: str) -> list[TaskState]:
        """Return the descendants that a cancel reaches. It stops at isolated and finished tasks."""
        reached: list[TaskState] = []
        seen, waiting = {task_id}, [task_id]
        while waiting:
            for child_id in self.children(waiting.pop()):
                child = self._tasks.get(child_id)
                if child_id in seen or child is None:
                    continue
                seen.add(child_id)
                if child.context_snapshot.propagate_on_cancel == "isolate" or is_over(child):
                    continue
                reached.append(child)
                waiting.append(child_id)
        return reached

    def change(self, task_id: str, *, status: TaskStatus | None = None, **fields: Any) -> TaskState | None:
        """Change a task; return None if it is unknown, or if it is finished and the status differs."""
        task = self._tasks.get(task_id)
        if task is None or (is_over(task) and status != task.status):
            return None
        for name, value in fields.items():
            if value is not None:
                setattr(task, name, value)
        if status is not None:
            task.status = status
        task.updated_at = utc_now()
        return task
