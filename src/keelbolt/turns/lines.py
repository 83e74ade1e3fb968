"""Lines of text as everything here counts them, and an index by which one is found in a large text.

A line ends at a line feed and nowhere else: a carriage return, a vertical tab or U+2028 stays in its line. Text that
ends in a line feed has an empty last line, text without bytes has none. Bytes that are not UTF-8 are read as U+FFFD.

The index has one number per stretch of 256 KiB, which is how the kernel cuts its blobs: how many line feeds lie before
it. So it is small whatever the lines are (6 KB for 200 MiB), and any line is found in the one stretch where it begins.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable
from sys import byteorder

from keelbolt.storage.blobs import CHUNK_BYTES

STRETCH_BYTES = CHUNK_BYTES

Chunk = Callable[[int], Awaitable[bytes]]  # the stretch with this number, from 0


def text_of(data: bytes) -> str:
    """The bytes as text, with U+FFFD for what is none. A byte order mark stays: nothing is left out."""
    return data.decode("utf-8", "replace")


def lines_of(data: bytes) -> list[bytes]:
    """The lines, without their line feeds."""
    return data.split(b"\n") if data else []


class LineIndex:
    """How many line feeds lie before each stretch; ``feeds`` is how many there are in all."""

    def __init__(self, before: array[int], feeds: int, size: int) -> None:
        self._before = before
        self.feeds = feeds
        self.size = size

    @property
    def line_count(self) -> int:
        return self.feeds + 1 if self.size else 0

    def stretch_of(self, line: int) -> int:
        """The number of the stretch in which this line begins, or in which the feed before it lies."""
        # A line begins after the feed that ends the one before: the last stretch with fewer feeds before it than that.
        return max(bisect_left(self._before, line) - 1, 0)

    def feeds_before(self, stretch: int) -> int:
        return self._before[stretch]

    def dump(self) -> bytes:
        """The numbers as 64 bits each, the small end first, and the total after them."""
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
    """Makes a LineIndex of bytes that pass by in pieces of any size."""

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
    """The lines from ``start`` (included) to ``end`` (not included), as far as there are any."""
    start, end = max(start, 0), min(end, index.line_count)
    if start >= end:
        return
    number = index.stretch_of(start)
    line = index.feeds_before(number)  # the line that goes on where this stretch begins
    held: list[bytes] = []  # what was read of it, in pieces: joined once, however long it is
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
