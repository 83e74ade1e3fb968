"""Storage without durability, for tests and prototypes: in-memory byte stores, and a storage that stores nothing."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from keelbolt.kernel.blobs import chunks_of
from keelbolt.turns.callbacks import StorageCallbacks
from keelbolt.turns.context import TurnContext
from keelbolt.turns.readers import STRETCH_BYTES, BlobInfo, ByteSource, MediaReader, SpoolReader, lines_of, text_of

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


# ----------------------------------------------------------------------------------------------------------------- noop


def noop_storage() -> StorageCallbacks:
    """Return all 27 callbacks. Fetches return nothing and writes are dropped; bytes stay in memory, since they are
    read.

    runner = TurnRunner(executor_callback=execute, **noop_storage() | {"store_message_callback": store})
    """
    spool = InMemorySpoolStore()  # shared by all calls: bytes stored under an id must be found under it

    async def fetch(_ctx: TurnContext) -> list[Any]:
        return []

    async def forget(_ctx: TurnContext, _value: Any) -> None:
        return None

    async def media(_ctx: TurnContext, _id: str, data: ByteSource) -> MediaReader:
        return await in_memory_media_reader(data)

    async def text(_ctx: TurnContext, key: str, data: ByteSource) -> SpoolReader:
        return await spool.write(key, data)

    return {
        "fetch_memories_callback": fetch,
        "fetch_messages_callback": fetch,
        "fetch_thoughts_callback": fetch,
        "fetch_tool_calls_callback": fetch,
        "fetch_tools_callback": fetch,
        "fetch_retrievables_callback": fetch,
        "refresh_standing_instructions_callback": fetch,
        "store_message_callback": forget,
        "mutate_message_callback": forget,
        "delete_message_callback": forget,
        "store_memory_callback": forget,
        "mutate_memory_callback": forget,
        "delete_memory_callback": forget,
        "store_thought_callback": forget,
        "mutate_thought_callback": forget,
        "delete_thought_callback": forget,
        "store_tool_call_callback": forget,
        "mutate_tool_call_callback": forget,
        "delete_tool_call_callback": forget,
        "store_retrievable_callback": forget,
        "mutate_retrievable_callback": forget,
        "delete_retrievable_callback": forget,
        "store_standing_instruction_callback": forget,
        "mutate_standing_instruction_callback": forget,
        "delete_standing_instruction_callback": forget,
        "store_media_bytes_callback": media,
        "store_retrievable_bytes_callback": text,
    }
