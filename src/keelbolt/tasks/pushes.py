"""The engine's part of webhooks: the push configs of a task, and the work items that deliver its log to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from keelbolt.kernel import Enqueue, Operation, Put, Scope
from keelbolt.tasks.families import PUSH_CONFIGS, WEBHOOKS, lane_of
from keelbolt.tasks.notes import WIRE_KINDS, Note
from keelbolt.tasks.record import TaskRecord

ATTEMPTS = 1_000_000  # deliveries are given up by age, not by attempts


@dataclass(frozen=True, slots=True)
class NewPush:
    """A push config that is created together with its task."""

    config_id: str
    body: Callable[[str], bytes]  # argument: the storage key, to which encrypted credentials are bound
    secret: str = field(default="", repr=False)  # signs its deliveries

    def put(self, task_id: str) -> Put:
        key = push_key(task_id, self.config_id)
        return Put(PUSH_CONFIGS, key, self.body(key), {"task": task_id})


def push_key(task_id: str, config_id: str) -> str:
    """Return the key of a config, and of the work item that delivers to it."""
    return f"{task_id}/{config_id}"


def push_ids(key: str) -> tuple[str, str]:
    """Return the ids of task and config in this key."""
    task_id, _, config_id = key.rpartition("/")
    return task_id, config_id


def nudges(scope: Scope, record: TaskRecord, notes: Iterable[Note]) -> list[Operation]:
    """Return the operations that trigger delivery of these notes; none if the task has no push configs."""
    if not record.push or not any(note.kind in WIRE_KINDS for note in notes):
        return []
    return [nudge(scope, record.task_id, config_id) for config_id in record.push]


def nudge(scope: Scope, task_id: str, config_id: str) -> Enqueue:
    """Return the operation that makes a process check for undelivered events."""
    return Enqueue(WEBHOOKS, push_key(task_id, config_id), lane=lane_of(scope), max_attempts=ATTEMPTS)
