"""Copies a store that is in use, follows its commits, and takes its place after a short pause of writing.

While the source is marked as followed, every commit notes what it touches. A round reads what was noted, then the rows
themselves, as they are now, and writes them into the copy; what it has done it forgets. When a round is small the
source is paused, a last round is made, and the copy takes its place.

Both sides are compared in two steps, so that the pause is short whatever the size: before it all that nobody touches
just then, in it what was touched since. This holds for engines with and without moments: what a reading sees changed,
or misses, because somebody wrote while it went on, was touched.

Both marks end by themselves: a copier that dies leaves a source that works, after a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from keelbolt.errors import CopyOutdated, StorageFilling, StorageMoved, TransferError
from keelbolt.storage.marks import MarkState
from keelbolt.storage.transfer.balance import BALANCED, Balance
from keelbolt.storage.transfer.copy import (
    Copied,
    Note,
    Progress,
    Tell,
    ahead,
    begin,
    compare,
    copy_tables,
    digests_of,
    mismatch,
    say_nothing,
    weight,
)
from keelbolt.storage.transfer.places import Places
from keelbolt.storage.transfer.ports import PAGE_BYTES, PAGE_ROWS, LiveSource, Place, Transfer
from keelbolt.storage.transfer.rows import BlobRow, ChunkRow, Kind, PartitionRow, Row, StreamRow, Table, Touched

FOLLOWED_SECONDS = 3600.0  # how long a dead copier may be started again and go on
RENEW_SECONDS = 60.0
BACKUP_FOLLOWED_SECONDS = 3 * RENEW_SECONDS  # a backup does not go on
PAUSE_SECONDS = 30.0  # how long writing pauses when the copier dies
ROUND_ROWS = 2000
EVERYTHING = 1 << 31
SMALL_ROUND = 500  # so many changes are copied in the pause
ROUNDS = 1000  # a source that is written faster than it can be copied is paused all the same
STEADY_ROUNDS = 5  # and so is one of which a round takes everything, and as much is there again

_NAMES: dict[Table, str] = {
    "collection": "collections",
    "partition": "partitions",
    "record": "records",
    "stream": "streams",
    "entry": "log entries",
    "work": "work items",
    "blob": "blobs",
    "chunk": "chunks of blobs",
    "holding": "holders of blobs",
}


@dataclass(slots=True)
class _Follower:
    source: Transfer
    destination: Transfer
    note: Note
    tell: Tell
    resumed: bool
    seconds: float  # how long the source is followed when nobody renews it
    changes: int = 0
    unchecked: Places = field(default_factory=Places)

    async def start(self) -> None:
        """Have commits noted. Whoever goes on must find that they were noted all the time."""
        if self.resumed:
            await self.renew()
            return
        await self._set("followed")
        await self.source.forget_all()  # left over from a copy that was given up

    async def renew(self) -> None:
        await self._still_noted()
        await self._set("followed")

    async def pause(self) -> None:
        await self._still_noted()
        await self._set("paused")

    async def _set(self, state: MarkState) -> None:
        await self.source.set_mark(state, self.note.copy, seconds=self.seconds, pause=PAUSE_SECONDS)

    async def _still_noted(self) -> None:
        """The mark may have ended while this process slept, or another copier may have taken over."""
        mark = await self.source.mark()
        if mark is None or mark.copy != self.note.copy:
            raise CopyOutdated(
                "the source was not followed for a while, so changes were missed; begin anew with --restart"
            )

    async def catch_up(self) -> int:
        """One round; answers how much was touched."""
        touched = await self.source.touched(ROUND_ROWS)
        if touched:
            async with self.source.reading() as reading:  # begun after the notes were read: it sees what they name
                await self.apply(reading, touched)
            await self.source.forget(touched)
            self.unchecked.add(touched)
            self.changes += len(touched)
            self.tell(Progress("follow", "changes", self.changes, 0))
        return len(touched)

    async def catch_up_nearly(self) -> None:
        steady = 0
        for _ in range(ROUNDS):
            touched = await self.catch_up()
            steady = steady + 1 if touched < ROUND_ROWS else 0
            if touched < SMALL_ROUND or steady == STEADY_ROUNDS:
                return

    async def check_the_rest(self) -> None:
        """Compare what nobody has touched since the last round; the others are to be compared in the pause."""
        self.unchecked = Places()
        if not self.source.moments:
            self.unchecked.add(await self._balance())
            return
        async with self.source.reading() as reading, self.destination.reading() as written:
            self.unchecked.add(await self.source.touched(EVERYTHING))  # all that the moment of reading may have more
            here = await digests_of(reading, skip=self.unchecked, tell=self.tell)
            compare(here, await digests_of(written, skip=self.unchecked, tell=self.tell))

    async def _balance(self) -> Sequence[Touched]:
        """Compare place by place; answers those that were touched until the end."""
        with contextlib.closing(Balance()) as balance:
            async with self.source.reading() as reading, self.destination.reading() as written:
                for source, enter in ((reading, balance.add), (written, balance.take)):
                    totals = await source.totals()
                    for table in BALANCED:
                        done = 0
                        async for page in ahead(source.pages(table)):
                            enter(page.rows)
                            done += len(page.rows)
                            self.tell(Progress("verify", table, done, totals[table]))
            touched = await self.source.touched(EVERYTHING)  # after the last row was read: all that may be other there
            if differing := balance.unequal(touched):
                raise mismatch(differing)
            return touched

    async def check_more(self) -> None:
        """Compare what was touched and is at rest now, until little is left for the pause, or it no longer shrinks."""
        before = EVERYTHING
        while SMALL_ROUND < (left := len(self.unchecked)) < before:
            before = left
            places, self.unchecked = self.unchecked, Places()
            with contextlib.closing(Balance()) as balance:
                async with self.source.reading() as reading, self.destination.reading() as written:
                    async for rows in places.rows(reading):
                        balance.add(rows)
                    async for rows in places.rows(written):
                        balance.take(rows)
                touched = await self.source.touched(EVERYTHING)
                if differing := balance.unequal(touched):
                    raise mismatch(differing)
            self.unchecked.add(touched)
            await self.catch_up_nearly()

    async def check_the_touched(self) -> None:
        """Compare the others."""
        async with self.source.reading() as reading, self.destination.reading() as written:
            here = await self.unchecked.digests(reading)
            compare(here, await self.unchecked.digests(written))

    async def families(self) -> dict[str, int]:
        """How many rows the copy has, by table."""
        async with self.destination.reading() as written:
            return {_NAMES[table]: count for table, count in (await written.totals()).items()}

    async def apply(self, reading: LiveSource, touched: Sequence[Touched]) -> None:
        places: dict[Kind, dict[Place, bool]] = {"record": {}, "stream": {}, "work": {}, "blob": {}}
        for each in touched:
            known = places[each.kind]
            place = (each.partition, each.family, each.name)
            known[place] = known.get(place, False) or each.reset
        await self._collections(reading)
        note = self.note.dump()
        # Also one in which nothing is left: it was written once.
        partitions = sorted({each.partition for each in touched})
        await self.destination.put("partition", [PartitionRow(name) for name in partitions], note, replace=True)
        for kind in ("record", "work"):
            rows = await reading.find(kind, tuple(places[kind]))
            found = {(row[0], row[1], row[2]) for row in rows}  # type: ignore[misc]
            if gone := [place for place in places[kind] if place not in found]:
                await self.destination.remove(kind, gone)
            if rows:
                await self.destination.put(kind, rows, note, replace=True)
        await self._streams(reading, places["stream"], note)
        await self._blobs(reading, tuple(places["blob"]), note)

    async def _collections(self, reading: LiveSource) -> None:
        """What was declared since, before a record needs it."""
        async for page in reading.pages("collection"):
            await self.destination.put("collection", page.rows, self.note.dump(), replace=True)

    async def _streams(self, reading: LiveSource, places: dict[Place, bool], note: str) -> None:
        if not places:
            return
        rows = await reading.find("stream", tuple(places))
        found = {row[:3]: row for row in rows if isinstance(row, StreamRow)}
        if gone := [place for place, reset in places.items() if reset or place not in found]:
            await self.destination.remove("stream", gone)
        async with self.destination.reading() as written:
            heads = {row[:3]: row for row in await written.find("stream", tuple(found)) if isinstance(row, StreamRow)}
        new = {place: StreamRow(*place, 0, 0) for place in found if place not in heads}
        if new:
            await self.destination.put("stream", tuple(new.values()), note, replace=True)
        heads |= new
        entries: list[Row] = []
        size = 0
        for place, stream in found.items():
            async for page in reading.entries(stream, heads[place].head):
                entries += page
                size += weight(page)
                if len(entries) >= PAGE_ROWS or size >= PAGE_BYTES:
                    await self.destination.put("entry", entries, note, replace=True)
                    entries, size = [], 0
        if entries:
            await self.destination.put("entry", entries, note, replace=True)
        if found:  # they get the heads of their source only when their entries are there
            await self.destination.put("stream", tuple(found.values()), note, replace=True)

    async def _blobs(self, reading: LiveSource, places: Sequence[Place], note: str) -> None:
        if not places:
            return
        blobs = [row for row in await reading.find("blob", places) if isinstance(row, BlobRow)]
        found = {(blob.partition, "", blob.digest) for blob in blobs}
        async with self.destination.reading() as written:
            there = [row for row in await written.find("blob", tuple(found)) if isinstance(row, BlobRow)]
        known = {(blob.partition, blob.digest) for blob in there}
        if gone := [place for place in places if place not in found]:
            await self.destination.remove("blob", gone)
        for blob in blobs:
            # Chunks that are written again are the same: their names are their content.
            if (blob.partition, blob.digest) in known:
                await self.destination.remove("holding", [(blob.partition, "", blob.digest)])
            await self.destination.put("blob", [blob], note, replace=True)
            if (blob.partition, blob.digest) not in known or (self.resumed and not await self._whole(blob)):
                async for chunks in reading.chunks(blob.partition, blob.digest):
                    await self.destination.put("chunk", chunks, note, replace=True)
            if holders := await reading.holders(blob.partition, blob.digest):
                await self.destination.put("holding", holders, note, replace=True)

    async def _whole(self, blob: BlobRow) -> bool:
        """Whether all its bytes are there; a copier that was killed may have written some of them."""
        size = 0
        async with self.destination.reading() as written:
            async for chunks in written.chunks(blob.partition, blob.digest):
                size += sum(len(chunk.data) for chunk in chunks if isinstance(chunk, ChunkRow))
        return size == blob.size


async def copy_and_follow(
    source: Transfer,
    destination: Transfer,
    *,
    restart: bool = False,
    move: bool = True,
    resume_source: bool = False,
    followed_seconds: float = FOLLOWED_SECONDS,
    tell: Tell = say_nothing,
) -> Copied:
    """Copy a store that is in use, until the copy can take its place; or, without ``move``, one moment of it.

    At the end the source is left marked as moved, so that nobody writes to it by mistake; with ``resume_source`` it
    goes on by itself and has nothing more to do with its copy. ``followed_seconds`` is how long it waits for a copier
    that was interrupted.
    """
    await _free_to_follow(source, destination, restart=restart)
    note, resumed = await begin(destination, source.place(), restart=restart, follow=move)
    follower = _Follower(source, destination, note, tell, resumed, followed_seconds)
    await follower.start()
    async with _repeated(follower.renew, RENEW_SECONDS):
        async with source.reading() as reading:
            await copy_tables(reading, destination, note, tell=tell)
        await follower.catch_up_nearly()
        await follower.check_the_rest()
        await follower.catch_up_nearly()
        await follower.check_more()
    paused = time.monotonic()
    try:
        await follower.pause()
        async with _repeated(follower.pause, PAUSE_SECONDS / 3):
            while await follower.catch_up():
                pass
            await follower.check_the_touched()
            async with source.reading() as reading:
                await destination.raise_fence(await reading.last_fence())
        if move and not resume_source:
            await source.set_mark("moved", note.copy)
        await _nothing_slipped_in(source)
    except BaseException:
        with contextlib.suppress(Exception):  # a source that can't be reached ends its pause by itself
            await follower.renew()
        raise
    if resume_source or not move:
        await source.set_mark(None)
    await destination.release()
    seconds = time.monotonic() - paused
    families = await follower.families()
    return Copied(note.copy, note.rows + follower.changes, families, resumed, paused_seconds=seconds)


async def _free_to_follow(source: Transfer, destination: Transfer, *, restart: bool) -> None:
    """Refuse a source that belongs to another copy: two copiers would forget each other's changes."""
    mark = await source.mark()
    text = await destination.note()
    if mark is None or (text is not None and Note.load(text).copy == mark.copy):
        return
    if mark.state == "moved":
        raise StorageMoved
    if mark.state == "filling":
        raise StorageFilling
    if not restart:
        raise TransferError(
            "another copy or backup of this source is being made, or was interrupted within the last hour; let it end, "
            "or give it up: with --restart"
        )


async def _nothing_slipped_in(source: Transfer) -> None:
    """A pause that ended too early let commits pass, but they were noted."""
    if await source.touched(1):
        raise CopyOutdated("the pause of the source ended too early; run the same command again")


@contextlib.asynccontextmanager
async def _repeated(renew: Callable[[], Awaitable[None]], seconds: float) -> AsyncIterator[None]:
    """Keep a mark up while the work goes on."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            await renew()

    task = asyncio.ensure_future(repeat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the mark may have ended: whoever needs it looks at it
