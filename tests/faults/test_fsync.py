"""The disk reports an error at fsync: the current commit is in doubt, all earlier ones are safe."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from keelbolt.errors import CommitInDoubt, StorageBroken
from keelbolt.kernel import Append, Draft, Kernel, Put
from keelbolt.kernel.sqlite import SQLiteKernel, connection, writer
from tests.faults.conftest import Figures
from tests.faults.disk import Disk, anything, fsync_error, nothing
from tests.faults.processes import Children
from tests.faults.sequence import FAMILIES, PARTITION, write_one

COMMITS = 120


async def found(kernel: Kernel) -> int:
    """Return how many commits of the sequence are stored. Fail if one is stored partially."""
    page = await kernel.read_log(PARTITION, "log", "s", limit=10_000)
    record = await kernel.get(PARTITION, "doc", "s")
    assert [entry.seq for entry in page.entries] == list(range(1, page.head + 1)), "a hole in the log"
    assert (record.version if record else 0) == page.head, "half a commit"
    assert [problem async for problem in kernel.check()] == []
    return page.head


async def test_an_fsync_error_is_raised_and_no_acknowledged_commit_is_lost(
    figures: Figures, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed fsync raises CommitInDoubt, then StorageBroken until the storage is reopened; no data is missing."""
    monkeypatch.setattr(connection, "WAL_PAGES", 20)
    monkeypatch.setattr(writer, "WAL_PAGES", 20, raising=False)
    dice = random.Random(5)
    doubts = there = 0
    failed: Counter[str] = Counter()
    failures = 120 if full else 25
    for failing in range(1, failures + 1):
        disk = Disk()
        syncs = 0

        def before(what: str, disk: Disk = disk, failing: int = failing) -> None:
            nonlocal syncs
            syncs += what.startswith("sync")
            if what.startswith("sync") and syncs == failing:
                failed[what] += 1
                raise fsync_error()

        async with SQLiteKernel(
            "kernel.db", declare=FAMILIES, connect=disk.connect, shared=False, reserve=False
        ) as kernel:
            disk.before = before
            acknowledged, error = 0, None
            for number in range(1, COMMITS + 1):
                try:
                    await write_one(kernel, number)
                except StorageBroken as broken:
                    error = broken
                    break
                acknowledged = number
            assert error is not None
            in_doubt = isinstance(error, CommitInDoubt)  # if not, a checkpoint failed, and the next commit reported it
            doubts += in_doubt
            for _ in range(3):
                with pytest.raises(StorageBroken):
                    await write_one(kernel, acknowledged + 1)
            assert not (await kernel.health()).writes
            disk.before = lambda _what: None
            cut = disk.cut("broken")
        for disk_after in (disk, cut.after(nothing), cut.after(anything(dice))):
            async with SQLiteKernel(
                "kernel.db", declare=FAMILIES, connect=disk_after.connect, shared=False, reserve=False
            ) as kernel:
                head = await found(kernel)
                assert acknowledged <= head <= acknowledged + in_doubt
                there += head > acknowledged
                await write_one(kernel, head + 1)
    figures(
        "fsync error, each fsync in turn",
        failures=failures,
        reported=failures,
        of_them_in_doubt=doubts,
        of_the_database_in_a_checkpoint=failed["sync database"],
        in_doubt_and_there=there,
        lost=0,
    )
    assert set(failed) == {"sync wal", "sync database"}


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("strace")
async def test_an_fsync_error_of_the_system(tmp_path: Path, children: Children, figures: Figures, full: bool) -> None:
    """The same holds for the system's own fsync, failing in a real process on a real file."""
    figure = {"failures": 0, "reported": 0, "unnoticed": 0}
    for failing in range(3, 3 + (24 if full else 3)):
        path = tmp_path / f"{failing}.db"
        async with SQLiteKernel(str(path), declare=FAMILIES):
            pass
        inject = f"inject=fsync,fdatasync:error=EIO:when={failing}"
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", inject]
        child = children.start("sequence", path, 30, under=strace)
        answer = json.loads(child.line())
        assert child.wait() == 0
        figure["failures"] += 1
        figure["reported" if answer["error"] else "unnoticed"] += 1
        if answer["error"]:
            assert answer["error"] in ("CommitInDoubt", "StorageBroken")
            assert answer["then"] == ["StorageBroken"] * 3
            assert answer["reads"], "reading ended with writing"
        async with SQLiteKernel(str(path), declare=FAMILIES) as kernel:
            head = await found(kernel)
            assert answer["acknowledged"] <= head <= answer["acknowledged"] + 1
            await kernel.commit(PARTITION, Append("log", "s", (Draft("a", b""),)), Put("doc", "s", b""))
    figures("fsync error of the system (strace)", **figure, lost=0)
    assert figure["reported"]
