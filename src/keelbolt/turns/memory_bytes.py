"""In-memory byte stores, for tests, prototypes and data that needs no durability."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Generic, TypeVar

from keelbolt.kernel.blobs import chunks_of
from keelbolt.turns.lines import STRETCH_BYTES, lines_of, text_of
from keelbolt.turns.readers import BlobInfo, ByteSource

R = TypeVar("R")


async def bytes_of(source: ByteSource) -> bytes:
    """Return all bytes of the source: text as UTF-8, a file or a stream read to its end."""
    if isinstance(source, bytes):
        return source
    return b"".join([chunk async for chunk in chunks_of(source)])


async def pieces_of(data: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
    """Yield the bytes from ``start`` to ``end`` in pieces."""
    end = len(data) if end is None else min(end, len(data))
    for at in range(max(start, 0), end, STRETCH_BYTES):
        yield data[at : min(at + STRETCH_BYTES, end)]


class InMemorySpoolReader:
    """Reads the given bytes, independent of later changes to their store."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._lines: list[bytes] | None = None

    def _all(self) -> list[bytes]:
        if self._lines is None:
            self._lines = lines_of(self._data)
        return self._lines

    async def line(self, index: int) -> str | None:
        lines = self._all()
        return text_of(lines[index]) if 0 <= index < len(lines) else None

    async def lines(self, start: int, end: int) -> list[str]:
        return [text_of(line) for line in self._all()[max(start, 0) : max(end, 0)]]

    async def byte_length(self) -> int:
        return len(self._data)

    async def line_count(self) -> int:
        return len(self._all())

    async def read_all(self) -> str:
        return text_of(self._data)

    def stream(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return pieces_of(self._data, start, end)


class InMemoryMediaReader:
    """Streams the given bytes, from the start at each call."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)

    def stream(self) -> AsyncIterator[bytes]:
        return pieces_of(self._data)

    async def byte_length(self) -> int:
        return len(self._data)


class _Store(Generic[R]):
    """Bytes by id. Readers stay valid after later writes, deletes and clears."""

    def __init__(self, reader: Callable[[bytes], R]) -> None:
        self._reader = reader
        self._kept: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """Number of stored ids."""
        return len(self._kept)

    async def write(self, key: str, data: ByteSource) -> R:
        """Store these bytes under the id, replacing earlier ones; a stream that fails leaves those unchanged."""
        whole = await bytes_of(data)
        self._kept[key] = whole
        return self._reader(whole)

    async def read(self, key: str) -> R | None:
        found = self._kept.get(key)
        return self._reader(found) if found is not None else None

    async def delete(self, key: str) -> bool:
        return self._kept.pop(key, None) is not None

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        for key in sorted(self._kept):
            if key.startswith(prefix):
                yield BlobInfo(key, len(self._kept[key]))

    def clear(self) -> None:
        self._kept.clear()


class InMemorySpoolStore(_Store[InMemorySpoolReader]):
    """Text by id."""

    def __init__(self) -> None:
        super().__init__(InMemorySpoolReader)


class InMemoryMediaStore(_Store[InMemoryMediaReader]):
    """Media by id."""

    def __init__(self) -> None:
        super().__init__(InMemoryMediaReader)


async def in_memory_media_reader(source: ByteSource | AsyncIterable[bytes]) -> InMemoryMediaReader:
    """Return a reader of these bytes; a stream is read to its end."""
    return InMemoryMediaReader(await bytes_of(source))
