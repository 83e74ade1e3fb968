"""What hands out stored bytes: readers of text by lines, readers of media, and the stores that give them.

They are duck-typed: whatever has the methods is one, and its methods may be plain or async (`answer` waits for both).
A reader that can be found again after a restart also has ``describe()``, which answers a `Descriptor`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypedDict, TypeGuard, TypeVar, runtime_checkable

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

ByteSource = str | bytes | bytearray | memoryview | BinaryIO | AsyncIterable[bytes]


class Descriptor(TypedDict):
    """How a reader is found again: ``tag`` names who can, ``locator`` is what it needs for that (JSON)."""

    tag: str
    locator: object


@runtime_checkable
class SpoolReader(Protocol):
    """Reads text line by line, without holding it in memory.

    ``line`` answers None outside of the text (below 0 too), and a line without its line feed.
    """

    def line(self, index: int, /) -> Awaitable[str | None] | str | None: ...
    def byte_length(self) -> Awaitable[int] | int: ...
    def line_count(self) -> Awaitable[int] | int: ...
    def read_all(self) -> Awaitable[str] | str: ...


@runtime_checkable
class RangeReader(SpoolReader, Protocol):
    """A SpoolReader that also gives several lines at once, and bytes from one place to another."""

    def lines(self, start: int, end: int, /) -> Awaitable[list[str]] | list[str]: ...
    def stream(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...


@runtime_checkable
class MediaReader(Protocol):
    """Reads media as a stream, anew at each call. A ``byte_length`` of None is unknown, which is not 0."""

    def stream(self) -> AsyncIterable[bytes]: ...
    def byte_length(self) -> Awaitable[int | None] | int | None: ...


@runtime_checkable
class Describable(Protocol):
    """A reader that can be found again after a restart."""

    def describe(self) -> Descriptor | None: ...


@runtime_checkable
class ByteStore(Protocol[R_co]):
    """Keeps bytes by id. Writing an id again replaces its bytes; what was handed out before may go on reading."""

    def write(self, key: str, data: ByteSource, /) -> Awaitable[R_co]: ...
    def read(self, key: str, /) -> Awaitable[R_co | None]: ...
    def delete(self, key: str, /) -> Awaitable[bool]: ...


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One entry of a byte store: its id and its size; ``sha256`` where the store keeps it."""

    id: str
    size: int
    sha256: str | None = None


@runtime_checkable
class ListableByteStore(ByteStore[R_co], Protocol[R_co]):
    """A ByteStore that tells what it keeps, in the order of the ids."""

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]: ...


def is_spool_reader(value: object) -> TypeGuard[SpoolReader]:
    """Whether it has the methods of a SpoolReader; they are not called."""
    return _has(value, "line", "byte_length", "line_count", "read_all")


def is_range_reader(value: object) -> TypeGuard[RangeReader]:
    """Whether it has the methods of a RangeReader; they are not called."""
    return is_spool_reader(value) and _has(value, "lines", "stream")


def is_media_reader(value: object) -> TypeGuard[MediaReader]:
    """Whether it has the methods of a MediaReader; they are not called."""
    return _has(value, "stream", "byte_length")


def is_byte_store(value: object) -> TypeGuard[ByteStore[object]]:
    """Whether it has the methods of a ByteStore; they are not called."""
    return _has(value, "write", "read", "delete")


def described(reader: object) -> Descriptor | None:
    """What ``describe()`` of this reader answers, or None when it can't describe itself."""
    describe = getattr(reader, "describe", None)
    if not callable(describe):
        return None
    found = describe()
    if found is None:
        return None
    return Descriptor(tag=found["tag"], locator=found["locator"])


async def answer(value: Awaitable[T] | T) -> T:
    """The value, waited for if it has to be: readers may be plain or async."""
    if inspect.isawaitable(value):
        return await value
    return value


def _has(value: object, *names: str) -> bool:
    # A class has the methods too, but is no reader.
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)
