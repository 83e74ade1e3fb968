"""The methods that an engine implements. Their arguments are checked; the storage is open, in this loop and process."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from keelbolt.errors import NotTransferable
from keelbolt.kernel.blobs import Blob
from keelbolt.kernel.commits import Operation, Receipt
from keelbolt.kernel.contract import Kernel, Problem, Stats, Swept, WorkCounts
from keelbolt.kernel.declarations import CheckedCollection
from keelbolt.kernel.logs import LogPage, LogState
from keelbolt.kernel.records import Record
from keelbolt.kernel.transfer.ports import Transfer
from keelbolt.kernel.work import Claim, WorkItem, WorkState


class EngineMethods(Kernel):
    """A kernel whose public methods are still abstract; `BaseKernel` implements them by calling these methods."""

    engine: str

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    async def _declare(self, shape: CheckedCollection) -> None: ...

    @abstractmethod
    async def _flush(self) -> None: ...

    @abstractmethod
    async def _health(self) -> tuple[bool, bool, str]: ...

    @abstractmethod
    async def _stats(self) -> Stats: ...

    @abstractmethod
    def _check(self) -> AsyncIterator[Problem]: ...

    @abstractmethod
    async def _sweep(self, limit: int) -> Swept: ...

    @abstractmethod
    async def _partitions(self, after: str, limit: int) -> Sequence[str]: ...

    @abstractmethod
    def _submit(self, partition: str, operations: tuple[Operation, ...]) -> asyncio.Future[Receipt]:
        """Put the commit into the order now; the future completes when it is committed or refused."""

    @abstractmethod
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]: ...

    def _bound(self, shape: CheckedCollection, index: int, bound: bytes) -> bytes:  # noqa: ARG002
        """Convert a bound of a range to this engine's format of entries. The default is the encoding itself."""
        return bound

    @abstractmethod
    async def _scan(
        self,
        partition: str,
        shape: CheckedCollection,
        index: int,
        low: bytes,
        high: bytes,
        *,
        newest_first: bool,
        limit: int,
    ) -> list[tuple[bytes, Record]]:
        """Return the live records with low ≤ index entry < high, in the order of the entries or reversed."""

    @abstractmethod
    async def _count(
        self, partition: str, shape: CheckedCollection, index: int, low: bytes, high: bytes, cap: int
    ) -> int: ...

    @abstractmethod
    async def _counter(self, partition: str, shape: CheckedCollection, counter: int, group: bytes) -> int: ...

    @abstractmethod
    async def _read_log(
        self,
        partition: str,
        log: str,
        stream: str,
        after: int,
        before: int | None,
        *,
        limit: int,
        max_bytes: int,
        backward: bool,
    ) -> LogPage: ...

    @abstractmethod
    async def _log_state(self, partition: str, log: str, stream: str) -> LogState: ...

    @abstractmethod
    async def _seq_of(self, partition: str, log: str, stream: str, dedupe: str) -> int | None: ...

    @abstractmethod
    async def _claim(self, queue: str, worker: str, limit: int, lease_seconds: float) -> Sequence[Claim]: ...

    @abstractmethod
    async def _heartbeat(self, worker: str, lease_seconds: float) -> None: ...

    @abstractmethod
    async def _retire(self, worker: str) -> int: ...

    @abstractmethod
    async def _work(self, partition: str, queue: str, key: str) -> WorkItem | None: ...

    @abstractmethod
    async def _list_work(
        self, partition: str, queue: str, state: WorkState, after: str, limit: int
    ) -> Sequence[WorkItem]: ...

    @abstractmethod
    async def _count_work(self, queues: Sequence[str]) -> WorkCounts: ...

    @abstractmethod
    async def _stage(self, partition: str, keep_seconds: float) -> int:
        """Begin an upload and return its number."""

    @abstractmethod
    async def _stage_chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None: ...

    @abstractmethod
    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> bool:
        """Name the upload by its digest; return False if a part of it is missing, e.g. after a sweep.

        A blob that the partition already has is kept, with a longer grace.
        """

    @abstractmethod
    async def _stage_undo(self, partition: str, upload: int) -> None: ...

    @abstractmethod
    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        """Return (upload number, size), or None."""

    @abstractmethod
    async def _blob_chunk(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        """Return (data, SHA-256), or None."""

    async def restore_native(self, file: Path, tell: Callable[[int, int], None]) -> bool:  # noqa: ARG002
        """Restore a backup in the engine's own format, before opening. Return False if there is no such format."""
        return False

    def _transfer(self) -> Transfer:
        raise NotTransferable(f"the engine {self.engine!r} can't be copied: it offers no way to read a whole store")
