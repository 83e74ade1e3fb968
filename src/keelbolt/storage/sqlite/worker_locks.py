"""One OS lock per worker incarnation, by which the processes on one file notice at once that another one died.

A lease ends by time. But when a process dies, the operating system frees its locks at that moment: a lock file that is
there and free belongs to a dead process, and the leases of its worker are over. A process that is stopped or hangs
keeps its locks; there the lease decides, and so it does wherever locks don't work.

A lock file has a random name. It is empty until its owner holds the lock, and holds the worker's name from then on. An
owner that closes or retires in order removes its file, so that only death leaves a free one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from keelbolt.storage.ids import new_id

logger = logging.getLogger("keelbolt.storage")

TRIES = 50  # a process that probes a new file holds its lock for a moment
TRY_SECONDS = 0.001
UNFINISHED_SECONDS = 60.0  # a file that is empty for so long was left by a process that died while it made it
NAME_BYTES = 4096


class Dead(NamedTuple):
    """The workers whose processes died, and the lock files that show it."""

    workers: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


class WorkerLocks:
    """The locks of this kernel's workers, and a look at those of all others."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._held: dict[str, tuple[int, Path]] = {}
        self._forked = False
        self._warned = False
        _all.add(self)

    def hold(self, worker: str) -> None:
        """Lock for this worker, unless that was done. While it can't be done, the lease alone decides."""
        if worker in self._held or self._forked:
            return
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path = self._folder / new_id()
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._warn(error)
            return
        try:
            works = _try(file, fcntl.LOCK_EX, tries=TRIES) and not _is_free(path)
            reason: object = "this filesystem does not keep one lock from another"
            if works:
                os.pwrite(file, worker.encode(), 0)
        except OSError as error:
            works, reason = False, error
        if works:
            self._held[worker] = file, path
            return
        self._warn(reason)
        self.remove([path])
        os.close(file)

    def _warn(self, reason: object) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("no lock for a worker (%s): if this process dies, its tasks wait for the lease", reason)

    def release(self, worker: str) -> None:
        """This worker ended in order."""
        file, path = self._held.pop(worker, (None, None))
        if file is not None and path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(file)

    def dead(self) -> Dead:
        """The workers whose lock is free, though they did not release it."""
        held = dict(self._held)  # the writer's thread may change it
        ours = {path.name for _, path in held.values()}
        free: list[Path] = []
        locked: list[Path] = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name not in ours:
                        (free if _is_free(Path(entry.path)) else locked).append(Path(entry.path))
        except OSError:  # there is no folder yet, or it can't be read
            return Dead()
        if not free:
            return Dead()
        # A worker with one name may have been started again: then one of its locks is held.
        alive = {*held, *map(_name, locked)}
        names = {path: _name(path) for path in free}
        files = [path for path, name in names.items() if name or _is_unfinished(path)]
        return Dead(tuple({name for name in names.values() if name and name not in alive}), tuple(files))

    def remove(self, files: Iterable[Path]) -> None:
        """Remove the files of dead workers, once their leases are ended."""
        for path in files:
            with contextlib.suppress(OSError):
                path.unlink()

    def close(self) -> None:
        for worker in tuple(self._held):
            self.release(worker)
        _all.discard(self)

    def let_go(self) -> None:
        """In a forked child: close the parent's locks, which would outlive it otherwise; they stay locked by it."""
        for file, _ in self._held.values():
            os.close(file)
        self._held.clear()
        self._forked = True


_all: weakref.WeakSet[WorkerLocks] = weakref.WeakSet()


def _let_go() -> None:
    for locks in tuple(_all):
        locks.let_go()


os.register_at_fork(after_in_child=_let_go)


def _try(file: int, kind: int, *, tries: int = 1) -> bool:
    for _ in range(tries):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if tries > 1:
                time.sleep(TRY_SECONDS)
        else:
            return True
    return False


def _is_free(path: Path) -> bool:
    """Whether no process holds this lock. Shared, so that processes that look at the same time don't see each other."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it was removed meanwhile
        return False
    try:
        return _try(file, fcntl.LOCK_SH)
    finally:
        os.close(file)


def _name(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(NAME_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _is_unfinished(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > UNFINISHED_SECONDS
    except OSError:
        return False
