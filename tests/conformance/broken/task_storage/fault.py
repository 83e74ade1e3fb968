"""Subjects of task storages with a seeded fault."""

from __future__ import annotations

from typing import Any

from keelbolt.conformance.task_storage import TaskStoragePlace, TaskStorageSubject
from keelbolt.tasks.storage import Storage
from tests.conformance.broken.fault import Faults


def subject(kind: type[Storage[Any]]) -> TaskStorageSubject:
    persistent = hasattr(kind, "takes_a_place")

    def make(place: TaskStoragePlace) -> Storage[Any]:
        return kind(place) if persistent else kind()  # type: ignore[call-arg]

    return TaskStorageSubject(kind.__name__, make, kind, persistent=persistent)


FAULTS = Faults(subject)
caught_by = FAULTS.caught_by
