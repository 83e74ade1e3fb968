"""Many processes open a new file at once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from pathlib import Path

import pytest

from keelbolt.kernel import Query
from keelbolt.kernel.migrations import migrations_of
from keelbolt.kernel.sqlite import SQLiteKernel
from tests.faults.conftest import Figures
from tests.faults.opener import FAMILIES, PARTITION
from tests.faults.processes import Children

PROCESSES = 8
COMMITS = 20
OPENINGS = 200


@pytest.mark.timeout(600)
async def test_a_race_to_create_the_schema(tmp_path: Path, children: Children, figures: Figures, full: bool) -> None:
    """Eight processes open a file that does not exist: one of them creates the schema, and all of them work."""
    rounds = 12 if full else 1
    dice = random.Random(9)
    slowest = 0.0
    for number in range(rounds):
        path = str(tmp_path / f"{number}.db")
        openers = [children.start("opener", path, f"p{process}", COMMITS) for process in range(PROCESSES)]
        for child in openers:
            assert child.line() == "ready"
        began = time.monotonic()
        for child in openers:
            child.tell("open")
            time.sleep(dice.choice((0.0, 0.0, 0.001, 0.005)))
        for child in openers:
            assert child.line() == "done"
            assert child.wait() == 0
        slowest = max(slowest, time.monotonic() - began)
        async with SQLiteKernel(path, declare=FAMILIES) as kernel:
            page = await kernel.read_log(PARTITION, "log", "s", limit=1000)
            assert [entry.seq for entry in page.entries] == list(range(1, PROCESSES * COMMITS + 1))
            for process in range(PROCESSES):
                count = await kernel.count(PARTITION, Query("doc", {"who": f"p{process}"}))
                assert (count.value, count.exact) == (COMMITS, True)
            assert (await kernel.stats()).engine["schema"] == migrations_of("keelbolt.kernel.sqlite")[-1].number
            assert [problem async for problem in kernel.check()] == []
    figures("opening a new file at once", rounds=rounds, processes=rounds * PROCESSES, failed=0, s_slowest=slowest)


@pytest.mark.timeout(600)
async def test_opening_beside_writers_and_checkpoints(
    tmp_path: Path, children: Children, figures: Figures, caplog: pytest.LogCaptureFixture
) -> None:
    """Opening while other processes write and checkpoint never reports a damaged log, in 200 openings."""
    path = str(tmp_path / "busy.db")
    async with SQLiteKernel(path):
        pass
    writers = [children.start("checkpointer", path, f"w{number}") for number in range(2)]
    for writer in writers:
        assert await asyncio.to_thread(writer.line) == "ready"
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, logger="keelbolt.kernel"):
        for _ in range(OPENINGS):
            async with SQLiteKernel(path, readers=1) as kernel:
                assert kernel._lost_frames == 0
    assert [record.getMessage() for record in caplog.records] == []
    figures("opening beside two writers", openings=OPENINGS, s_each=(time.monotonic() - began) / OPENINGS)
    for writer in writers:
        assert writer.alive
        writer.kill()
