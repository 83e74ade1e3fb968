"""Copies of whole stores, between any two engines, and backups in one file.

async with open_storage("sqlite:///agent.db") as source, open_storage("postgresql://…") as destination:
    print(await copy_storage(source, destination))
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from keelbolt.errors import BadBackup, NotTransferable
from keelbolt.kernel.base_kernel import BaseKernel
from keelbolt.kernel.contract import Kernel
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.sqlite.export import FileSource
from keelbolt.kernel.sqlite.transfer import is_sqlite, open_backup
from keelbolt.kernel.transfer.backup import is_portable, new_file, read_backup, write_backup
from keelbolt.kernel.transfer.copy import (
    Copied,
    CopyProgress,
    Tell,
    begin,
    copy_store,
    copy_tables,
    digests_of,
    finish,
    say_nothing,
    verify,
)
from keelbolt.kernel.transfer.ports import Source, Transfer
from keelbolt.kernel.transfer.rows import RowDigests
from keelbolt.kernel.urls import open_storage

__all__ = ["Copied", "CopyProgress", "Tell", "backup_storage", "copy_storage", "restore_storage"]


async def copy_storage(
    source: Kernel,
    destination: Kernel,
    *,
    keep_source: bool = False,
    restart: bool = False,
    tell: Tell = say_nothing,
) -> Copied:
    """Copy everything, with versions, seqs and fences, compare both sides, and mark the source as moved.

    Writes to the source are refused during the copy (StoragePaused) and afterwards (StorageMoved). With ``keep_source``
    the source accepts writes again afterwards; SQLite, PostgreSQL and memory then accept them during the copy too, and
    the copy shows the moment at which it began.

    A call after an interruption continues the copy. ``restart`` first clears the leftovers of an unfinished copy from
    the destination.
    """
    started = time.monotonic()
    one, other = _transfer_of(source), _transfer_of(destination)
    if one.place() == other.place():
        raise NotTransferable("source and destination are the same storage; choose another destination")
    copied = await copy_store(one, other, keep_source=keep_source, restart=restart, tell=tell)
    return replace(copied, seconds=time.monotonic() - started)


async def backup_storage(
    kernel: Kernel, file: str | Path, *, portable: bool = False, tell: Tell = say_nothing
) -> Copied:
    """Write the store, as it is at one moment, into a new file.

    A SQLite store becomes a SQLite file unless ``portable`` is set; any other store becomes a portable file, which can
    be restored into any engine. Redis and Valkey have no snapshots, so they refuse writes meanwhile (StoragePaused);
    the other engines accept writes.
    """
    started = time.monotonic()
    transfer = _transfer_of(kernel)
    if portable or not transfer.native:
        assert isinstance(kernel, BaseKernel)
        copied = await write_backup(transfer, kernel.engine, Path(file), tell=tell)
    else:
        with new_file(Path(file)) as partial:
            await transfer.native_backup(partial, _pages(tell))
            async with _reading(partial) as reading:
                digests = await digests_of(reading, tell=tell)  # verifies every checksum in the copy
        copied = Copied(new_id(), _rows(digests), digests.counts(), resumed=False)
    return replace(copied, seconds=time.monotonic() - started)


async def restore_storage(
    file: str | Path, destination: str, *, restart: bool = False, tell: Tell = say_nothing
) -> Copied:
    """Fill the empty storage at this URL from a backup of any kind. The whole backup is checked first."""
    started = time.monotonic()
    place = Path(file)
    kernel = open_storage(destination)
    if not await asyncio.to_thread(place.is_file):
        raise BadBackup(f"there is no file {place.name!r}; check the path")
    if await asyncio.to_thread(is_portable, place):
        async with kernel:
            copied = await read_backup(place, _transfer_of(kernel), restart=restart, tell=tell)
    elif await asyncio.to_thread(is_sqlite, place):
        copied = await _restore_file(place, kernel, restart=restart, tell=tell)
    else:
        raise BadBackup("this file is not a backup made by Keelbolt; name another one")
    return replace(copied, seconds=time.monotonic() - started)


async def _restore_file(place: Path, kernel: Kernel, *, restart: bool, tell: Tell) -> Copied:
    """Restore a SQLite backup: into SQLite as a file copy, into another engine row by row."""
    async with _reading(place) as reading:
        digests = await digests_of(reading, tell=tell)
        assert isinstance(kernel, BaseKernel)
        if await kernel.restore_native(place, _pages(tell)):
            return Copied(new_id(), _rows(digests), digests.counts(), resumed=False)
        async with kernel:
            destination = kernel.transfer()
            note, resumed = await begin(destination, f"backup:{place}", restart=restart)
            await copy_tables(reading, destination, note, tell=tell)
            await verify(digests, destination, tell=tell, outdated=resumed)
            await finish(reading, destination)
    return Copied(note.copy, note.rows, digests.counts(), resumed)


@asynccontextmanager
async def _reading(place: Path) -> AsyncIterator[Source]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="keelbolt-backup")
    backup = await asyncio.to_thread(open_backup, place)
    try:
        yield FileSource(backup, time.time_ns() // 1000, pool)  # as after a boot: engine time is wall time
    finally:
        pool.shutdown()
        backup.close()


def _pages(tell: Tell) -> Callable[[int, int], None]:
    return lambda done, total: tell(CopyProgress("copy", "pages", done, total))


def _rows(digests: RowDigests) -> int:
    return sum(count for count, _ in digests.families.values())


def _transfer_of(kernel: Kernel) -> Transfer:
    if not isinstance(kernel, BaseKernel):
        raise NotTransferable(f"a {type(kernel).__name__} can't be copied: its class is not a BaseKernel")
    return kernel.transfer()
