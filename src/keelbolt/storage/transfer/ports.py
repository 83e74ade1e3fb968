"""What an engine offers so that its whole store can be read and written.

A third-party engine that offers nothing of this works like any other; it only can't be copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from keelbolt.storage.marks import Mark, MarkState
from keelbolt.storage.transfer.rows import Row, Table

PAGE_ROWS = 2000
PAGE_BYTES = 4 * 1024 * 1024

Cursor = list[str | int]


class Page(NamedTuple):
    """Some rows of a table, and where to go on after them."""

    rows: Sequence[Row]
    cursor: Cursor


class Source(ABC):
    """A store as it was at one moment, or, of an engine without snapshots, as it is when a row is read."""

    @abstractmethod
    async def totals(self) -> dict[Table, int]:
        """How many rows each table has, for a progress bar."""

    @abstractmethod
    def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[Page]:
        """All rows of a table, in pages of PAGE_ROWS or PAGE_BYTES, in an order that does not change."""

    @abstractmethod
    async def last_fence(self) -> int:
        """No fence that was ever given out is greater."""


class Transfer(ABC):
    """The store of an engine, for a copier."""

    @abstractmethod
    def place(self) -> str:
        """Names this store among all stores; no secret is in it."""

    @abstractmethod
    def reading(self) -> AbstractAsyncContextManager[Source]:
        """The store as it is now, for as long as the context lasts, unless the engine has no snapshots."""

    snapshots = True  # whether `reading` shows one moment; if not, writers are stopped while it is read
    native = False  # whether the engine has its own kind of backup

    async def native_backup(self, file: Path, tell: Callable[[int, int], None]) -> None:
        """Write the engine's own kind of backup into a new file; calls ``tell`` with pages done and in all."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- writing

    @abstractmethod
    async def holds_data(self) -> bool: ...

    @abstractmethod
    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        """Write rows and the copier's note, which never says more than what is there.

        Records of an unknown collection, entries without their stream, chunks and holders without their blob are left
        out: the source changed between two runs of the copier, which the comparison at the end reports. A row that is
        there already shows the same, and is written over or raises CopyOutdated.
        """

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
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        """Mark the store, or remove its mark. When this returns, everything that was written before is visible and
        everything that is written later obeys the mark. With ``if_held``, the store is marked only if this copy's mark
        has held until now; else CopyOutdated is raised.
        """

    @abstractmethod
    async def release(self) -> None:
        """Take the copier's note and the mark away, in one transaction."""
