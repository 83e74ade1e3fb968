"""Blobs: chunks are stored under an upload id, which gets its digest when all chunks are stored."""

from __future__ import annotations

import secrets

from keelbolt.errors import StorageUnavailable
from keelbolt.kernel.blobs import CHUNK_BYTES, Blob
from keelbolt.kernel.redis.operations import micros
from keelbolt.kernel.redis.servers import RedisServers

_DIGEST_BYTES = 32


def _name(upload: int) -> bytes:
    return b"%016x" % upload


class Uploads:
    def __init__(self, store: RedisServers) -> None:
        self._store = store

    async def begin(self, partition: str, keep_seconds: float) -> int:
        upload = secrets.randbits(63)
        await self._store.write("blob_begin", partition, _name(upload), micros(keep_seconds))
        return upload

    async def chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None:
        await self._store.command(partition, b"SET", b"u/%b/%d" % (_name(upload), number), digest + data, writes=True)

    async def done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> None:
        chunks = -(-blob.size // CHUNK_BYTES)
        words = (_name(upload), blob.digest.encode(), b"%d" % blob.size, b"%d" % chunks, micros(keep_seconds))
        if not await self._store.write("blob_name", partition, *words):
            raise StorageUnavailable(
                "parts of this blob were lost, because the server failed over or the upload took more than an hour; "
                "nothing was written. Store it again"
            )

    async def undo(self, partition: str, upload: int) -> None:
        await self._store.write("blob_undo", partition, _name(upload))

    async def find(self, partition: str, digest: str) -> tuple[int, int] | None:
        upload, size = await self._store.command(partition, b"HMGET", b"b/" + digest.encode(), b"u", b"s")
        return (int(upload, 16), int(size)) if upload is not None else None

    async def read(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        data = await self._store.command(partition, b"GET", b"u/%b/%d" % (_name(upload), number))
        return (data[_DIGEST_BYTES:], data[:_DIGEST_BYTES]) if data is not None else None
