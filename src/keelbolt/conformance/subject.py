"""The implementation that a suite checks (a subject), and one set of its data (a place)."""

from __future__ import annotations

import importlib
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from keelbolt.errors import InvalidValue

S = TypeVar("S")
P = TypeVar("P", bound="ConformancePlace[Any]")


@dataclass(frozen=True, slots=True)
class ConformancePlace(ABC, Generic[S]):
    """One set of data. ``name`` is unique; ``directory`` is empty at first, for subjects that write files."""

    subject: S
    name: str
    directory: Path

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[Any]:
        """Open the implementation on the data of this place; it is closed at the end of the block."""


@dataclass(frozen=True, slots=True)
class ConformanceSubject(ABC, Generic[P]):
    """An implementation to check. ``make`` returns one for a place; at a new place it is empty.

    ``persistent``: a second one at the same place finds the data of the first. ``discard`` is awaited at the end of
    each law and removes the data that the place has outside of its directory.
    """

    name: str
    make: Callable[..., Any]
    _: KW_ONLY
    persistent: bool = False
    discard: Callable[[Any], Awaitable[None]] | None = None

    place_class: ClassVar[Any]
    declared: ClassVar[tuple[str, ...]] = ("persistent",)  # capabilities that are fields of the subject

    def can(self, needs: str) -> bool:
        """Whether laws that need this capability apply."""
        if needs in self.declared:
            return bool(getattr(self, needs))
        return needs == "base" or self.has(needs)

    def lacks(self, needs: str) -> str:
        """Why laws that need this capability do not apply."""
        if needs in self.declared:
            return f"{self.name} does not declare {needs}"
        return f"{self.name} does not have {self.describe(needs)}"

    def has(self, needs: str) -> bool:
        """Whether the implementation has a capability that is not declared."""
        raise NotImplementedError(needs)

    def describe(self, needs: str) -> str:
        """The methods of a capability that is not declared."""
        return needs

    @asynccontextmanager
    async def place(self) -> AsyncIterator[P]:
        """A new, empty place, removed at the end of the block."""
        with tempfile.TemporaryDirectory(prefix="keelbolt-law-") as directory:
            place = self.place_class(self, f"law_{uuid.uuid4().hex[:12]}", Path(directory))
            try:
                yield place
            finally:
                if self.discard is not None:
                    await self.discard(place)

    async def probed(self) -> Self:
        """The same subject with the capabilities that only an open implementation shows."""
        return self

    @classmethod
    def of(cls, given: Any, *, name: str | None = None) -> Self:
        """Return a subject unchanged; make one from a factory or class of implementations."""
        if isinstance(given, cls):
            return given
        if not callable(given):
            raise InvalidValue(f"{given!r} is neither a {cls.__name__} nor a factory")
        return cls.from_factory(given, name or str(getattr(given, "__name__", type(given).__name__)))

    @classmethod
    @abstractmethod
    def from_factory(cls, factory: Callable[..., Any], name: str) -> Self:
        """A subject whose implementations the factory makes."""

    @classmethod
    def load(cls, reference: str) -> Self:
        """The subject, or the factory, that ``module:attribute`` names."""
        module, colon, attribute = reference.partition(":")
        if not (module and colon and attribute):
            raise InvalidValue(f"{reference!r} names no factory; write it as module:attribute")
        try:
            given: Any = importlib.import_module(module)
            for part in attribute.split("."):
                given = getattr(given, part)
        except (ImportError, AttributeError) as error:
            raise InvalidValue(f"{reference!r} can't be loaded: {error}") from error
        if not isinstance(given, cls) and not callable(given):
            raise InvalidValue(f"{reference!r} is a {type(given).__name__}; it must be a {cls.__name__} or a factory")
        return cls.of(given, name=reference)
