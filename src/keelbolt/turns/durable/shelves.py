"""Byte stores of one turn: the bytes that the conduits write, by id. Bytes without a record are reaped later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar, cast

from keelbolt.turns.durable.blobs import Blobs, BytesAddress, Conduit
from keelbolt.turns.durable.readers import StoredMediaReader, StoredSpoolReader
from keelbolt.turns.durable.scope import TurnLike
from keelbolt.turns.readers import BlobInfo, ByteSource

R = TypeVar("R", StoredMediaReader, StoredSpoolReader)


class TurnBytes(Generic[R]):
    """Bytes by id. A read finds those of this turn first, then the last of any turn of the thread."""

    def __init__(self, blobs: Blobs, shelf: BytesAddress) -> None:
        self._blobs = blobs
        self._shelf = shelf

    async def write(self, key: str, data: ByteSource) -> R:
        return cast("R", await self._blobs.write(self._shelf, key, data))

    async def read(self, key: str) -> R | None:
        return cast("R | None", await self._blobs.read(self._shelf, key))

    async def delete(self, key: str) -> bool:
        return await self._blobs.delete(self._shelf, key)

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        return self._blobs.list(self._shelf, prefix)


class TurnBlobs:
    """Byte stores of a storage, per turn."""

    def __init__(self, blobs: Blobs, shelf: Callable[[TurnLike, Conduit], BytesAddress]) -> None:
        self._blobs = blobs
        self._shelf = shelf

    def media(self, ctx: TurnLike) -> TurnBytes[StoredMediaReader]:
        """Return the media of this turn's thread, as a ByteStore that can also list."""
        return TurnBytes(self._blobs, self._shelf(ctx, "media"))

    def spool(self, ctx: TurnLike) -> TurnBytes[StoredSpoolReader]:
        """Return the spooled text of this turn's thread, as a ByteStore that can also list."""
        return TurnBytes(self._blobs, self._shelf(ctx, "retrievable"))
