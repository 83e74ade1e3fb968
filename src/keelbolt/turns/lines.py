"""Line counting for texts, and an index that finds a line in a large text.

A line ends only at a line feed: a carriage return, a vertical tab or U+2028 stays in its line. Text that ends in a
line feed has an empty last line; empty text has no lines. Bytes that are not UTF-8 are read as U+FFFD.

The index has one number per stretch of 256 KiB, the kernel's blob chunk size: the number of line feeds before it. So
it is small for lines of any length (6 KB for 200 MiB), and any line is found in the one stretch where it begins.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable
from sys import byteorder

from keelbolt.kernel.blobs import CHUNK_BYTES

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
