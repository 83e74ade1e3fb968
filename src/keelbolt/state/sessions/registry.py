"""The tasks of a session as this process knows them, and who spawned whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from keelbolt.state.types.tasks import TaskState, TaskStatus, TaskType, utc_now

FINAL = frozenset({TaskStatus.COMPLETE, TaskStatus.FAILED, TaskStatus.CANCELLED})


def is_over(task: TaskState) -> bool:
    """Whether nothing leads out of the task's status."""
    return task.status in FINAL


class TaskRegistry:
    """Tasks in the order of their creation. A task that is over stays as it ended."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskState] = {}
        self._children: dict[str, list[str]] = {}
        self._parent: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: TaskState) -> TaskState:
        """Take a task in, or put a newer state of it in its place."""
        known = task.task_id in self._tasks
        self._tasks[task.task_id] = task
        parent = task.context_snapshot.spawned_from_task_id
        if not known and parent and parent != task.task_id:
            self._parent[task.task_id] = parent
            self._children.setdefault(parent, []).append(task.task_id)
        return task

    def seed(self, tasks: Iterable[TaskState]) -> None:
        """Take in what was stored; what runs here already is newer and stays."""
        for task in tasks:
            if task.task_id not in self._tasks:
                self.add(task)

    def get(self, task_id: str) -> TaskState | None:
        """The task, or None."""
        return self._tasks.get(task_id)

    def tasks(self, *, status: TaskStatus | None = None) -> list[TaskState]:
        """All tasks, or those of a status."""
        return [task for task in self._tasks.values() if status is None or task.status == status]

    def active(self, task_type: TaskType | None = None) -> Iterator[TaskState]:
        """The tasks that are not over."""
        for task in self._tasks.values():
            if not is_over(task) and (task_type is None or task.task_type == task_type):
                yield task

    def remove(self, task_id: str) -> None:
        """Forget a task. Its children keep their place in the tree."""
        if self._tasks.pop(task_id, None) is not None and (parent := self._parent.pop(task_id, None)):
            self._children[parent].remove(task_id)

    def parent(self, task_id: str) -> str | None:
        """Who spawned it."""
        return self._parent.get(task_id)

    def children(self, task_id: str) -> tuple[str, ...]:
        """Whom it spawned, in order."""
        return tuple(self._children.get(task_id, ()))

    def to_cancel(self, task_id: str) -> list[TaskState]:
        """Whom a cancel of this task reaches: its children and theirs, but nobody behind an isolated or ended one."""
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
        """Change a task; None when there is none, or when it is over already and another status is asked for."""
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
