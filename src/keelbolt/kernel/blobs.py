"""Blobs: content-addressed bytes in chunks. A blob is *staged* when written and *committed* while it has a holder.

    staged ──Attach──▶ committed ──last Detach──▶ staged ──grace over──▶ reaped

Blobs are written and read chunk by chunk, so memory use does not depend on their size.
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
    """A reference to a blob: its SHA-256 in hexadecimal, and its size in bytes."""

    digest: str
    size: int

    @property
    def chunks(self) -> int:
        """The number of chunks that hold the bytes."""
        return -(-self.size // CHUNK_BYTES)


class Attach(Struct, frozen=True, gc=False):
    """Add a holder; the blob stays stored until its last holder detaches. Refused if there is no such blob."""

    digest: str
    holder: str


class Detach(Struct, frozen=True, gc=False):
    """Remove a holder, if it holds the blob. After the last detach the blob stays for STAGED_SECONDS."""

    digest: str
    holder: str


class BlobReader(ABC):
    """Reads one blob. Every chunk is checked against its own hash; a whole read is also checked against the digest."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob

    @property
    def size(self) -> int:
        return self.blob.size

    @abstractmethod
    async def chunk(self, number: int) -> bytes:
        """Return the chunk with this number, from 0. Raise StorageCorrupt if its hash differs, or BlobNotFound."""

    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes from ``start`` (included) to ``end`` (excluded), one chunk at a time."""
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
        """Return the whole blob. Raise StorageCorrupt if it does not match its digest."""
        data = b"".join([data async for data in self.chunks()])
        if hashlib.sha256(data).hexdigest() != self.blob.digest:
            raise StorageCorrupt
        return data

    async def range(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` (included) to ``end`` (excluded), or fewer if the blob ends earlier."""
        return b"".join([data async for data in self.chunks(start, end)])

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines without their line feeds, including a last line that has none."""
        held: list[bytes] = []  # pieces of the unfinished line, joined once so that long lines stay cheap
        async for data in self.chunks():
            first, *more = data.split(b"\n")
            held.append(first)
            for piece in more:
                yield b"".join(held)
                held = [piece]
        if rest := b"".join(held):
            yield rest
