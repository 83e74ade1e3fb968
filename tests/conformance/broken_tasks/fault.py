"""What a seeded fault is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from keelbolt.conformance.task_storage import StoragePlace, TaskStorageSubject
from keelbolt.tasks.storage import Storage

S = TypeVar("S", bound=type[Storage[Any]])


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    caught_by: str
    kind: type[Storage[Any]]

    @property
    def subject(self) -> TaskStorageSubject:
        def make(place: StoragePlace) -> Storage[Any]:
            return self.kind(place) if hasattr(self.kind, "takes_a_place") else self.kind()  # type: ignore[call-arg]

        return TaskStorageSubject(self.name, make, self.kind, persistent=hasattr(self.kind, "takes_a_place"))


FAULTS: list[Fault] = []


def caught_by(*laws: str) -> Callable[[S], S]:
    """Seed this fault; its class name says what is broken."""

    def seed(kind: S) -> S:
        FAULTS.extend(Fault(kind.__name__, law, kind) for law in laws)
        return kind

    return seed
