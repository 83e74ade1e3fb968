"""Copies a whole store into an empty one, page by page, so that an interrupted copy goes on where it was.

The copier's note lies in the destination and is written with each page, in its transaction: whatever happens, it says
exactly how far the copy is. Until the copy is whole and verified the destination is marked, and nobody can use it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from keelbolt.errors import CopyMismatch, CopyOutdated, DestinationInUse, TransferError
from keelbolt.storage.ids import new_id
from keelbolt.storage.transfer.digests import Digests
from keelbolt.storage.transfer.places import Places
from keelbolt.storage.transfer.ports import Cursor, Page, Source, Transfer
from keelbolt.storage.transfer.rows import TABLES, Row, Table

Phase = Literal["copy", "follow", "verify"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: rows of a table, done and in all (0: not known)."""

    phase: Phase
    table: str
    done: int
    total: int
    bytes: int = 0


Tell = Callable[[Progress], None]


def say_nothing(_: Progress) -> None:
    pass


@dataclass(slots=True)
class Note:
    """What the copier knows when it is started again."""

    copy: str
    source: str
    table: Table | None = TABLES[0]  # None: every table is there
    cursor: Cursor | None = None
    rows: int = 0
    done: dict[str, int] = field(default_factory=dict)  # rows of each table
    follow: bool = False

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Note:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied and found the same on both sides. ``families`` counts the rows of each."""

    copy: str
    rows: int
    families: dict[str, int]
    resumed: bool
    seconds: float = 0.0
    paused_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def begin(destination: Transfer, source: str, *, restart: bool, follow: bool = False) -> tuple[Note, bool]:
    """The note of this copy, and whether it goes on with an earlier one. Refuses a destination with data of its own."""
    text = await destination.note()
    if text is not None:
        note = Note.load(text)
        if not restart:
            if note.source != source:
                raise DestinationInUse(
                    "the destination holds an unfinished copy of another storage; choose another one, or clear it with "
                    "--restart"
                )
            if note.follow != follow:
                raise DestinationInUse(
                    f"the unfinished copy in the destination was begun {'with' if note.follow else 'without'} --follow"
                    "; go on the same way, or begin anew with --restart"
                )
            return note, True
    else:
        mark = await destination.mark()
        if (mark is not None and mark.state != "filling") or await destination.holds_data():
            raise DestinationInUse
    note = Note(new_id(), source, follow=follow)
    await destination.set_mark("filling", note.copy)
    if text is None and await destination.holds_data():  # somebody was quicker
        await destination.set_mark(None)
        raise DestinationInUse
    await destination.wipe()
    await destination.set_note(note.dump())
    return note, False


async def copy_tables(
    source: Source, destination: Transfer, note: Note, *, tell: Tell = say_nothing, digests: Digests | None = None
) -> None:
    """Copy what the note says is missing. The next page is read while one is being written."""
    totals = await source.totals()
    start = TABLES.index(note.table) if note.table is not None else len(TABLES)
    passed = 0
    for table in TABLES[start:]:
        if table != note.table:
            note.table, note.cursor = table, None
        done = note.done.get(table, 0)
        tell(Progress("copy", table, done, totals[table], passed))
        async for page in ahead(source.pages(table, note.cursor)):
            done += len(page.rows)
            note.cursor, note.done[table] = page.cursor, done
            note.rows += len(page.rows)
            await destination.put(table, page.rows, note.dump())
            if digests is not None:
                digests.add(page.rows)
            passed += weight(page.rows)
            tell(Progress("copy", table, done, totals[table], passed))
    note.table = None
    await destination.set_note(note.dump())


async def ahead(pages: AsyncIterator[Page]) -> AsyncIterator[Page]:
    """The pages, each one asked for while the one before it is used."""
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
    """The payload of some rows, in bytes."""
    return sum(
        len(value) for row in rows if (value := getattr(row, "body", None) or getattr(row, "data", None)) is not None
    )


async def digests_of(source: Source, *, skip: Places | None = None, tell: Tell = say_nothing) -> Digests:
    """Read everything and add it up, except what lies at the places to skip."""
    totals = await source.totals()
    digests = Digests()
    for table in TABLES:
        done = 0
        async for page in ahead(source.pages(table)):
            digests.add(page.rows if skip is None else skip.without(page.rows))
            done += len(page.rows)
            tell(Progress("verify", table, done, totals[table]))
    return digests


async def verify(source: Digests, destination: Transfer, *, tell: Tell = say_nothing, outdated: bool = False) -> None:
    """Compare what was read with what is there now. ``outdated``: the source may have changed since it was copied."""
    async with destination.reading() as written:
        compare(source, await digests_of(written, tell=tell), outdated=outdated)


def compare(source: Digests, destination: Digests, *, outdated: bool = False) -> None:
    """Raise when both sides are not the same."""
    if differing := source.differing(destination):
        raise mismatch(differing, outdated=outdated)


def mismatch(differing: Sequence[str], *, outdated: bool = False) -> TransferError:
    """What to raise when these families differ."""
    names = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
    if outdated:
        return CopyOutdated(
            f"the source was changed after this copy was begun ({names}); copy it with --follow, or anew with --restart"
        )
    return CopyMismatch(f"the copy is not what was copied ({names}); do not use it, and copy anew with --restart")


async def finish(source: Source, destination: Transfer) -> None:
    """Let the destination be used. Its fences go on above those of the source."""
    await destination.raise_fence(await source.last_fence())
    await destination.release()


async def copy_once(
    source: Transfer, destination: Transfer, *, restart: bool = False, tell: Tell = say_nothing
) -> Copied:
    """Copy the store as it is at one moment; who writes to it meanwhile is not disturbed and not copied."""
    note, resumed = await begin(destination, source.place(), restart=restart)
    async with source.reading() as reading:
        digests = Digests()
        await copy_tables(reading, destination, note, tell=tell, digests=digests)
        if resumed:  # what an earlier run has copied may have changed since: read all of it again
            digests = await digests_of(reading, tell=tell)
        await verify(digests, destination, tell=tell, outdated=resumed)
        await finish(reading, destination)
    return Copied(note.copy, note.rows, {name: count for name, (count, _) in digests.families.items()}, resumed)
