"""A law about a storage of tasks: one sentence, and a function that fails on a storage which does not obey it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keelbolt.conformance import suite
from keelbolt.conformance.suite import Suite, new_place
from keelbolt.errors import InvalidValue
from keelbolt.tasks.storage import Storage
from keelbolt.tasks.storage.contract import overrides

AnyStorage = Storage[Any]


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """One set of data: a name that no other place has, and an empty directory for whoever keeps files."""

    subject: TaskStorageSubject
    name: str
    directory: Path

    def storage(self) -> AnyStorage:
        """A storage on the data of this place that was not entered yet."""
        return self.subject.make(self)


@dataclass(frozen=True, slots=True)
class TaskStorageSubject:
    """A storage to be checked. ``make`` answers one that was not entered; at a place that is new it must be empty.

    ``kind`` is its class: the laws of an optional method apply where the class overrides it. ``persistent``: one that
    is made anew at the same place finds the tasks of the one before. ``discard`` removes what a place left outside of
    its directory.
    """

    name: str
    make: Callable[[StoragePlace], AnyStorage]
    kind: type[AnyStorage]
    persistent: bool = False
    discard: Callable[[StoragePlace], Awaitable[None]] | None = None

    def can(self, needs: str) -> bool:
        """Whether laws with these needs apply."""
        if needs == "base":
            return True
        if needs == "persistent":
            return self.persistent
        return overrides(self.kind, needs) if hasattr(Storage, needs) else hasattr(self.kind, needs)

    def lacks(self, needs: str) -> str:
        """Why they do not apply."""
        why = "is not declared persistent" if needs == "persistent" else f"has no {needs} of its own"
        return f"{self.name} {why}"

    def place(self) -> AbstractAsyncContextManager[StoragePlace]:
        """A new, empty place, removed afterwards."""
        return new_place(lambda name, directory: StoragePlace(self, name, directory), self.discard)


# A law needs ``base``, ``persistent``, or the optional method without which it does not apply.
TaskLaw = suite.Law[StoragePlace]
TASKS: Suite[StoragePlace] = Suite("Laws of task storages")

StorageLaw = Callable[[AnyStorage], Awaitable[None]]
PlaceLaw = Callable[[StoragePlace], Awaitable[None]]


def law(function: StorageLaw) -> StorageLaw:
    """A law that every storage must obey; it is given an empty one."""
    return law_of("base")(function)


def law_of(needs: str) -> Callable[[StorageLaw], StorageLaw]:
    """A law about an optional method."""

    def register(function: StorageLaw) -> StorageLaw:
        async def run(place: StoragePlace) -> None:
            async with place.storage() as storage:
                await function(storage)

        TASKS.register(function, needs, run)
        return function

    return register


def persistent_law(function: PlaceLaw) -> PlaceLaw:
    """A law about what is left when the storage is made anew."""
    TASKS.register(function, "persistent", function)
    return function


def task_subject_of(
    given: TaskStorageSubject | Callable[[], TaskStorageSubject | AnyStorage], *, name: str | None = None
) -> TaskStorageSubject:
    """The subject that is meant: one as it is, or a factory of one, or a factory (or class) of storages."""
    if isinstance(given, TaskStorageSubject):
        return given
    if not callable(given):
        raise InvalidValue(f"{given!r} is neither a TaskStorageSubject nor a factory")
    called = name if name is not None else str(getattr(given, "__name__", type(given).__name__))
    made = given()
    if isinstance(made, TaskStorageSubject):
        return made
    if not isinstance(made, Storage):
        raise InvalidValue(f"{called} returned {type(made).__name__}; it must return a TaskStorageSubject or a Storage")

    def make(_place: StoragePlace) -> AnyStorage:
        storage = given()
        assert isinstance(storage, Storage)
        return storage

    return TaskStorageSubject(called, make, type(made))
