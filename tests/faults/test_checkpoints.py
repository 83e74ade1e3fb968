"""Checkpoints of several processes: SQLite before 3.51.3 can damage the file if one runs during a commit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from keelbolt.kernel import Append, Draft
from keelbolt.kernel.sqlite import SQLiteKernel
from tests.faults.conftest import Figures
from tests.faults.processes import Children

PROCESSES = 3
COMMITS = 40

# SQLite's lock for a checkpoint, in the -shm file: 120 + WAL_CKPT_LOCK. (Recovery locks more than this one byte.)
CHECKPOINT_LOCK = "l_type=F_WRLCK, l_whence=SEEK_SET, l_start=121, l_len=1}"

_CALL = re.compile(r"(flock|fcntl)\(\d+<(?P<file>[^>]+)>, (?P<how>.*)\) += 0$")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")


def calls(trace: Path) -> Iterator[str]:
    """Return the system calls of a process, ordered by their end."""
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith(" <unfinished ...>"):
            begun[thread] = call.removesuffix(" <unfinished ...>")
        elif resumed := _RESUMED.match(call):
            yield begun.pop(thread) + resumed[1]
        else:
            yield call


def checkpoints(trace: Path) -> list[bool]:
    """Return, for each checkpoint of a process, whether the process held the write lock of the file."""
    held = False
    found: list[bool] = []
    for text in calls(trace):
        call = _CALL.match(text)
        if call is None:
            continue
        file, how = call["file"], call["how"]
        if file.endswith(".db-lock"):
            held = "LOCK_EX" in how
        elif file.endswith(".db-shm") and CHECKPOINT_LOCK in how:
            found.append(held)
    return found


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("strace")
async def test_checkpoints_run_under_the_write_lock(tmp_path: Path, children: Children, figures: Figures) -> None:
    """Processes that open, write, checkpoint and close at once never run a checkpoint without the write lock."""
    path = tmp_path / "traced.db"
    async with SQLiteKernel(str(path)) as kernel:
        await kernel.commit("open", Append("log", "s", (Draft("a", b"x" * 20_000),)))
    writers = [
        children.start(
            "checkpointer",
            path,
            f"w{number}",
            COMMITS,
            under=["strace", "-f", "-qq", "-y", "-e", "trace=flock,fcntl", "-o", str(tmp_path / f"trace-{number}")],
        )
        for number in range(PROCESSES)
    ]
    for child in writers:
        assert await asyncio.to_thread(child.line) == "ready"
        assert await asyncio.to_thread(child.line) == "done"
        assert await asyncio.to_thread(child.wait) == 0
    found = [locked for trace in tmp_path.glob("trace-*") for locked in checkpoints(trace)]
    figures("checkpoints of several processes", checkpoints=len(found), without_lock=found.count(False))
    assert len(found) >= PROCESSES * COMMITS
    assert all(found)
    async with SQLiteKernel(str(path)) as kernel:
        assert [problem async for problem in kernel.check()] == []
