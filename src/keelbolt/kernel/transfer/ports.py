"""The interface by which an engine's whole store is read and written.

It is optional: a third-party engine without it works, but can't be copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from keelbolt.kernel.transfer.rows import Row, Table
from keelbolt.kernel.write_blocks import MarkState, WriteBlock

PAGE_ROWS = 2000
PAGE_BYTES = 4 * 1024 * 1024

Cursor = list[str | int]


class RowPage(NamedTuple):
    """Rows of a table, and the cursor after them."""

    rows: Sequence[Row]
    cursor: Cursor


class Source(ABC):
    """A snapshot of a store; for an engine without snapshots, each row as it is when it is read."""

    @abstractmethod
    async def totals(self) -> dict[Table, int]:
        """Return the number of rows of each table, for a progress bar."""

    @abstractmethod
    def pages(self, table: Table, after: Cursor | None = None) -> AsyncIterator[RowPage]:
        """Return all rows of a table in pages of PAGE_ROWS or PAGE_BYTES, in a stable order."""

    @abstractmethod
    async def last_fence(self) -> int:
        """Return a number that no issued fence exceeds."""


class Transfer(ABC):
    """Access to an engine's whole store, for copies."""

    @abstractmethod
    def place(self) -> str:
        """Return the unique address of this store, without secrets."""

    @abstractmethod
    def reading(self) -> AbstractAsyncContextManager[Source]:
        """Open a snapshot of the store; without snapshots, its current data."""

    snapshots = True  # whether `reading` is a snapshot; if not, writes are refused during a copy
    native = False  # whether the engine has its own backup format

    async def native_backup(self, file: Path, tell: Callable[[int, int], None]) -> None:
        """Write the engine's own backup format into a new file. Calls ``tell`` with pages done and in total."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- writing

    @abstractmethod
    async def holds_data(self) -> bool: ...

    @abstractmethod
    async def put(self, table: Table, rows: Sequence[Row], note: str) -> None:
        """Write rows and the copy's note. The note never covers rows that are not written.

        Skips records of an unknown collection, entries without their stream, and chunks and holders without their blob:
        the source changed between two runs of the copier, which the final comparison reports. A row that exists already
        is overwritten with the same content, or CopyOutdated is raised.
        """

    @abstractmethod
    async def raise_fence(self, fence: int) -> None:
        """Make all future fences greater than this one."""

    @abstractmethod
    async def wipe(self) -> None:
        """Delete everything, including the copy's note."""

    # --------------------------------------------------------------------------------------- the note and the mark

    @abstractmethod
    async def note(self) -> str | None: ...

    @abstractmethod
    async def set_note(self, note: str) -> None: ...

    @abstractmethod
    async def mark(self) -> WriteBlock | None:
        """Return the mark, or None if it has expired."""

    @abstractmethod
    async def set_mark(
        self, state: MarkState | None, copy: str, *, seconds: float | None = None, if_held: bool = False
    ) -> None:
        """Mark the store, or remove its mark.

        When this returns, all earlier writes are visible, and all later writes obey the mark. With ``if_held``, the
        store is marked only if this copy's mark has held until now; otherwise CopyOutdated is raised.
        """

    @abstractmethod
    async def release(self) -> None:
        """Remove the copy's note and the mark in one transaction."""
