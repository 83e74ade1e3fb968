"""Copies a whole store into an empty one, page by page, so that an interrupted copy can continue.

The copy's note is in the destination and is written in the transaction of each page, so it always matches the copied
rows. Both stores are marked: the source refuses writes while it is read, and after a move; the destination refuses them
until the copy is complete and verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from keelbolt.errors import (
    CopyMismatch,
    CopyOutdated,
    DestinationInUse,
    StorageError,
    StorageFilling,
    StorageMoved,
    TransferError,
)
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.transfer.ports import Cursor, MarkState, RowPage, Source, Transfer
from keelbolt.kernel.transfer.rows import TABLES, Row, RowDigests, Table

MARK_SECONDS = 60.0  # how long writes are refused after a copier died

Phase = Literal["copy", "verify"]


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of a copy: rows of a table, done and in total (0: unknown)."""

    phase: Phase
    table: str
    done: int
    total: int
    bytes: int = 0


Tell = Callable[[CopyProgress], None]


def say_nothing(_: CopyProgress) -> None:
    pass


@dataclass(slots=True)
class Note:
    """The state of a copy, from which a restarted copier continues."""

    copy: str
    source: str
    table: Table | None = TABLES[0]  # None: all tables are copied
    cursor: Cursor | None = None
    rows: int = 0
    done: dict[str, int] = field(default_factory=dict)  # rows per table

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Note:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a verified copy. ``families`` holds the number of rows of each family."""

    copy: str
    rows: int
    families: dict[str, int]
    resumed: bool
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def begin(destination: Transfer, source: str, *, restart: bool) -> tuple[Note, bool]:
    """Return the note of this copy, and whether it resumes an earlier one. Raise DestinationInUse if data exists."""
    text = await destination.note()
    if text is not None:
        note = Note.load(text)
        if not restart:
            if note.source != source:
                raise DestinationInUse(
                    "the destination holds an unfinished copy of another storage; choose another one, or clear it with "
                    "--restart"
                )
            return note, True
    else:
        mark = await destination.mark()
        if (mark is not None and mark.state != "filling") or await destination.holds_data():
            raise DestinationInUse
    note = Note(new_id(), source)
    await destination.set_mark("filling", note.copy)
    if text is None and await destination.holds_data():  # another process has written to it meanwhile
        await destination.set_mark(None, note.copy)
        raise DestinationInUse
    await destination.wipe()
    await destination.set_note(note.dump())
    return note, False


async def copy_tables(
    source: Source, destination: Transfer, note: Note, *, tell: Tell = say_nothing, digests: RowDigests | None = None
) -> None:
    """Copy the rows that the note does not cover yet. Reads the next page while one is being written."""
    totals = await source.totals()
    start = TABLES.index(note.table) if note.table is not None else len(TABLES)
    passed = 0
    for table in TABLES[start:]:
        if table != note.table:
            note.table, note.cursor = table, None
        done = note.done.get(table, 0)
        tell(CopyProgress("copy", table, done, totals[table], passed))
        async for page in ahead(source.pages(table, note.cursor)):
            done += len(page.rows)
            note.cursor, note.done[table] = page.cursor, done
            note.rows += len(page.rows)
            await destination.put(table, page.rows, note.dump())
            if digests is not None:
                digests.add(page.rows)
            passed += weight(page.rows)
            tell(CopyProgress("copy", table, done, totals[table], passed))
    note.table = None
    await destination.set_note(note.dump())


async def ahead(pages: AsyncIterator[RowPage]) -> AsyncIterator[RowPage]:
    """Return the pages; each one is fetched while the previous one is processed."""
    coming = asyncio.ensure_future(anext(pages, None))
    try:
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(anext(pages, None))
            yield page
    finally:
        if not coming.done():
            coming.cancel()
        await asyncio.wait([coming])
        if not coming.cancelled():
            coming.exception()


def weight(rows: Sequence[Row]) -> int:
    """Return the payload size of the rows in bytes."""
    return sum(
        len(value) for row in rows if (value := getattr(row, "body", None) or getattr(row, "data", None)) is not None
    )


async def digests_of(source: Source, *, tell: Tell = say_nothing) -> RowDigests:
    """Read the whole store and compute its digests."""
    totals = await source.totals()
    digests = RowDigests()
    for table in TABLES:
        done = 0
        async for page in ahead(source.pages(table)):
            digests.add(page.rows)
            done += len(page.rows)
            tell(CopyProgress("verify", table, done, totals[table]))
    return digests


async def verify(
    source: RowDigests, destination: Transfer, *, tell: Tell = say_nothing, outdated: bool = False
) -> None:
    """Compare the source's digests with the destination. ``outdated``: the source may have changed since the copy."""
    async with destination.reading() as written:
        differing = source.differing(await digests_of(written, tell=tell))
    if not differing:
        return
    names = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
    if outdated:
        raise CopyOutdated(f"the source has changed since this copy started ({names}); copy again with --restart")
    raise CopyMismatch(f"the copy differs from the source ({names}); do not use it, and copy again with --restart")


async def finish(source: Source, destination: Transfer) -> None:
    """Open the destination for use. Its fences continue above those of the source."""
    await destination.raise_fence(await source.last_fence())
    await destination.release()


async def copy_store(
    source: Transfer,
    destination: Transfer,
    *,
    keep_source: bool = False,
    restart: bool = False,
    tell: Tell = say_nothing,
) -> Copied:
    """Copy the whole store, compare both sides, and mark the source as moved.

    The source refuses writes meanwhile. With ``keep_source`` it accepts them again afterwards; an engine with snapshots
    then accepts writes during the copy too, and the copy contains the state at its start.
    """
    text = await destination.note()
    copy = Note.load(text).copy if text is not None and not restart else None
    stopped = await _stopped(source, copy, keep_source=keep_source, restart=restart)
    note, resumed = await begin(destination, source.place(), restart=restart)
    guard: AbstractAsyncContextManager[None] = contextlib.nullcontext()
    if not stopped and not (keep_source and source.snapshots):
        guard = writing_refused(source, note.copy, then=None if keep_source else "moved")
    async with guard, source.reading() as reading:
        digests = RowDigests()
        await copy_tables(reading, destination, note, tell=tell, digests=digests)
        if resumed:  # rows copied by an earlier run may have changed: read everything again
            digests = await digests_of(reading, tell=tell)
        await verify(digests, destination, tell=tell, outdated=resumed)
        await destination.raise_fence(await reading.last_fence())
    await destination.release()
    return Copied(note.copy, note.rows, digests.counts(), resumed)


async def _stopped(source: Transfer, copy: str | None, *, keep_source: bool, restart: bool) -> bool:
    """Return whether the source refuses writes permanently. Raise if it can't be copied."""
    mark = await source.mark()
    if mark is None or mark.copy == copy:
        return mark is not None and mark.state == "moved"
    if mark.state == "filling":
        raise StorageFilling
    if mark.state == "moved":
        if not keep_source:
            raise StorageMoved
        return True
    if not restart:
        raise TransferError(
            "another copy or backup of this source is being made, or was killed within the last minute; wait for it, "
            "or replace it with --restart"
        )
    return False


@contextlib.asynccontextmanager
async def writing_refused(source: Transfer, copy: str, *, then: MarkState | None = None) -> AsyncIterator[None]:
    """Refuse writes to a store while it is read, and mark it with ``then`` at the end.

    Raise CopyOutdated if writes were possible in between. The mark of a copier that died expires.
    """
    await source.set_mark("copying", copy, seconds=MARK_SECONDS)
    ended = asyncio.Event()
    renewing = asyncio.ensure_future(_renew(source, copy, ended))
    try:
        yield
        ended.set()
        await renewing  # a renewal in progress must not overwrite the next mark
        await source.set_mark(then, copy, if_held=True)
    except BaseException:
        ended.set()
        await asyncio.wait([renewing])
        with contextlib.suppress(StorageError):  # an unreachable source accepts writes again when the mark expires
            await source.set_mark(None, copy, if_held=True)
        raise


async def _renew(source: Transfer, copy: str, ended: asyncio.Event) -> None:
    while not ended.is_set():
        with contextlib.suppress(StorageError):  # the last `set_mark` checks whether the mark held throughout
            await source.set_mark("copying", copy, seconds=MARK_SECONDS, if_held=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), MARK_SECONDS / 3)
