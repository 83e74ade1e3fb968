"""Long text that stays in its store and is read by lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from keelbolt.errors import NotASpoolReader
from keelbolt.turns.primitives.text import Encoder, count_tokens
from keelbolt.turns.readers import SpoolReader, answer, is_range_reader, is_spool_reader

_STEP = 256  # lines per read, if the reader supports ranges


class SpooledArtifact:
    """A read-only view of text that a SpoolReader reads; it holds no text itself.

    Subclass it to add methods for a kind of text.
    """

    __slots__ = ("_reader",)

    def __init__(self, reader: SpoolReader) -> None:
        if not is_spool_reader(reader):
            raise NotASpoolReader(f"{type(reader).__name__} is no spool reader: {NotASpoolReader.__doc__}")
        self._reader = reader

    @property
    def reader(self) -> SpoolReader:
        return self._reader

    async def head(self, n: int = 10) -> list[str]:
        """Return the first n lines."""
        return await self.cat(0, n)

    async def tail(self, n: int = 10) -> list[str]:
        """Return the last n lines."""
        count = await self.line_count()
        return await self.cat(max(0, count - max(0, n)), count)

    async def grep(self, pattern: str | re.Pattern[str]) -> list[str]:
        """Return the lines that match this regular expression."""
        wanted = re.compile(pattern)
        return [line async for line in self._lines(0, await self.line_count()) if wanted.search(line)]

    async def cat(self, start: int = 0, end: int | None = None) -> list[str]:
        """Return the lines from start to end (exclusive), clipped to the text."""
        count = await self.line_count()
        first = max(0, start)
        last = count if end is None else min(end, count)
        return [line async for line in self._lines(first, last)]

    async def byte_length(self) -> int:
        return await answer(self._reader.byte_length())

    async def line_count(self) -> int:
        return await answer(self._reader.line_count())

    async def as_string(self) -> str:
        """Return the whole text, exactly as stored."""
        return await answer(self._reader.read_all())

    async def estimate_tokens(self, encoding: str | Encoder | None = None) -> int:
        """Return the number of tokens for a model; reads the whole text."""
        return count_tokens(await self.as_string(), encoding)

    async def _lines(self, start: int, end: int) -> AsyncIterator[str]:
        if is_range_reader(self._reader):
            for first in range(start, end, _STEP):
                for line in await answer(self._reader.lines(first, min(first + _STEP, end))):
                    yield line
        else:
            for index in range(start, end):
                found = await answer(self._reader.line(index))
                if found is None:
                    return
                yield found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._reader).__name__})"
