"""The location of the file: checks, the write lock, and a reserve of space for a full disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from keelbolt.errors import (
    Forked,
    NetworkFilesystem,
    NotKeelbolt,
    StorageBusy,
    StorageFull,
    StorageMissing,
    StorageReadOnly,
)

STEP_BACK_SECONDS = 0.0002
OPEN_SECONDS = 30.0  # how long opening waits for a writer
ROOM_BYTES = 1024 * 1024  # free space at which a disk without a reserve no longer counts as full
RESERVE_BYTES = 24 * 1024 * 1024  # three times the size that the write-ahead log keeps

_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "lustre"))
_ESCAPED = re.compile(r"\\(\d{3})")  # /proc/mounts writes a space as \040


def check_place(path: Path) -> None:
    """Raise an error with the reason if a database can't be stored safely at this path."""
    if path.resolve() in _inherited:
        raise Forked(
            f"{path.name!r} was open in the parent process at its fork(), so it can't be opened here; fork before "
            "opening it, or start processes with the 'spawn' or 'forkserver' method"
        )
    folder = path.parent
    try:
        _check_files(path, folder)
    except OSError as error:  # for example, the name is too long or a parent directory can't be entered
        raise StorageMissing(f"{path.name[:80]!r} can't be reached: {error.strerror}; choose another place") from None
    kind = filesystem(folder)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"{path.name!r} is on a network filesystem ({kind}), where locks and fsync can't be trusted; use a local "
            "disk, or a server engine"
        )


def _check_files(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise StorageMissing(f"the directory of {path.name!r} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageReadOnly(
            f"the directory of {path.name!r} can't be written; change the permissions or choose another place"
        )
    if path.is_dir():
        raise StorageMissing(f"{path.name!r} is a directory; name a file in it")
    if path.exists():
        if not path.is_file():
            raise NotKeelbolt(f"{path.name!r} is not a regular file; name another one")
        if not os.access(path, os.R_OK | os.W_OK):
            raise StorageReadOnly(f"{path.name!r} can't be written; change the permissions or choose another place")


def filesystem(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of the filesystem that holds a folder, or '' if it is unknown."""
    if not mounts.exists():
        return ""
    best, kind = "", ""
    place = f"{folder.resolve()}/"
    for line in mounts.read_text(errors="replace").splitlines():
        _, mount, name, *_ = line.split(" ")
        mount = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), mount).rstrip("/") + "/"
        if place.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, name
    return kind


_WRITING, _IDLE = b"!", b"."


class WriteLock:
    """Lets the processes on one file write in turn.

    SQLite's own busy handler sleeps and retries, so the order of its writers is random. Here the first waiting process
    holds a second lock. A process that finds this lock taken sleeps for a moment before it waits for the write lock, so
    that the first one gets it. (Only for a moment: the first one may have been stopped.)

    The lock file contains a flag while a process writes. A process that finds the flag set knows that the last writer
    died during a write. It records the salt of the write-ahead log's current generation, which may contain frames that
    were never acknowledged.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path).resolve()
        self.wal = Path(f"{path}-wal")
        self._door = _open_lock(f"{path}-lock")
        try:
            self._turn = _open_lock(f"{path}-turn")
        except BaseException:
            os.close(self._door)
            raise
        _locks.add(self)

    def acquire(self, *, seconds: float | None = None) -> None:
        """Wait up to ``seconds`` (0: no wait, None: no limit), then raise StorageBusy."""
        if seconds is None:
            first = _try_lock(self._turn)
            if not first:
                time.sleep(STEP_BACK_SECONDS)
            fcntl.flock(self._door, fcntl.LOCK_EX)
            if first:
                fcntl.flock(self._turn, fcntl.LOCK_UN)
        elif not _try_lock(self._door) and not (seconds and _lock_within(self._door, seconds)):
            raise StorageBusy
        if os.pread(self._door, 1, 0) == _WRITING:
            self.distrust()
        with contextlib.suppress(OSError):  # on a full disk, the flag was not written before and is not written now
            os.pwrite(self._door, _WRITING, 0)

    def release(self, *, sound: bool = True) -> None:
        """Release the lock. ``sound`` is False if a commit failed midway."""
        if sound:
            with contextlib.suppress(OSError):
                os.pwrite(self._door, _IDLE, 0)
        fcntl.flock(self._door, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock while a file is opened. Raise StorageBusy after OPEN_SECONDS."""
        self.acquire(seconds=OPEN_SECONDS)
        try:
            yield
        finally:
            self.release()

    def distrust(self) -> None:
        """Record that the write-ahead log's current generation may hold unacknowledged frames. Requires the lock."""
        with contextlib.suppress(OSError), self.wal.open("rb") as file:
            os.pwrite(self._door, file.read(32)[16:24], 8)

    def distrusts(self, salt: bytes) -> bool:
        return os.pread(self._door, 8, 8) == salt

    def close(self) -> None:
        _locks.discard(self)
        os.close(self._door)
        os.close(self._turn)


def _open_lock(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull from None
        raise StorageReadOnly(
            f"{Path(path).name!r} can't be written ({error.strerror}); all programs on one file must run as one user"
        ) from None


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_within(file: int, seconds: float) -> bool:
    """Wait for the lock in a thread, since flock has no time-out. Return whether the lock was taken in time.

    Only a waiting flock is in the operating system's queue: repeated attempts find no gap between busy writers.
    """
    own = os.dup(file)  # shares the lock; the caller may close its descriptor after the time-out
    mutex = threading.Lock()
    taken = threading.Event()
    late = False

    def wait() -> None:
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
            with mutex:
                if late:
                    fcntl.flock(own, fcntl.LOCK_UN)
                else:
                    taken.set()
        finally:
            os.close(own)

    threading.Thread(target=wait, daemon=True, name="keelbolt-lock").start()
    taken.wait(seconds)
    with mutex:
        late = not taken.is_set()
        return not late


_locks: weakref.WeakSet[WriteLock] = weakref.WeakSet()
_inherited: set[Path] = set()


def _inherit() -> None:
    """In a forked child: close the parent's locks, which would otherwise outlive the parent.

    Record the files: SQLite's copied state claims locks that this process does not have, so they can't be opened here.
    """
    for lock in tuple(_locks):
        _inherited.add(lock.path)
        lock.close()


os.register_at_fork(after_in_child=_inherit)


class Reserve:
    """A file that occupies space. It is emptied when the disk is full, so that releases and deletes still work.

    While it is empty, no process on the database writes anything else; otherwise one process would fill the space that
    another one has freed.
    """

    def __init__(self, path: str, size: int = RESERVE_BYTES) -> None:
        self._path = Path(path)
        self._size = size

    def keep(self) -> bool:
        """Occupy the space if enough is free. Return whether it is occupied."""
        with contextlib.suppress(OSError):
            known = self._path.exists()
            if known and self._path.stat().st_size >= self._size:
                return True
            if self._free() > 3 * self._size // 2:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    _fill(file, self._size)
                except OSError:
                    os.truncate(file, 0)
                    if not known:
                        self._path.unlink()
                    raise
                finally:
                    os.close(file)
                return True
        return False

    def release(self) -> bool:
        """Free the space. Return whether there was any."""
        with contextlib.suppress(OSError):
            size = self._path.stat().st_size
            os.truncate(self._path, 0)
            return size > 0
        return False

    def given_back(self) -> bool:
        """Return whether this or another process has freed the space."""
        try:
            return self._path.stat().st_size == 0
        except OSError:
            return False

    def room(self) -> bool:
        """Return whether there is enough space to write again. Occupies the reserve again if it was freed."""
        if self.given_back():
            return self.keep()
        with contextlib.suppress(OSError):
            return self._free() > ROOM_BYTES
        return False

    def _free(self) -> int:
        state = os.statvfs(self._path.parent)
        return state.f_bavail * state.f_frsize


def _fill(file: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for start in range(0, size, 1024 * 1024):  # macOS
        os.pwrite(file, bytes(min(1024 * 1024, size - start)), start)
