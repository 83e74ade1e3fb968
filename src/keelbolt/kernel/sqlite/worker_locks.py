"""One OS lock per worker incarnation, by which the processes on one file notice at once that another one died.

A lease ends by time. But when a process dies, the operating system frees its locks at once: a lock file that exists and
is free belongs to a dead process, and the leases of its worker are over. A process that is stopped or hangs keeps its
locks; then only the lease counts, as it does where locks don't work.

A lock file has a random name. It is empty until its owner holds the lock, and then contains the worker's name. An owner
that closes or retires normally removes its file, so that only a dead owner leaves a free one.
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

from keelbolt.kernel.ids import new_id

logger = logging.getLogger("keelbolt.kernel")

TRIES = 50  # a process that probes a new file holds its lock for a moment
TRY_SECONDS = 0.001
UNFINISHED_SECONDS = 60.0  # a file that stays empty this long was left by a process that died while creating it
NAME_BYTES = 4096


class Dead(NamedTuple):
    """The workers whose processes died, and their lock files."""

    workers: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()


class WorkerLocks:
    """The locks of this kernel's workers, and checks of the locks of all other workers."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._held: dict[str, tuple[int, Path]] = {}
        self._forked = False
        self._warned = False
        _all.add(self)

    def hold(self, worker: str) -> None:
        """Lock for this worker, if not yet done. If that fails, only the lease counts."""
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
            reason: object = "this filesystem does not enforce locks"
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
            logger.warning("no worker lock (%s): if this process dies, its tasks wait until its lease expires", reason)

    def release(self, worker: str) -> None:
        """Release the lock of a worker that ended normally, and remove its file."""
        file, path = self._held.pop(worker, (None, None))
        if file is not None and path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(file)

    def dead(self) -> Dead:
        """Return the workers whose lock is free although they did not release it."""
        held = dict(self._held)  # a copy, since the writer's thread may change it
        ours = {path.name for _, path in held.values()}
        free: list[Path] = []
        locked: list[Path] = []
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name not in ours:
                        (free if _is_free(Path(entry.path)) else locked).append(Path(entry.path))
        except OSError:  # the folder does not exist yet or can't be read
            return Dead()
        if not free:
            return Dead()
        # A worker may have been started again under the same name: then one of its locks is held.
        alive = {*held, *map(_name, locked)}
        names = {path: _name(path) for path in free}
        files = [path for path, name in names.items() if name or _is_unfinished(path)]
        return Dead(tuple({name for name in names.values() if name and name not in alive}), tuple(files))

    def remove(self, files: Iterable[Path]) -> None:
        """Remove the lock files of dead workers after their leases were ended."""
        for path in files:
            with contextlib.suppress(OSError):
                path.unlink()

    def close(self) -> None:
        for worker in tuple(self._held):
            self.release(worker)
        _all.discard(self)

    def let_go(self) -> None:
        """In a forked child: close the inherited locks, which would outlive the parent. The parent still holds them."""
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
    """Return whether no process holds this lock. Uses a shared lock, so that concurrent checks don't see each other."""
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
