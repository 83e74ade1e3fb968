"""A kernel seen from inside one partition: what request handlers are given, so that they can't reach outside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence

from keelbolt.storage.blobs import STAGED_SECONDS, Blob, BlobReader, BlobSource
from keelbolt.storage.commits import Operation, Receipt
from keelbolt.storage.contract import PAGE_BYTES, Kernel
from keelbolt.storage.hints import LogTopic, Watch
from keelbolt.storage.logs import Entry, LogPage, LogState
from keelbolt.storage.records import Count, Page, Query, Record
from keelbolt.storage.work import WorkItem, WorkPage, WorkState


class Scope:
    """The verbs of the kernel without their first argument."""

    def __init__(self, kernel: Kernel, partition: str) -> None:
        self._kernel = kernel
        self.partition = partition

    def commit(self, *operations: Operation) -> Awaitable[Receipt]:
        return self._kernel.commit(self.partition, *operations)

    async def get(self, collection: str, key: str) -> Record | None:
        return await self._kernel.get(self.partition, collection, key)

    async def get_many(self, collection: str, keys: Iterable[str]) -> Sequence[Record | None]:
        return await self._kernel.get_many(self.partition, collection, keys)

    async def find(self, query: Query, *, limit: int = 50, cursor: str | None = None) -> Page:
        return await self._kernel.find(self.partition, query, limit=limit, cursor=cursor)

    def scan(self, query: Query, *, limit: int | None = None, page: int = 200) -> AsyncIterator[Record]:
        return self._kernel.scan(self.partition, query, limit=limit, page=page)

    async def count(self, query: Query, *, cap: int = 10_000) -> Count:
        return await self._kernel.count(self.partition, query, cap=cap)

    async def read_log(
        self,
        log: str,
        stream: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 500,
        max_bytes: int = PAGE_BYTES,
        backward: bool = False,
    ) -> LogPage:
        return await self._kernel.read_log(
            self.partition, log, stream, after=after, before=before, limit=limit, max_bytes=max_bytes, backward=backward
        )

    async def log_state(self, log: str, stream: str) -> LogState:
        return await self._kernel.log_state(self.partition, log, stream)

    async def seq_of(self, log: str, stream: str, dedupe: str) -> int | None:
        return await self._kernel.seq_of(self.partition, log, stream, dedupe)

    def tail(self, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        return self._kernel.tail(self.partition, log, stream, after=after)

    def watch(self, log: str, stream: str) -> Watch:
        return self._kernel.watch(LogTopic(self.partition, log, stream))

    async def work(self, queue: str, key: str) -> WorkItem | None:
        return await self._kernel.work(self.partition, queue, key)

    async def list_work(self, queue: str, *, state: WorkState, limit: int = 50, cursor: str | None = None) -> WorkPage:
        return await self._kernel.list_work(self.partition, queue, state=state, limit=limit, cursor=cursor)

    async def stage_blob(self, source: BlobSource, *, keep_seconds: float = STAGED_SECONDS) -> Blob:
        return await self._kernel.stage_blob(self.partition, source, keep_seconds=keep_seconds)

    async def open_blob(self, digest: str) -> BlobReader:
        return await self._kernel.open_blob(self.partition, digest)
