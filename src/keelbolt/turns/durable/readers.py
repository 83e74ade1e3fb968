"""Readers of stored bytes, and of media at a URL given by a client.

A reader of stored bytes is bound to a digest, so it reads the same bytes even if the id changes. Every chunk is
verified when it is read; a complete read is also verified against the digest. Media at a URL is downloaded when it is
read, under the rules of the storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from keelbolt.errors import BlobNotFound, StorageCorrupt, TurnStorageCorrupt, TurnStorageNotFound
from keelbolt.kernel import BlobReader, Scope
from keelbolt.outbound.download import DownloadRules, download
from keelbolt.turns.in_memory import InMemorySpoolReader
from keelbolt.turns.readers import Descriptor, LineIndex, lines_between, text_of

MEDIA_TAG = "media:keelbolt"
SPOOL_TAG = "spool:keelbolt"
EAGER_BYTES = 256 * 1024  # up to here the whole text is read at once; it is one chunk


@dataclass(frozen=True, slots=True)
class Bytes:
    """Digest and size of stored bytes, and the digest of their line index if they have one."""

    sha256: str
    size: int
    index: str | None = None

    @property
    def digests(self) -> tuple[str, ...]:
        return (self.sha256,) if self.index is None else (self.sha256, self.index)

    def locator(self) -> dict[str, Any]:
        locator: dict[str, Any] = {"sha256": self.sha256, "size": self.size}
        return locator if self.index is None else {**locator, "index": self.index}

    @classmethod
    def at(cls, locator: Any) -> Bytes:
        try:
            return cls(str(locator["sha256"]), int(locator["size"]), locator.get("index"))
        except (TypeError, KeyError, ValueError, AttributeError) as wrong:
            raise TurnStorageCorrupt("a stored descriptor of bytes can't be read", cause=wrong) from wrong


@dataclass(slots=True)
class ConduitEntry:
    """The conduit's record of written bytes; ``version`` 0: another record already holds them."""

    key: str
    version: int


class _Reader:
    def __init__(self, scope: Scope, bytes_: Bytes, entry: ConduitEntry | None = None) -> None:
        self.scope = scope
        self.bytes = bytes_
        self.entry = entry
        self._opened: BlobReader | None = None

    async def byte_length(self) -> int:
        return self.bytes.size

    async def _blob(self) -> BlobReader:
        if self._opened is None:
            with _explained(self.bytes.sha256):
                self._opened = await self.scope.open_blob(self.bytes.sha256)
            if self._opened.size != self.bytes.size:
                raise TurnStorageCorrupt(
                    f"the stored bytes {self.bytes.sha256} have the wrong length; restore them from a backup"
                )
        return self._opened

    async def _pieces(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        blob = await self._blob()
        whole = start <= 0 and (end is None or end >= blob.size)
        hasher = hashlib.sha256()
        with _explained(self.bytes.sha256):
            async for piece in blob.chunks(start, end):
                if whole:
                    hasher.update(piece)
                yield piece
        if whole and hasher.hexdigest() != self.bytes.sha256:
            raise TurnStorageCorrupt(
                f"the stored bytes {self.bytes.sha256} differ from those written; restore them from a backup"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bytes.sha256[:12]}…, {self.bytes.size} bytes)"


class StoredMediaReader(_Reader):
    """Streams stored media."""

    def stream(self) -> AsyncIterator[bytes]:
        return self._pieces()

    def describe(self) -> Descriptor:
        return Descriptor(tag=MEDIA_TAG, locator=self.bytes.locator())


class StoredSpoolReader(_Reader):
    """Reads stored text by lines: short text as a whole, long text through its index, a chunk or two per line."""

    def __init__(
        self, scope: Scope, bytes_: Bytes, entry: ConduitEntry | None = None, *, eager_bytes: int = EAGER_BYTES
    ) -> None:
        super().__init__(scope, bytes_, entry)
        self._eager = bytes_.index is None or bytes_.size <= eager_bytes
        self._held: InMemorySpoolReader | None = None
        self._index: LineIndex | None = None

    async def line(self, index: int) -> str | None:
        found = await self.lines(index, index + 1) if index >= 0 else []
        return found[0] if found else None

    async def lines(self, start: int, end: int) -> list[str]:
        if self._eager:
            return await (await self._whole()).lines(start, end)
        index = await self._lines()
        with _explained(self.bytes.sha256):
            return [text_of(line) async for line in lines_between(self._chunk, index, start, end)]

    async def line_count(self) -> int:
        if self._eager:
            return await (await self._whole()).line_count()
        return (await self._lines()).line_count

    async def read_all(self) -> str:
        if self._eager:
            return await (await self._whole()).read_all()
        return text_of(b"".join([piece async for piece in self._pieces()]))

    def stream(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes from ``start`` (inclusive) to ``end`` (exclusive)."""
        return self._pieces(start, end)

    def describe(self) -> Descriptor:
        return Descriptor(tag=SPOOL_TAG, locator=self.bytes.locator())

    async def _whole(self) -> InMemorySpoolReader:
        if self._held is None:
            self._held = InMemorySpoolReader(b"".join([piece async for piece in self._pieces()]))
        return self._held

    async def _lines(self) -> LineIndex:
        if self._index is None:
            digest = self.bytes.index
            assert digest is not None
            with _explained(digest):
                stored = await (await self.scope.open_blob(digest)).read()
            self._index = LineIndex.load(stored, self.bytes.size)
        return self._index

    async def _chunk(self, number: int) -> bytes:
        return await (await self._blob()).chunk(number)


@contextmanager
def _explained(digest: str) -> Iterator[None]:
    try:
        yield
    except StorageCorrupt as damaged:
        raise TurnStorageCorrupt(
            f"the stored bytes {digest} differ from those written; restore them from a backup", cause=damaged
        ) from damaged
    except BlobNotFound as gone:
        raise TurnStorageNotFound(f"the bytes {digest} are gone: no record referred to them", cause=gone) from gone


# --------------------------------------------------------------------------------------------------------- remote media


URL_TAG = "keelbolt.url"


class RemoteMediaReader:
    """Downloads the file at each `stream`. Raises AddressNotAllowed or DownloadFailed."""

    def __init__(self, url: str, rules: DownloadRules) -> None:
        self.url = url
        self._rules = rules

    @classmethod
    def at(cls, rules: DownloadRules, locator: Any) -> RemoteMediaReader:
        """Return the reader for a locator from `describe`."""
        return cls(str(locator["url"]), rules)

    def stream(self) -> AsyncIterator[bytes]:
        return download(self.url, self._rules)

    async def byte_length(self) -> int | None:
        """Return None: the length is not known before the download."""
        return None

    def describe(self) -> Descriptor:
        return Descriptor(tag=URL_TAG, locator={"url": self.url})
