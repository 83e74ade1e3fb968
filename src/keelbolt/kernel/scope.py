"""A kernel bound to one partition: the handle that every face works with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from keelbolt.kernel.blobs import STAGED_SECONDS, Blob, BlobReader, BlobSource
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.hints import LogTopic, Watch
from keelbolt.kernel.logs import PAGE_BYTES, Entry, LogPage, LogState
from keelbolt.kernel.records import Count, Page, Query, Record
from keelbolt.kernel.work import WorkItem, WorkPage, WorkState

if TYPE_CHECKING:
    from keelbolt.kernel.contract import Kernel, Wiped


class Scope(Struct, frozen=True):
    """The methods of the kernel without their partition argument.

    Two scopes of the same kernel and partition are equal, so a scope can be part of a key.
    """

    _kernel: Kernel
    partition: str

    def __deepcopy__(self, _memo: object) -> Scope:
        return self  # a copied task belongs to the same scope

    def commit(self, *operations: Operation) -> Awaitable[Receipt]:
        return self._kernel.commit(self.partition, *operations)

    def wipe(self, family: Wiped, *, limit: int = 500) -> Coroutine[Any, Any, int | None]:
        return self._kernel.wipe(self.partition, family, limit=limit)

    def get(self, collection: str, key: str) -> Coroutine[Any, Any, Record | None]:
        return self._kernel.get(self.partition, collection, key)

    def get_many(self, collection: str, keys: Iterable[str]) -> Coroutine[Any, Any, Sequence[Record | None]]:
        return self._kernel.get_many(self.partition, collection, keys)

    def find(self, query: Query, *, limit: int = 50, cursor: str | None = None) -> Coroutine[Any, Any, Page]:
        return self._kernel.find(self.partition, query, limit=limit, cursor=cursor)

    def scan(self, query: Query, *, limit: int | None = None, page: int = 200) -> AsyncIterator[Record]:
        return self._kernel.scan(self.partition, query, limit=limit, page=page)

    def count(self, query: Query, *, cap: int = 10_000) -> Coroutine[Any, Any, Count]:
        return self._kernel.count(self.partition, query, cap=cap)

    def read_log(
        self,
        log: str,
        stream: str,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 500,
        max_bytes: int = PAGE_BYTES,
        backward: bool = False,
    ) -> Coroutine[Any, Any, LogPage]:
        return self._kernel.read_log(
            self.partition, log, stream, after=after, before=before, limit=limit, max_bytes=max_bytes, backward=backward
        )

    def log_state(self, log: str, stream: str) -> Coroutine[Any, Any, LogState]:
        return self._kernel.log_state(self.partition, log, stream)

    def seq_of(self, log: str, stream: str, dedupe: str) -> Coroutine[Any, Any, int | None]:
        return self._kernel.seq_of(self.partition, log, stream, dedupe)

    def tail(self, log: str, stream: str, *, after: int | None = None) -> AsyncIterator[Entry]:
        return self._kernel.tail(self.partition, log, stream, after=after)

    def watch(self, log: str, stream: str, then: Callable[[], None] | None = None) -> Watch:
        return self._kernel.watch(LogTopic(self.partition, log, stream), then)

    def work(self, queue: str, key: str) -> Coroutine[Any, Any, WorkItem | None]:
        return self._kernel.work(self.partition, queue, key)

    def list_work(
        self, queue: str, *, state: WorkState, limit: int = 50, cursor: str | None = None
    ) -> Coroutine[Any, Any, WorkPage]:
        return self._kernel.list_work(self.partition, queue, state=state, limit=limit, cursor=cursor)

    def stage_blob(self, source: BlobSource, *, keep_seconds: float = STAGED_SECONDS) -> Coroutine[Any, Any, Blob]:
        return self._kernel.stage_blob(self.partition, source, keep_seconds=keep_seconds)

    def open_blob(self, digest: str) -> Coroutine[Any, Any, BlobReader]:
        return self._kernel.open_blob(self.partition, digest)
