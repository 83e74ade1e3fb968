"""Closing any descriptor of a file drops all POSIX locks that the process has on it, including SQLite's.

If a process opens and closes the -shm (or the database) while it has it open in SQLite, the next process to open the
file treats it as abandoned and truncates the shared memory; the other processes then die of SIGBUS.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from keelbolt.kernel import Append, Draft, Kernel, open_storage

DEAD_MAN_SWITCH = 128  # the byte of the -shm on which every process keeps a shared lock while it has the file open

# Only another process can see whether this one holds a lock.
PROBE = f"""
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, {DEAD_MAN_SWITCH})
    except OSError:
        print("held")
    else:
        print("free")
"""


def switch(path: Path) -> str:
    probe = subprocess.run([sys.executable, "-c", PROBE, f"{path}-shm"], capture_output=True, text=True, check=True)
    return probe.stdout.strip()


async def write_and_read(kernel: Kernel) -> None:
    await kernel.commit("p", Append("log", "s", (Draft("k", b"v"),)))
    await kernel.read_log("p", "log", "s")


async def check(kernel: Kernel) -> None:
    assert [problem async for problem in kernel.check()] == []


async def stats(kernel: Kernel) -> None:
    await kernel.stats()


async def health(kernel: Kernel) -> None:
    assert (await kernel.health()).writes


@pytest.mark.parametrize("use", [write_and_read, check, stats, health])
async def test_an_open_storage_keeps_its_locks(tmp_path: Path, use: object) -> None:
    path = tmp_path / "a.db"
    async with open_storage(f"sqlite:///{path}") as kernel:
        assert callable(use)
        await use(kernel)
        assert switch(path) == "held"
