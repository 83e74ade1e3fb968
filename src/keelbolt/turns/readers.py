"""Protocols for stored bytes: readers of text by lines, readers of media, and byte stores.

They are duck-typed: any object with the methods qualifies, and its methods may be plain or async (`answer` handles
both). A reader that can be opened again after a restart also has ``describe()``, which returns a `Descriptor`.
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
    """How to open a reader again: ``tag`` selects the resolver, ``locator`` is its argument (JSON)."""

    tag: str
    locator: object


@runtime_checkable
class SpoolReader(Protocol):
    """Reads text line by line, without holding it in memory.

    ``line`` returns a line without its line feed, or None outside of the text (also below 0).
    """

    def line(self, index: int, /) -> Awaitable[str | None] | str | None: ...
    def byte_length(self) -> Awaitable[int] | int: ...
    def line_count(self) -> Awaitable[int] | int: ...
    def read_all(self) -> Awaitable[str] | str: ...


@runtime_checkable
class RangeReader(SpoolReader, Protocol):
    """A SpoolReader that also returns several lines at once, and byte ranges."""

    def lines(self, start: int, end: int, /) -> Awaitable[list[str]] | list[str]: ...
    def stream(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]: ...


@runtime_checkable
class MediaReader(Protocol):
    """Streams media, from the start at each call. A ``byte_length`` of None means unknown, not 0."""

    def stream(self) -> AsyncIterable[bytes]: ...
    def byte_length(self) -> Awaitable[int | None] | int | None: ...


@runtime_checkable
class ByteStore(Protocol[R_co]):
    """Stores bytes by id. Writing an id again replaces its bytes; earlier readers may still read the old ones."""

    def write(self, key: str, data: ByteSource, /) -> Awaitable[R_co]: ...
    def read(self, key: str, /) -> Awaitable[R_co | None]: ...
    def delete(self, key: str, /) -> Awaitable[bool]: ...


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One entry of a byte store: its id and its size; ``sha256`` if the store has it."""

    id: str
    size: int
    sha256: str | None = None


@runtime_checkable
class ListableByteStore(ByteStore[R_co], Protocol[R_co]):
    """A ByteStore that lists its entries, ordered by id."""

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]: ...


def is_spool_reader(value: object) -> TypeGuard[SpoolReader]:
    """Return whether it has the methods of a SpoolReader, without calling them."""
    return _has(value, "line", "byte_length", "line_count", "read_all")


def is_range_reader(value: object) -> TypeGuard[RangeReader]:
    """Return whether it has the methods of a RangeReader, without calling them."""
    return is_spool_reader(value) and _has(value, "lines", "stream")


def is_media_reader(value: object) -> TypeGuard[MediaReader]:
    """Return whether it has the methods of a MediaReader, without calling them."""
    return _has(value, "stream", "byte_length")


def described(reader: object) -> Descriptor | None:
    """Return the descriptor of this reader, or None if it has none."""
    describe = getattr(reader, "describe", None)
    if not callable(describe):
        return None
    found = describe()
    if found is None:
        return None
    return Descriptor(tag=found["tag"], locator=found["locator"])


async def answer(value: Awaitable[T] | T) -> T:
    """Return the value, awaited if necessary: readers may be plain or async."""
    if inspect.isawaitable(value):
        return await value
    return value


def _has(value: object, *names: str) -> bool:
    # A class has the methods too, but is not a reader.
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)
