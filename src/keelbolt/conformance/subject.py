"""What is checked: a subject is an engine, a place is one set of data that the engine keeps."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from keelbolt.conformance.families import FAMILIES
from keelbolt.conformance.suite import new_place
from keelbolt.errors import InvalidValue
from keelbolt.kernel.contract import Durability, Kernel
from keelbolt.kernel.records import Collection

Capability = Literal["base", "persistent", "shared", "prompt", "small"]


class Make(Protocol):
    """Makes an unopened kernel on the data of this place; a place that was never used is empty."""

    def __call__(self, place: DataPlace, declare: Sequence[Collection], /) -> Kernel: ...


@dataclass(frozen=True, slots=True)
class KernelSubject:
    """An engine to be checked.

    ``persistent``: a kernel made anew at the same place finds the data of the one before. ``shared``: kernels of
    several processes work at one place at the same time; then ``make`` must be importable by a new process (a function
    of a module, or an object that can be pickled). ``prompt``: it is shared, and the leases of a process end when that
    process dies. ``discard`` removes what a place left outside of its directory. ``small`` makes a kernel as ``make``
    does, on a place that is full after 1 to 64 MB.
    """

    name: str
    make: Make
    persistent: bool = False
    shared: bool = False
    prompt: bool = False
    discard: Callable[[DataPlace], Awaitable[None]] | None = None
    small: Make | None = None

    def can(self, capability: Capability) -> bool:
        return capability == "base" or bool(getattr(self, capability))

    def lacks(self, capability: str) -> str:
        return f"{self.name} is not declared {capability}"

    def place(self) -> AbstractAsyncContextManager[DataPlace]:
        """A new, empty place, removed afterwards."""
        return new_place(lambda name, directory: DataPlace(self, name, directory), self.discard)


@dataclass(frozen=True, slots=True)
class DataPlace:
    """One set of data: a name that no other place has, and an empty directory for whoever keeps files."""

    subject: KernelSubject
    name: str
    directory: Path

    def kernel(self, declare: Sequence[Collection] = FAMILIES, *, small: bool = False) -> Kernel:
        """An unopened kernel on the data of this place."""
        make = self.subject.make if not small else self.subject.small
        assert make is not None
        return make(self, tuple(declare))

    @asynccontextmanager
    async def open(self, declare: Sequence[Collection] = FAMILIES, *, small: bool = False) -> AsyncIterator[Kernel]:
        """An open kernel on the data of this place."""
        async with self.kernel(declare, small=small) as kernel:
            # A factory that can't be told what to declare is told here; told twice, it changes nothing.
            await kernel.declare(*declare)
            yield kernel


# ------------------------------------------------------------------------------------------------ ways to make one


@dataclass(frozen=True, slots=True)
class ByUrl:
    """Makes kernels with `open_storage`; ``{directory}`` and ``{name}`` in the URL are those of the place."""

    template: str
    durability: Durability = "durable"

    def __call__(self, place: DataPlace, declare: Sequence[Collection], /) -> Kernel:
        from keelbolt.kernel.urls import open_storage  # noqa: PLC0415  (an engine is loaded when it is opened)

        url = self.template.format(directory=place.directory, name=place.name)
        return open_storage(url, durability=self.durability, declare=declare)


@dataclass(frozen=True, slots=True)
class ByFactory:
    """Makes kernels with a function that takes nothing, or only ``declare``, and answers an empty kernel each time."""

    factory: Callable[..., Kernel]

    def __call__(self, _place: DataPlace, declare: Sequence[Collection], /) -> Kernel:
        if "declare" in inspect.signature(self.factory).parameters:
            return self.factory(declare=declare)
        return self.factory()


def subject_of(
    given: KernelSubject | Callable[..., KernelSubject | Kernel], *, name: str | None = None
) -> KernelSubject:
    """The subject that is meant: a Subject as it is, or a factory of one, or a factory of unopened kernels."""
    if isinstance(given, KernelSubject):
        return given
    if not callable(given):
        raise InvalidValue(f"{given!r} is neither a Subject nor a factory")
    name = name or getattr(given, "__name__", type(given).__name__)
    made = given(declare=FAMILIES) if "declare" in inspect.signature(given).parameters else given()
    if isinstance(made, KernelSubject):
        return made
    if not isinstance(made, Kernel):
        raise InvalidValue(f"{name} returned {type(made).__name__}; it must return a Subject or an unopened Kernel")
    return KernelSubject(name, ByFactory(given))  # type: ignore[arg-type]


def load(reference: str) -> KernelSubject:
    """The subject that ``module:attribute`` names."""
    given = named(reference)
    if not isinstance(given, KernelSubject) and not callable(given):
        raise InvalidValue(f"{reference!r} is a {type(given).__name__}; it must be a Subject or a factory")
    return subject_of(given, name=reference)


def named(reference: str) -> Any:
    """Whatever ``module:attribute`` names."""
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute):
        raise InvalidValue(f"{reference!r} names no factory; write it as module:attribute")
    try:
        given: object = importlib.import_module(module)
        for part in attribute.split("."):
            given = getattr(given, part)
    except (ImportError, AttributeError) as error:
        raise InvalidValue(f"{reference!r} can't be loaded: {error}") from error
    return given
