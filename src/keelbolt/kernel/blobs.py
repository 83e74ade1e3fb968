"""Blobs: content-addressed bytes in chunks. A blob is *staged* when written and *committed* while it has a holder.

    staged ──Attach──▶ committed ──last Detach──▶ staged ──grace over──▶ reaped

Blobs are written and read chunk by chunk, so memory use does not depend on their size.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from keelbolt.errors import BlobNotFound, InvalidValue, KeelboltError, StorageCorrupt, StorageUnavailable

if TYPE_CHECKING:
    from keelbolt.kernel.base_kernel import BaseKernel

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
        """Yield the lines; see `lines_of`."""
        async for line in lines_of(self.chunks()):
            yield line


async def lines_of(blocks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines without their line feeds, including a last line that has none."""
    held: list[bytes] = []  # pieces of the unfinished line, joined once so that long lines stay cheap
    async for data in blocks:
        first, *more = data.split(b"\n")
        held.append(first)
        for piece in more:
            yield b"".join(held)
            held = [piece]
    if rest := b"".join(held):
        yield rest


async def stage(front: BaseKernel, partition: str, source: BlobSource, keep_seconds: float) -> Blob:
    """Write the source as a new upload, name it by its digest, and return the blob."""
    upload = await front._stage(partition, keep_seconds)  # noqa: SLF001
    try:
        hasher = hashlib.sha256()
        size = number = 0
        async for chunk in chunks_of(source):
            hasher.update(chunk)
            await front._stage_chunk(partition, upload, number, chunk, hashlib.sha256(chunk).digest())  # noqa: SLF001
            size += len(chunk)
            number += 1
    except BaseException:
        with contextlib.suppress(KeelboltError):  # a sweep removes an upload that can't be undone here
            await front._stage_undo(partition, upload)  # noqa: SLF001
        raise
    blob = Blob(hasher.hexdigest(), size)
    # Never undone: if the result is unknown, or this call is canceled, the blob may exist, and others may hold it.
    if not await front._stage_done(partition, upload, blob, keep_seconds):  # noqa: SLF001
        raise StorageUnavailable(
            "parts of this blob were removed, because its upload took more than an hour or a server failed over; "
            "the blob was not stored. Store it again"
        )
    return blob


class StagedReader(BlobReader):
    """Reads the chunks of one upload."""

    def __init__(self, front: BaseKernel, partition: str, upload: int, blob: Blob) -> None:
        super().__init__(blob)
        self._front = front
        self._partition = partition
        self._upload = upload

    async def chunk(self, number: int) -> bytes:
        self._front._guard()  # noqa: SLF001
        found = await self._front._blob_chunk(self._partition, self._upload, number)  # noqa: SLF001
        if found is None and await self._front._blob(self._partition, self.blob.digest) is None:  # noqa: SLF001
            raise BlobNotFound(self.blob.digest)
        data, digest = found or (b"", b"")
        if hashlib.sha256(data).digest() != digest:
            raise StorageCorrupt.of(f"chunk {number} of blob {self.blob.digest}")
        return data


async def chunks_of(source: BlobSource) -> AsyncIterator[bytes]:
    """Yield the bytes of the source in chunks of CHUNK_BYTES; only the last one may be shorter."""
    if isinstance(source, str):
        source = _encoded(source)
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source)
        view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        for start in range(0, len(view), CHUNK_BYTES):
            yield bytes(view[start : start + CHUNK_BYTES])
    elif isinstance(source, PathLike):
        with await asyncio.to_thread(Path(source).open, "rb") as file:
            async for chunk in _from_file(file):
                yield chunk
    elif isinstance(source, AsyncIterable):
        async for chunk in _from_stream(source):
            yield chunk
    elif hasattr(source, "read"):
        async for chunk in _from_file(source):
            yield chunk
    else:
        raise InvalidValue(
            f"make a blob from bytes, str, a path, a binary file or a stream of bytes, not {type(source).__name__}"
        )


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidValue("the text of a blob holds lone surrogates; encode it to bytes yourself") from None


async def _from_file(file: BinaryIO) -> AsyncIterator[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield piece

    async for chunk in _from_stream(pieces()):
        yield chunk


async def _from_stream(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    held = bytearray()
    async for piece in stream:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidValue(f"a stream of a blob must yield bytes, not {type(piece).__name__}")
        held += piece
        while len(held) >= CHUNK_BYTES:
            yield bytes(held[:CHUNK_BYTES])
            del held[:CHUNK_BYTES]
    if held:
        yield bytes(held)
