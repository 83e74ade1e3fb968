"""The storage of tasks that the suite checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from keelbolt.conformance.subject import ConformancePlace, ConformanceSubject
from keelbolt.conformance.suite import Suite
from keelbolt.errors import InvalidValue
from keelbolt.tasks.storage import Storage
from keelbolt.tasks.storage.contract import overrides

AnyStorage = Storage[Any]


@dataclass(frozen=True, slots=True)
class TaskStoragePlace(ConformancePlace["TaskStorageSubject"]):
    """One set of tasks."""

    def open(self) -> AbstractAsyncContextManager[AnyStorage]:
        """A storage on the data of this place."""
        return self.subject.make(self)


@dataclass(frozen=True, slots=True)
class TaskStorageSubject(ConformanceSubject[TaskStoragePlace]):
    """A storage to check; ``make(place)`` returns one that is not entered.

    ``kind`` is its class: the laws of an optional method apply if the class overrides the method.
    """

    make: Callable[[TaskStoragePlace], AnyStorage]
    kind: type[AnyStorage]

    place_class: ClassVar[type[TaskStoragePlace]] = TaskStoragePlace

    def has(self, needs: str) -> bool:
        return overrides(self.kind, needs) if hasattr(Storage, needs) else hasattr(self.kind, needs)

    def describe(self, needs: str) -> str:
        return f"{needs} of its own"

    @classmethod
    def from_factory(cls, factory: Callable[..., Any], name: str) -> Self:
        """The subject that the factory returns, or a subject whose storages it returns."""
        made = factory()
        if isinstance(made, cls):
            return made
        if not isinstance(made, Storage):
            raise InvalidValue(
                f"{name} returned {type(made).__name__}; it must return a TaskStorageSubject or a Storage"
            )
        return cls(name, lambda _place: factory(), type(made))


SUITE: Suite[TaskStoragePlace, AnyStorage] = Suite(
    "Laws of task storages", TaskStorageSubject, "keelbolt.conformance.task_storage.laws"
)
law, place_law = SUITE.law, SUITE.place_law
