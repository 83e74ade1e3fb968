"""Cuts whatever a caller hands in as a blob into chunks of one size, without holding it in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from keelbolt.errors import InvalidValue
from keelbolt.storage.blobs import CHUNK_BYTES, BlobSource


async def chunks_of(source: BlobSource) -> AsyncIterator[bytes]:
    """The bytes of the source, in chunks of CHUNK_BYTES; only the last one is shorter."""
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
