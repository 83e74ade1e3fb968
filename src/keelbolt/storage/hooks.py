"""What an engine fills in. `keelbolt.storage.front` calls these, with checked arguments, in the right loop and process,
while the storage is open.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence

from keelbolt.storage.blobs import Blob
from keelbolt.storage.commits import Operation, Receipt
from keelbolt.storage.contract import Kernel, Problem, Stats, Swept
from keelbolt.storage.declared import Shape
from keelbolt.storage.logs import LogPage, LogState
from keelbolt.storage.records import Record
from keelbolt.storage.work import Claim, WorkItem, WorkState


class Hooks(Kernel):
    """The methods of an engine, one per verb of the contract; partition, shape and keys are checked already."""

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    async def _declare(self, shape: Shape) -> None: ...

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
        """Take the commit's place in the order now; the future ends when it is committed or refused."""

    @abstractmethod
    async def _get_many(self, partition: str, collection: str, keys: Sequence[str]) -> Sequence[Record | None]: ...

    def _bound(self, shape: Shape, index: int, bound: bytes) -> bytes:  # noqa: ARG002
        """A bound of a range as this engine's entries are written; most write them as they are encoded."""
        return bound

    @abstractmethod
    async def _scan(
        self, partition: str, shape: Shape, index: int, low: bytes, high: bytes, *, newest_first: bool, limit: int
    ) -> list[tuple[bytes, Record]]:
        """The live records whose index entry lies in low ≤ entry < high, in the order of the entries or backwards."""

    @abstractmethod
    async def _count(self, partition: str, shape: Shape, index: int, low: bytes, high: bytes, cap: int) -> int: ...

    @abstractmethod
    async def _counter(self, partition: str, shape: Shape, counter: int, group: bytes) -> int: ...

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
    async def _stage(self, partition: str, keep_seconds: float) -> int:
        """Begin an upload; answers its number."""

    @abstractmethod
    async def _stage_chunk(self, partition: str, upload: int, number: int, data: bytes, digest: bytes) -> None: ...

    @abstractmethod
    async def _stage_done(self, partition: str, upload: int, blob: Blob, keep_seconds: float) -> None:
        """Give the upload its name; where the partition has the blob already, keep that one and prolong it."""

    @abstractmethod
    async def _stage_undo(self, partition: str, upload: int) -> None: ...

    @abstractmethod
    async def _blob(self, partition: str, digest: str) -> tuple[int, int] | None:
        """(number of its upload, size), or None."""

    @abstractmethod
    async def _blob_chunk(self, partition: str, upload: int, number: int) -> tuple[bytes, bytes] | None:
        """(data, SHA-256), or None."""
