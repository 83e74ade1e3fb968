"""Locks of workers: only a dead process leaves an unlocked file."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keelbolt.kernel.sqlite.worker_locks import UNFINISHED_SECONDS, WorkerLocks

HOLD = """
import os, sys, time
from keelbolt.kernel.sqlite.worker_locks import WorkerLocks
locks = WorkerLocks(sys.argv[1])
locks.hold(sys.argv[2])
pid = 0
if "fork" in sys.argv:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, b".")
        time.sleep(60)
    os.read(reader, 1)  # the child ran its fork hooks
print(pid, flush=True)
if "close" in sys.argv:
    locks.close()
    os._exit(0)
time.sleep(60)
"""


def holding(folder: Path, worker: str, *more: str) -> tuple[subprocess.Popen[str], int]:
    """Start a process that holds a lock. Yield it and the pid of its forked child."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), worker, *more], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def files(folder: Path) -> int:
    return len(list(folder.iterdir()))


def test_a_killed_process_is_detected_as_dead(tmp_path: Path) -> None:
    """A stopped process is not dead; a killed one is, until its file is removed."""
    folder = tmp_path / "workers"
    locks = WorkerLocks(str(folder))
    assert locks.dead() == ((), ())
    process, _ = holding(folder, "w")
    assert locks.dead() == ((), ())
    process.send_signal(signal.SIGSTOP)
    assert locks.dead() == ((), ())
    kill(process)
    dead = locks.dead()
    assert dead.workers == ("w",)
    locks.remove(dead.files)
    assert locks.dead() == ((), ())
    assert files(folder) == 0


def test_an_orderly_end_leaves_nothing(tmp_path: Path) -> None:
    """Close and release remove the file; then only the worker's lease counts."""
    folder = tmp_path / "workers"
    process, _ = holding(folder, "w", "close")
    process.communicate()
    locks = WorkerLocks(str(folder))
    locks.hold("a")
    locks.hold("a")
    assert files(folder) == 1
    locks.release("a")
    locks.release("a")
    assert files(folder) == 0
    assert locks.dead() == ((), ())


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A killed process counts as dead although its child is still alive."""
    folder = tmp_path / "workers"
    process, child = holding(folder, "w", "fork")
    try:
        locks = WorkerLocks(str(folder))
        assert locks.dead() == ((), ())
        process.kill()
        process.wait()
        assert locks.dead().workers == ("w",)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_worker_restarted_under_its_name_is_alive(tmp_path: Path) -> None:
    """Each process finds the file of the dead predecessor for removal, and no dead worker."""
    folder = tmp_path / "workers"
    process, _ = holding(folder, "w")
    kill(process)
    one, other = WorkerLocks(str(folder)), WorkerLocks(str(folder))
    one.hold("w")
    for locks in (one, other):
        dead = locks.dead()
        assert (dead.workers, len(dead.files)) == ((), 1)
    one.close()
    assert other.dead().workers == ("w",)


def test_a_file_that_is_being_made_belongs_to_no_dead_worker(tmp_path: Path) -> None:
    """The file is empty until its owner holds the lock. One that stays empty too long is removed."""
    file = tmp_path / "new"
    file.touch()
    locks = WorkerLocks(str(tmp_path))
    assert locks.dead() == ((), ())
    long_ago = time.time() - 2 * UNFINISHED_SECONDS
    os.utime(file, (long_ago, long_ago))
    assert locks.dead() == ((), (file,))


def test_where_locks_do_not_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged once, and only the lease counts. The lock is tried again with the next heartbeat."""
    folder = tmp_path / "workers"
    folder.touch()
    locks = WorkerLocks(str(folder))
    with caplog.at_level(logging.WARNING):
        locks.hold("w")
        locks.hold("w")
    assert len(caplog.records) == 1
    assert locks.dead() == ((), ())
    folder.unlink()
    locks.hold("w")
    assert files(folder) == 1
    locks.close()


def test_a_filesystem_whose_locks_exclude_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without exclusive locks no file is left, because it would make a living worker look dead."""
    monkeypatch.setattr("keelbolt.kernel.sqlite.worker_locks.fcntl.flock", lambda _file, _kind: None)
    locks = WorkerLocks(str(tmp_path))
    locks.hold("w")
    assert "does not enforce locks" in caplog.text
    assert files(tmp_path) == 0
