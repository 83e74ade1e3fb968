"""Where the file lies: whether it may be there, who may write now, and a reserve for the day the disk is full."""

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
ROOM_BYTES = 1024 * 1024  # when so much is free, a disk without a reserve is full no more
RESERVE_BYTES = 24 * 1024 * 1024  # three times what the write-ahead log keeps

_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "lustre"))
_ESCAPED = re.compile(r"\\(\d{3})")  # the list of mounts writes a space as \040


def check_place(path: Path) -> None:
    """Refuse a place where a database can't be kept safely, with the reason."""
    if path.resolve() in _inherited:
        raise Forked(
            f"{path.name!r} was open in the parent process at its fork(), so it can't be opened here; fork before "
            "opening it, or start processes with the 'spawn' or 'forkserver' method"
        )
    folder = path.parent
    try:
        _check_files(path, folder)
    except OSError as error:  # a name that is too long, a directory on the way that can't be entered
        raise StorageMissing(f"{path.name[:80]!r} can't be reached: {error.strerror}; choose another place") from None
    kind = filesystem(folder)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"{path.name!r} lies on a network filesystem ({kind}), where locks and fsync can't be trusted; use a local "
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
    """The kind of filesystem that a folder lies on ('' where it can't be told)."""
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

    SQLite's own waiting is a lottery by sleeping. Here the first who waits at the door takes the place before it, and
    whoever has just written and finds that place taken steps back for a moment instead of pushing in again. (Only for a
    moment: the one who waits may have been stopped.)

    A mark on the door says that somebody is writing. Who finds it there knows that the last one died in the middle, and
    notes the round of the write-ahead log (its salt): frames may be left over in it that were never acknowledged.
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
        """Wait so long (0: not at all), then raise StorageBusy; None: as long as it takes."""
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
        with contextlib.suppress(OSError):  # a full disk: there was no mark yet, and now there is none
            os.pwrite(self._door, _WRITING, 0)

    def release(self, *, sound: bool = True) -> None:
        """``sound`` is False when writing failed in the middle."""
        if sound:
            with contextlib.suppress(OSError):
                os.pwrite(self._door, _IDLE, 0)
        fcntl.flock(self._door, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While a file is opened: who can't have it in time gets StorageBusy."""
        self.acquire(seconds=OPEN_SECONDS)
        try:
            yield
        finally:
            self.release()

    def distrust(self) -> None:
        """Note that the present round of the write-ahead log may hold leftovers. Call it with the lock held."""
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
    """Wait for the lock in a thread, since flock has no time-out. Returns whether the lock was taken in time.

    Only a waiting flock is in the operating system's queue: trying again and again finds no gap between busy writers.
    """
    own = os.dup(file)  # the same lock; the caller may close its descriptor after the time-out
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
    """In a forked child: let go of the parent's locks, or they would outlive it.

    And remember the files: SQLite's memory of them was copied too, and says that this process has locks it has not.
    """
    for lock in tuple(_locks):
        _inherited.add(lock.path)
        lock.close()


os.register_at_fork(after_in_child=_inherit)


class Reserve:
    """A file that only takes up space, given back when the disk is full so that releasing and deleting still work.

    While it is given back (its file is there, but empty) every process on the database writes nothing else, or one of
    them would fill what another one has given back.
    """

    def __init__(self, path: str, size: int = RESERVE_BYTES) -> None:
        self._path = Path(path)
        self._size = size

    def keep(self) -> bool:
        """Take up the space, if there is enough; answers whether it is taken."""
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
        """Give the space back; answers whether there was any."""
        with contextlib.suppress(OSError):
            size = self._path.stat().st_size
            os.truncate(self._path, 0)
            return size > 0
        return False

    def given_back(self) -> bool:
        """Whether it was given back, by this process or another one."""
        try:
            return self._path.stat().st_size == 0
        except OSError:
            return False

    def room(self) -> bool:
        """Whether there is space enough to write again, and the reserve is taken again if there was one."""
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
