"""Copies of whole stores, between any two engines, and backups in one file.

async with open_storage("sqlite:///agent.db") as source, open_storage("postgresql://…") as destination:
    print(await copy_storage(source, destination))
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from keelbolt.errors import BadBackup, NotTransferable
from keelbolt.storage.contract import Kernel
from keelbolt.storage.front import Front
from keelbolt.storage.ids import new_id
from keelbolt.storage.sqlite.backup import is_sqlite, open_backup
from keelbolt.storage.sqlite.export import FileSource
from keelbolt.storage.transfer.backup import is_portable, new_file, read_backup, write_backup
from keelbolt.storage.transfer.copy import (
    Copied,
    Progress,
    Tell,
    begin,
    copy_once,
    copy_tables,
    digests_of,
    finish,
    say_nothing,
    verify,
)
from keelbolt.storage.transfer.digests import Digests
from keelbolt.storage.transfer.follow import BACKUP_FOLLOWED_SECONDS, copy_and_follow
from keelbolt.storage.transfer.ports import Source, Transfer
from keelbolt.storage.urls import open_storage

__all__ = ["Copied", "Progress", "Tell", "backup_storage", "copy_storage", "restore_storage"]


async def copy_storage(
    source: Kernel,
    destination: Kernel,
    *,
    follow: bool = False,
    resume_source: bool = False,
    restart: bool = False,
    tell: Tell = say_nothing,
) -> Copied:
    """Copy everything, with its versions, seqs and fences, and compare both sides.

    Without ``follow`` the copy is of one moment, and what is written later is not in it.

    Called again after an interruption, it goes on. With ``follow`` the source may be written meanwhile; it is paused
    for a moment at the end and then marked as moved, or goes on (``resume_source``). ``restart`` clears what an
    unfinished copy has left in the destination.
    """
    started = time.monotonic()
    one, other = _transfer_of(source), _transfer_of(destination)
    if one.place() == other.place():
        raise NotTransferable("source and destination are the same storage; choose another destination")
    if follow:
        copied = await copy_and_follow(one, other, restart=restart, resume_source=resume_source, tell=tell)
    elif not await _stands_still(one):
        copied = await copy_and_follow(one, other, restart=restart, move=False, tell=tell)
    else:
        copied = await copy_once(one, other, restart=restart, tell=tell)
    return replace(copied, seconds=time.monotonic() - started)


async def backup_storage(
    kernel: Kernel, file: str | Path, *, portable: bool = False, tell: Tell = say_nothing
) -> Copied:
    """Write the store, as it is at one moment, into a new file; others may go on writing.

    A SQLite store becomes a SQLite file, unless ``portable`` is asked for; every other one a portable file, which can
    be restored into any engine.
    """
    started = time.monotonic()
    transfer = _transfer_of(kernel)
    if portable or not transfer.native:
        assert isinstance(kernel, Front)
        async with _still(transfer, tell) as (still, paused):
            copied = await write_backup(still, kernel.engine, Path(file), tell=tell)
        copied = replace(copied, paused_seconds=paused)
    else:
        with new_file(Path(file)) as partial:
            await transfer.native_backup(partial, _pages(tell))
            async with _reading(partial) as reading:
                digests = await digests_of(reading, tell=tell)  # every checksum in it is looked at
        copied = Copied(new_id(), _rows(digests), _families(digests), resumed=False)
    return replace(copied, seconds=time.monotonic() - started)


async def restore_storage(
    file: str | Path, destination: str, *, restart: bool = False, tell: Tell = say_nothing
) -> Copied:
    """Fill the empty storage at this URL from a backup of any kind, all of which is checked first."""
    started = time.monotonic()
    place = Path(file)
    kernel = open_storage(destination)
    if not await asyncio.to_thread(place.is_file):
        raise BadBackup(f"there is no file {place.name!r}; look at the path")
    if await asyncio.to_thread(is_portable, place):
        async with kernel:
            copied = await read_backup(place, _transfer_of(kernel), restart=restart, tell=tell)
    elif await asyncio.to_thread(is_sqlite, place):
        copied = await _restore_file(place, kernel, restart=restart, tell=tell)
    else:
        raise BadBackup("this file is not a backup made by Keelbolt; name another one")
    return replace(copied, seconds=time.monotonic() - started)


async def _restore_file(place: Path, kernel: Kernel, *, restart: bool, tell: Tell) -> Copied:
    """A SQLite file into SQLite as it is, and into another engine row by row."""
    async with _reading(place) as reading:
        digests = await digests_of(reading, tell=tell)
        assert isinstance(kernel, Front)
        if await kernel.restore_native(place, _pages(tell)):
            return Copied(new_id(), _rows(digests), _families(digests), resumed=False)
        async with kernel:
            destination = kernel.transfer()
            note, resumed = await begin(destination, f"backup:{place}", restart=restart)
            await copy_tables(reading, destination, note, tell=tell)
            await verify(digests, destination, tell=tell, outdated=resumed)
            await finish(reading, destination)
    return Copied(note.copy, note.rows, _families(digests), resumed)


async def _stands_still(transfer: Transfer) -> bool:
    """Whether what is read from it is of one moment: it shows one, or nobody writes to it."""
    if transfer.moments:
        return True
    mark = await transfer.mark()
    return mark is not None and mark.state in ("moved", "filling")


@asynccontextmanager
async def _still(transfer: Transfer, tell: Tell) -> AsyncIterator[tuple[Transfer, float]]:
    """The store, or, where it has no moments, a copy of one, in a temporary file: a backup can't take changes back.

    And for how many seconds writing paused.
    """
    if await _stands_still(transfer):
        yield transfer, 0.0
        return
    with tempfile.TemporaryDirectory(prefix="keelbolt-backup-") as folder:
        async with open_storage(f"sqlite:///{folder}/moment.db?durability=relaxed") as kernel:
            still = _transfer_of(kernel)
            followed = BACKUP_FOLLOWED_SECONDS
            copied = await copy_and_follow(transfer, still, move=False, followed_seconds=followed, tell=tell)
            yield still, copied.paused_seconds


@asynccontextmanager
async def _reading(place: Path) -> AsyncIterator[Source]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="keelbolt-backup")
    backup = await asyncio.to_thread(open_backup, place)
    try:
        yield FileSource(backup, time.time_ns() // 1000, pool)  # after a boot a file's time is the wall's
    finally:
        pool.shutdown()
        backup.close()


def _pages(tell: Tell) -> Callable[[int, int], None]:
    return lambda done, total: tell(Progress("copy", "pages", done, total))


def _rows(digests: Digests) -> int:
    return sum(count for count, _ in digests.families.values())


def _families(digests: Digests) -> dict[str, int]:
    return {name: count for name, (count, _) in digests.families.items()}


def _transfer_of(kernel: Kernel) -> Transfer:
    if not isinstance(kernel, Front):
        raise NotTransferable(f"a {type(kernel).__name__} can't be copied: it is not built on Front")
    return kernel.transfer()
