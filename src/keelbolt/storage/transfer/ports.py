"""What an engine offers so that its whole store can be read, written and followed.

A third-party engine that offers nothing of this works like any other; it only can't be copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from keelbolt.storage.marks import Mark, MarkState
from keelbolt.storage.transfer.rows import HoldingRow, Row, StreamRow, Table, Touched

PAGE_ROWS = 2000
PAGE_BYTES = 4 * 1024 * 1024

Cursor = list[str | int]
Place = tuple[str, str, str]  # partition, family, name


class Page(NamedTuple):
    """Some rows of a table, and where to go on after them."""

    rows: Sequence[Row]
    cursor: Cursor


class Source(ABC):
    """A store as it was at one moment, or, of an engine without moments, as it is when a row is read."""

    @abstractmethod
    async def totals(self) -> dict[Table, int]:
        """How many rows each table has, for a progress bar."""

    @abstractmethod
    def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[Page]:
        """All rows of a table, in pages of PAGE_ROWS or PAGE_BYTES, in an order that does not change."""

    @abstractmethod
    async def last_fence(self) -> int:
        """No fence that was ever given out is greater."""


class LiveSource(Source):
    """A source whose changed rows can be read one by one."""

    @abstractmethod
    async def find(self, table: Table, places: Sequence[Place]) -> Sequence[Row]:
        """The records, streams, work items or blobs with these names; a blob's family is empty."""

    @abstractmethod
    def entries(self, stream: StreamRow, after: int) -> AsyncIterator[Sequence[Row]]:
        """The entries of a stream after this seq, in pages."""

    @abstractmethod
    def chunks(self, partition: str, digest: str) -> AsyncIterator[Sequence[Row]]:
        """The chunks of a blob, in pages."""

    @abstractmethod
    async def holders(self, partition: str, digest: str) -> Sequence[HoldingRow]: ...


class Transfer(ABC):
    """The store of an engine, for a copier."""

    @abstractmethod
    def place(self) -> str:
        """Names this store among all stores; no secret is in it."""

    @abstractmethod
    def reading(self) -> AbstractAsyncContextManager[LiveSource]:
        """The store as it is now, for as long as the context lasts, unless the engine has no moments."""

    moments = True  # whether `reading` shows one moment; if not, a store in use must be followed to be copied
    native = False  # whether the engine has its own kind of backup

    async def native_backup(self, file: Path, tell: Callable[[int, int], None]) -> None:
        """Write the engine's own kind of backup into a new file; ``tell`` is told how much of how much is done."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- writing

    @abstractmethod
    async def holds_data(self) -> bool: ...

    @abstractmethod
    async def put(self, table: Table, rows: Sequence[Row], note: str, *, replace: bool = False) -> None:
        """Write rows and the copier's note, which never tells more than what is there.

        Without ``replace`` none of them is there yet. Records of an unknown collection, entries without their stream,
        chunks and holders without their blob are left out: what a store in use has got since, comes with its changes,
        and everything else is missed when both sides are compared.
        """

    @abstractmethod
    async def remove(self, table: Table, places: Sequence[Place]) -> None:
        """Remove records, whole streams, work items, blobs with their chunks and holders, or the holders of blobs."""

    @abstractmethod
    async def raise_fence(self, fence: int) -> None:
        """Every fence given out from now on is greater than this."""

    @abstractmethod
    async def wipe(self) -> None:
        """Remove everything, the copier's note included."""

    # --------------------------------------------------------------------------------------- the note and the mark

    @abstractmethod
    async def note(self) -> str | None: ...

    @abstractmethod
    async def set_note(self, note: str) -> None: ...

    @abstractmethod
    async def mark(self) -> Mark | None:
        """The mark, unless its time is over."""

    @abstractmethod
    async def set_mark(
        self, state: MarkState | None, copy: str = "", *, seconds: float | None = None, pause: float = 0.0
    ) -> None:
        """Mark the store, or take the mark away. When this returns, everything that was written before is visible
        and everything that is written later obeys the mark.
        """

    @abstractmethod
    async def release(self) -> None:
        """Take the copier's note and the mark away, in one transaction."""

    # ---------------------------------------------------------------------------------------------------- follow

    @abstractmethod
    async def touched(self, limit: int) -> Sequence[Touched]:
        """Some of what commits noted while the store was followed; what is forgotten does not come back."""

    @abstractmethod
    async def forget(self, touched: Sequence[Touched]) -> None: ...

    @abstractmethod
    async def forget_all(self) -> None: ...
