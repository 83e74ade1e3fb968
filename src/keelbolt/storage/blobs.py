"""Blobs: content-addressed bytes in chunks. A blob is *staged* when written, *committed* while somebody holds it.

    staged ──Attach──▶ committed ──last Detach──▶ staged ──grace over──▶ reaped

Writing and reading go chunk by chunk, so that memory stays flat whatever the size.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator
from os import PathLike
from typing import BinaryIO

from msgspec import Struct

from keelbolt.errors import StorageCorrupt

CHUNK_BYTES = 256 * 1024
STAGED_SECONDS = 3600.0

BlobSource = bytes | bytearray | memoryview | str | PathLike[str] | BinaryIO | AsyncIterable[bytes]


class Blob(Struct, frozen=True, gc=False):
    """The name of some bytes: their SHA-256 in hexadecimal, and how many they are."""

    digest: str
    size: int


class Attach(Struct, frozen=True, gc=False):
    """Hold the blob under this name; it stays until its last holder lets go. Refused when there is no such blob."""

    digest: str
    holder: str


class Detach(Struct, frozen=True, gc=False):
    """Let go of the blob; no error when this holder did not hold it. After the last one it stays for STAGED_SECONDS."""

    digest: str
    holder: str


class BlobReader(ABC):
    """Reads one blob. Every chunk is checked against its own hash, a whole read against the digest as well."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob

    @property
    def size(self) -> int:
        return self.blob.size

    @abstractmethod
    async def chunk(self, number: int) -> bytes:
        """The chunk with this number, from 0, checked; raises StorageCorrupt or BlobNotFound."""

    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from ``start`` (included) to ``end`` (not included), a chunk at a time."""
        end = self.size if end is None else min(end, self.size)
        start = max(start, 0)
        while start < end:
            number, offset = divmod(start, CHUNK_BYTES)
            data = (await self.chunk(number))[offset : offset + end - start]
            if not data:
                raise StorageCorrupt
            yield data
            start += len(data)

    async def read(self) -> bytes:
        """The whole blob, checked against its digest."""
        data = b"".join([data async for data in self.chunks()])
        if hashlib.sha256(data).hexdigest() != self.blob.digest:
            raise StorageCorrupt
        return data

    async def range(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` (included) to ``end`` (not included); shorter where the blob ends."""
        return b"".join([data async for data in self.chunks(start, end)])

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines, without their line feeds; a last line that has none is a line too."""
        held: list[bytes] = []  # the line that goes on, in pieces: joined once, however long it is
        async for data in self.chunks():
            first, *more = data.split(b"\n")
            held.append(first)
            for piece in more:
                yield b"".join(held)
                held = [piece]
        if rest := b"".join(held):
            yield rest
