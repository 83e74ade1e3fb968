"""A law about a storage of tasks: one sentence, and a function that fails on a storage which does not obey it."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.conformance import law as kernel_laws
from holdfast.conformance.expect import LawBroken
from holdfast.errors import InvalidValue
from holdfast.tasks.storage import Storage
from holdfast.tasks.storage.contract import overrides

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

    @asynccontextmanager
    async def place(self) -> AsyncIterator[StoragePlace]:
        """A new, empty place, removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="holdfast-law-") as directory:
            place = StoragePlace(self, f"law_{uuid.uuid4().hex[:12]}", Path(directory))
            try:
                yield place
            finally:
                if self.discard is not None:
                    await self.discard(place)


@dataclass(frozen=True, slots=True)
class TaskLaw:
    """``needs`` is ``base``, ``persistent``, or the optional method without which the law does not apply."""

    name: str
    group: str
    says: str
    needs: str
    run: Callable[[StoragePlace], Awaitable[None]]

    async def check(self, subject: TaskStorageSubject) -> None:
        """Raise, if the storage does not obey; it is given a new place."""
        seconds = kernel_laws.LAW_SECONDS
        try:
            async with asyncio.timeout(seconds), subject.place() as place:
                await self.run(place)
        except TimeoutError as error:
            message = f"no end within {seconds:g} s"
            raise LawBroken(message) from error


TASK_LAWS: list[TaskLaw] = []

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

        _register(function, needs, run)
        return function

    return register


def persistent_law(function: PlaceLaw) -> PlaceLaw:
    """A law about what is left when the storage is made anew."""
    _register(function, "persistent", function)
    return function


def _register(function: StorageLaw | PlaceLaw, needs: str, run: PlaceLaw) -> None:
    says = " ".join((function.__doc__ or "").split())
    name = getattr(function, "__name__", "")
    assert says, f"the law {name} has no sentence"
    assert all(known.name != name for known in TASK_LAWS), f"two laws are named {name}"
    TASK_LAWS.append(TaskLaw(name, function.__module__.rpartition(".")[2], says, needs, run))


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
