"""The interface by which an engine's whole store is read and written, and the mark by which a store refuses writes.

The interface is optional: a third-party engine without it works, but can't be copied.

Every engine checks the mark before it writes. Reads are never refused, and leases can still be renewed.

| state | commits and claims | ends |
|---|---|---|
| copying | refused; may be retried | when the copier stops renewing it |
| moved | refused | never |
| filling | refused, except the copier's | when the copy is complete |
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from keelbolt.errors import CopyOutdated, StorageFilling, StorageMoved, StoragePaused, StorageUnavailable
from keelbolt.kernel.transfer.rows import Row, Table

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
        """Remove the copy's note and the mark in one transaction. Declare collections of this process that it lacks."""


# --------------------------------------------------------------------------------------------------------- write blocks


MarkState = Literal["copying", "moved", "filling"]
MARK = "mark"  # its key in an engine's settings

_REFUSALS: dict[str, type[StorageUnavailable]] = {
    "copying": StoragePaused,
    "moved": StorageMoved,
    "filling": StorageFilling,
}


@dataclass(frozen=True, slots=True)
class WriteBlock:
    """``copy`` is the id of the copy that set it; ``until`` is the engine's time at which it ends (None: never)."""

    state: MarkState
    copy: str
    until: int | None = None

    def over(self, now: int) -> bool:
        return self.until is not None and now >= self.until

    def refusal(self, now: int) -> StorageUnavailable | None:
        """Return the error for a write at this time, or None if writes are allowed."""
        return None if self.over(now) else _REFUSALS[self.state]()

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str | None) -> WriteBlock | None:
        return cls(**json.loads(text)) if text else None


def changed_mark(
    old: WriteBlock | None, state: MarkState | None, copy: str, *, now: int, seconds: float | None, if_held: bool
) -> WriteBlock | None:
    """Return the new mark. With ``if_held``, raise CopyOutdated unless ``old`` is valid and belongs to this copy."""
    if if_held and (old is None or old.over(now) or old.copy != copy):
        raise lapsed()
    if state is None:
        return None
    return WriteBlock(state, copy, None if seconds is None else now + int(seconds * 1_000_000))


def lapsed() -> CopyOutdated:
    return CopyOutdated("writes were possible for a while before the copy was complete; copy again with --restart")
