"""Where the file lies: whether it may be there, who may write now, and a reserve for the day the disk is full."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from holdfast.errors import NetworkFilesystem, StorageBusy, StorageMissing, StorageReadOnly

LOCK_SECONDS = 30.0
RESERVE_BYTES = 16 * 1024 * 1024  # four times what the write-ahead log keeps

_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "lustre"))


def check_place(path: Path) -> None:
    """Refuse a place where a database can't be kept safely, with the reason."""
    folder = path.parent
    if not folder.is_dir():
        raise StorageMissing(f"the directory of {path.name!r} does not exist; create it first")
    if path.is_dir():
        raise StorageMissing(f"{path.name!r} is a directory; name a file in it")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise StorageReadOnly(
            f"{path.name!r} or its directory can't be written; change the permissions or choose another place"
        )
    kind = filesystem(folder)
    if kind in _NETWORK:
        raise NetworkFilesystem(
            f"{path.name!r} lies on a network filesystem ({kind}), where locks and fsync can't be trusted; use a local "
            "disk, or a server engine"
        )


def filesystem(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The kind of filesystem that a folder lies on ('' where it can't be told)."""
    if not mounts.exists():
        return ""
    best, kind = "", ""
    place = f"{folder.resolve()}/"
    for line in mounts.read_text(errors="replace").splitlines():
        _, mount, name, *_ = line.split(" ")
        mount = mount.replace("\\040", " ").rstrip("/") + "/"
        if place.startswith(mount) and len(mount) >= len(best):
            best, kind = mount, name
    return kind


class WriteLock:
    """Lets the processes on one file write in turn.

    SQLite's own waiting is a lottery by sleeping; with a queue in the kernel the slowest of three processes waits a fifth.
    A second thread waits for the lock, so that a holder who was stopped (SIGSTOP) costs a StorageBusy, not a hang.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._mutex = threading.Lock()
        self._waits = False  # somebody wants the lock
        self._keeping = False  # the second thread waits for it
        self._owned = threading.Event()

    def acquire(self, seconds: float = LOCK_SECONDS) -> None:
        with self._mutex:
            if not self._keeping:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._keeping = True
                    threading.Thread(target=self._keep, daemon=True, name="holdfast-lock").start()
                else:
                    return
            self._waits = True
            self._owned.clear()
        owned = self._owned.wait(seconds)
        with self._mutex:
            self._waits = False
            if not owned and not self._owned.is_set():
                raise StorageBusy

    def _keep(self) -> None:
        with contextlib.suppress(OSError):  # closed meanwhile
            fcntl.flock(self._file, fcntl.LOCK_EX)
            with self._mutex:
                self._keeping = False
                if self._waits:
                    self._owned.set()
                else:
                    fcntl.flock(self._file, fcntl.LOCK_UN)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)


class Reserve:
    """A file that only takes up space, given back when the disk is full so that releasing and deleting still work."""

    def __init__(self, path: str, size: int = RESERVE_BYTES) -> None:
        self._path = Path(path)
        self._size = size

    def keep(self) -> bool:
        """Take up the space, if there is enough; answers whether it is taken."""
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size >= self._size:
                return True
            if self._free() > 2 * self._size:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    os.posix_fallocate(file, 0, self._size)
                finally:
                    os.close(file)
                return True
        return False

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)

    def room(self) -> bool:
        """Whether there is space enough to write again and to keep the reserve."""
        with contextlib.suppress(OSError):
            return self._free() > 2 * self._size
        return False

    def _free(self) -> int:
        state = os.statvfs(self._path.parent)
        return state.f_bavail * state.f_frsize
