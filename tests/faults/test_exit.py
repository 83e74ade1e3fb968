"""Process exit with pending commits, and use after fork()."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from keelbolt.kernel.sqlite import SQLiteKernel
from tests.faults import forker, leaver
from tests.faults.conftest import Figures
from tests.faults.processes import Children


@pytest.mark.parametrize("how", ["return", "exit", "raise", "interrupt"])
async def test_pending_commits_are_written_when_the_interpreter_exits(
    tmp_path: Path, children: Children, figures: Figures, full: bool, how: str
) -> None:
    """Commits that were not awaited are stored at every kind of exit."""
    commits = 20_000 if full else 2000
    path = str(tmp_path / "kernel.db")
    child = children.start("leaver", path, how, commits, quiet=True)
    code = child.wait(120)
    assert code == {"return": 0, "exit": 3, "raise": 1, "interrupt": -2}[how]
    async with SQLiteKernel(path, declare=leaver.FAMILIES) as kernel:
        assert (await kernel.log_state(leaver.PARTITION, "log", "s")).head == commits
        keys = [f"c{number}" for number in range(commits)]
        for start in range(0, len(keys), 500):
            assert None not in await kernel.get_many(leaver.PARTITION, "doc", keys[start : start + 500])
        assert [problem async for problem in kernel.check()] == []
    figures(f"interpreter ends by {how}", commits_not_awaited=commits, lost=0)


async def test_use_after_fork_is_refused(tmp_path: Path, children: Children, figures: Figures) -> None:
    """A forked child can't use its parent's storage or file, and does not damage them."""
    path = str(tmp_path / "kernel.db")
    child = children.start("forker", path)
    outcomes = json.loads(child.line())
    parent = json.loads(child.line())
    assert child.wait() == 0
    assert set(outcomes.values()) == {"Forked"}, outcomes
    assert parent == {"child": 0, "head": 120, "problems": []}
    async with SQLiteKernel(path, declare=forker.FAMILIES) as kernel:
        assert (await kernel.log_state(forker.PARTITION, "log", "s")).head == 120
    figures("fork with a storage open", uses=len(outcomes), refused=len(outcomes))


async def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path, children: Children) -> None:
    """A parent that dies during a commit blocks no other process, although its child is still alive."""
    path = str(tmp_path / "kernel.db")
    async with SQLiteKernel(path, declare=forker.FAMILIES) as kernel:
        parent = children.start("forker", path, "saved:5", own_group=True)
        assert parent.wait() == -9
        async with asyncio.timeout(5):
            await kernel.commit(forker.PARTITION, forker.ENTRY)
        assert [problem async for problem in kernel.check()] == []
