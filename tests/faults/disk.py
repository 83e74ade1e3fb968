"""A disk in memory on which SQLite runs, and which fails on command: power cuts, and errors of fsync.

Writes are held back until they are synced. A `Cut` is the disk after a power loss at that moment: all synced writes,
and of the others those that the test chooses: none, or any of them, some torn.
Locks between processes do not exist here, hence the engine's ``shared=False``.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import apsw

from keelbolt.kernel.private_files import ensure_private
from keelbolt.kernel.sqlite.connection import SqliteConnection

SECTOR = 512
_names = itertools.count(1)


@dataclass
class Write:
    offset: int
    data: bytes | None  # None: the file was truncated to ``offset``

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            return
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : self.offset + len(self.data)] = self.data


@dataclass
class File:
    synced: bytearray = field(default_factory=bytearray)
    content: bytearray = field(default_factory=bytearray)
    unsynced: list[Write] = field(default_factory=list)

    def write(self, write: Write) -> None:
        write.apply(self.content)
        self.unsynced.append(write)

    def sync(self) -> None:
        for write in self.unsynced:
            write.apply(self.synced)
        self.unsynced.clear()


@dataclass
class Cut:
    """The files at one moment."""

    files: dict[str, File]
    moment: str  # the operation that SQLite was about to do
    unsynced: int  # writes that are held back

    def after(self, keep: Callable[[Write], Write | None]) -> Disk:
        """Return the disk that the next boot finds if only these unsynced writes survive."""
        disk = Disk()
        for name, file in self.files.items():
            content = bytearray(file.synced)
            for write in file.unsynced:
                kept = keep(write)
                if kept is not None:
                    kept.apply(content)
            disk.files[name] = File(bytearray(content), content)
        return disk


def nothing(_write: Write) -> None:
    """Choose no unsynced write."""


def anything(dice: random.Random) -> Callable[[Write], Write | None]:
    """Choose any subset: disks reorder writes, and tear a write between two sectors."""
    share = dice.random()

    def keep(write: Write) -> Write | None:
        if dice.random() > share:
            return None
        if write.data is not None and len(write.data) > SECTOR and dice.random() < 0.3:
            return Write(write.offset, write.data[: SECTOR * dice.randrange(1, len(write.data) // SECTOR + 1)])
        return write

    return keep


class Disk:
    """Files in memory; ``before`` is called before every write, sync and truncation of a file."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.before: Callable[[str], None] = lambda _what: None
        self.obeys_sync = True
        self.name = f"keelbolt-disk-{next(_names)}"
        self._vfs = _VFS(self)

    def cut(self, moment: str) -> Cut:
        """Return the disk after a power loss at this moment. May be called from ``before``."""
        files = deepcopy(self.files)
        return Cut(files, moment, sum(len(file.unsynced) for file in files.values()))

    def connect(self, path: str) -> SqliteConnection:
        """Connect to a file of this disk; passed to the engine."""
        connection = apsw.Connection(path, vfs=self.name)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        return _Connection(connection)


class _VFS(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(disk.name, "unix", maxpathname=4096)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:  # type: ignore[override]  # noqa: N802
        key = name.filename() if isinstance(name, apsw.URIFilename) else name or f"temporary-{next(_names)}"
        flags[1] = flags[0]
        return _File(self._disk, key)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.files.pop(name, None)

    def xAccess(self, name: str, flags: int) -> bool:  # noqa: N802
        return name in self._disk.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


class _File:
    """Has no base class, so that SQLite finds no shared memory and requires none."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._kind = "wal" if name.endswith("-wal") else "database"
        self._file = disk.files.setdefault(name, File())

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._file.content[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.before(f"write {self._kind}")
        self._file.write(Write(offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.before(f"truncate {self._kind}")
        self._file.write(Write(size, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.before(f"sync {self._kind}")
        if self._disk.obeys_sync:
            self._file.sync()

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._file.content)

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # SQLite assumes this of real disks

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xLock(self, level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xClose(self) -> None:  # noqa: N802
        pass


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class _Connection:
    """An apsw connection with the interface of `sqlite3`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> _Rows:
        try:
            return _Rows(list(self._connection.execute(sql, tuple(parameters))))
        except apsw.Error as error:
            raise _as_sqlite3(error) from error

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> _Rows:
        try:
            return _Rows(list(self._connection.executemany(sql, [tuple(row) for row in rows])))
        except apsw.Error as error:
            raise _as_sqlite3(error) from error

    def close(self) -> None:
        self._connection.close()


def _as_sqlite3(error: apsw.Error) -> sqlite3.Error:
    code = getattr(error, "extendedresult", -1)
    known = code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    translated = sqlite3.DatabaseError(str(error)) if known else sqlite3.OperationalError(str(error))
    translated.sqlite_errorcode = code
    translated.sqlite_errorname = str(apsw.mapping_extended_result_codes.get(code, ""))
    return translated


def failing(at: int) -> Callable[[str], SqliteConnection]:
    """Return a function that connects to real files; the n-th fsync over all connections fails, once."""
    vfs = _FailingVFS(at)

    def connect(path: str) -> SqliteConnection:
        ensure_private(path)
        connection = apsw.Connection(path, vfs=vfs.name)
        connection.set_busy_timeout(10_000)
        return _Connection(connection)

    return connect


class _FailingVFS(apsw.VFS):
    def __init__(self, at: int) -> None:
        self.name = f"keelbolt-fsync-{next(_names)}"
        self.left = at
        super().__init__(self.name, "unix")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _FailingFile(self, name, flags)


class _FailingFile(apsw.VFSFile):
    def __init__(self, vfs: _FailingVFS, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.left -= 1
        if self._vfs.left == 0:
            raise fsync_error()
        super().xSync(flags)


def fsync_error() -> Exception:
    """Return the error that a file system raises when the disk fails."""
    error: Exception = apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
    return error
