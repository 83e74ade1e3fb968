"""Protocols for stored bytes (readers of text by lines, readers of media, byte stores), and an index of lines.

The protocols are duck-typed: any object with the methods qualifies, and its methods may be plain or async (`answer`
handles both). A reader that can be opened again after a restart also has ``describe()``, which returns a `Descriptor`.

A line ends only at a line feed: a carriage return, a vertical tab or U+2028 stays in its line. Text that ends in a line
feed has an empty last line; empty text has no lines. Bytes that are not UTF-8 are read as U+FFFD.

The index finds a line in a large text. It has one number per stretch of 256 KiB, the kernel's blob chunk size: the
number of line feeds before it. So it is small for lines of any length (6 KB for 200 MiB), and any line is found in the
one stretch where it begins.
"""

from __future__ import annotations

import inspect
from array import array
from bisect import bisect_left
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from sys import byteorder
from typing import BinaryIO, Protocol, TypedDict, TypeGuard, TypeVar, runtime_checkable

from keelbolt.kernel.blobs import CHUNK_BYTES

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


# ---------------------------------------------------------------------------------------------------------------- lines


STRETCH_BYTES = CHUNK_BYTES

Chunk = Callable[[int], Awaitable[bytes]]  # the stretch with this number, from 0


def text_of(data: bytes) -> str:
    """Return the bytes as text, with U+FFFD for invalid bytes. A byte order mark is kept."""
    return data.decode("utf-8", "replace")


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines, without their line feeds."""
    return data.split(b"\n") if data else []


class LineIndex:
    """The number of line feeds before each stretch; ``feeds`` is their total."""

    def __init__(self, before: array[int], feeds: int, size: int) -> None:
        self._before = before
        self.feeds = feeds
        self.size = size

    @property
    def line_count(self) -> int:
        return self.feeds + 1 if self.size else 0

    def stretch_of(self, line: int) -> int:
        """Return the number of the stretch in which this line begins, or which has the feed before it."""
        # A line begins after the feed that ends the previous one: the last stretch with fewer feeds before it than
        # that.
        return max(bisect_left(self._before, line) - 1, 0)

    def feeds_before(self, stretch: int) -> int:
        return self._before[stretch]

    def dump(self) -> bytes:
        """Return the numbers as 64-bit little-endian integers, followed by the total."""
        numbers = array("Q", [*self._before, self.feeds])
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()

    @classmethod
    def load(cls, data: bytes, size: int) -> LineIndex:
        numbers = array("Q", data)
        if byteorder == "big":
            numbers.byteswap()
        feeds = numbers.pop()
        return cls(numbers, feeds, size)


class LineCounter:
    """Builds a LineIndex from bytes in pieces of any size."""

    def __init__(self) -> None:
        self._before: array[int] = array("Q")
        self._feeds = 0
        self._size = 0

    def add(self, piece: bytes) -> None:
        start = 0
        while start < len(piece):
            room = STRETCH_BYTES - self._size % STRETCH_BYTES
            if room == STRETCH_BYTES:
                self._before.append(self._feeds)
            end = min(start + room, len(piece))
            self._feeds += piece.count(b"\n", start, end)
            self._size += end - start
            start = end

    def index(self) -> LineIndex:
        return LineIndex(self._before, self._feeds, self._size)


async def lines_between(chunk: Chunk, index: LineIndex, start: int, end: int) -> AsyncIterator[bytes]:
    """Yield the existing lines from ``start`` (inclusive) to ``end`` (exclusive)."""
    start, end = max(start, 0), min(end, index.line_count)
    if start >= end:
        return
    number = index.stretch_of(start)
    line = index.feeds_before(number)  # the line that continues where this stretch begins
    held: list[bytes] = []  # its pieces so far: joined once, regardless of its length
    position = number * STRETCH_BYTES
    while position < index.size:
        data = await chunk(number)
        first, *more = data.split(b"\n")
        if line >= start:
            held.append(first)
        for piece in more:
            if line >= start:
                yield b"".join(held)
            line += 1
            if line >= end:
                return
            held = [piece]
        number += 1
        position += len(data)
    if line >= start:
        yield b"".join(held)
