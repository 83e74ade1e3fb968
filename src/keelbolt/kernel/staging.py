"""Writes and reads blobs in chunks of one size, without holding a whole blob in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterable, AsyncIterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from keelbolt.errors import BlobNotFound, InvalidValue, KeelboltError, StorageCorrupt, StorageUnavailable
from keelbolt.kernel.blobs import CHUNK_BYTES, Blob, BlobReader, BlobSource

if TYPE_CHECKING:
    from keelbolt.kernel.base_kernel import BaseKernel


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
