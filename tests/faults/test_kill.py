"""kill -9, at random and at every named point of a commit."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from keelbolt.storage import Append, Draft
from keelbolt.storage.sqlite import SQLiteKernel
from keelbolt.testing.crash import POINTS
from tests.faults.conftest import Figures
from tests.faults.processes import Child, Children, Ended
from tests.faults.verify import Verdict, notes_of, verify
from tests.faults.writer import FAMILIES, PARTITION

WRITERS = 3
BOUND_SECONDS = 10.0  # no acknowledged commit waited longer, whoever died


class Crowd:
    """Some writers on one file; whoever dies is replaced."""

    def __init__(self, children: Children, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.path = folder / "kernel.db"
        self.kills = 0
        self.at_points: Counter[str] = Counter()  # of the kills, those at a named point
        self._children = children
        self._dice = dice
        self._writers: list[Child] = []
        self._crashes: dict[Child, str] = {}  # the points that writers die at by themselves
        self._number = 0

    def start(self, crash: str = "") -> Child:
        self._number += 1
        name = f"w{self._number}"
        notes = self.folder / f"{name}.notes"
        child = self._children.start("writer", self.path, name, notes, f"{self._dice.random()}", crash)
        self._writers.append(child)
        if crash:
            self._crashes[child] = crash.partition(":")[0]
        return child

    def fill(self, crashes: list[str]) -> None:
        """Start writers until all are there; a writer takes a crash along if one is left."""
        while len(self._writers) < WRITERS:
            self.start(crashes.pop() if crashes else "")
        for child in tuple(self._writers):
            if not child.ready:
                with contextlib.suppress(Ended):  # its crash point lay in the opening; `_bury` sees to it
                    child.ready = child.line() == "ready"

    def kill_one(self) -> None:
        """One of those without a crash point, after a moment; the others die by themselves."""
        time.sleep(self._dice.uniform(0.0, 0.15))
        self._bury()
        victims = [child for child in self._writers if child not in self._crashes]
        if victims:
            self._dice.choice(victims).kill()
            self._bury()

    def kill_all(self) -> None:
        self._bury()
        for child in self._writers:
            self._crashes.pop(child, None)  # it did not come so far
            child.kill()
        self._bury()

    def _bury(self) -> None:
        for child in tuple(self._writers):
            if not child.alive:
                assert child.wait() == -9, f"a writer ended by itself with {child.returncode}"
                child.close()
                self._writers.remove(child)
                self.kills += 1
                if child in self._crashes:
                    self.at_points[self._crashes.pop(child)] += 1

    async def verdict(self) -> Verdict:
        async with SQLiteKernel(str(self.path), declare=FAMILIES) as kernel:
            return await verify(kernel, notes_of(sorted(self.folder.glob("*.notes"))))


@pytest.mark.timeout(900)
async def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    tmp_path: Path, children: Children, figures: Figures, full: bool
) -> None:
    """Whoever is killed, wherever it is: what was acknowledged is there, whole, once and in order, and others go on."""
    dice = random.Random(2)
    crowd = Crowd(children, tmp_path, dice)
    hits = 24 if full else 2
    crashes = [f"{point}:{dice.randint(1, 40)}" for point in POINTS for _ in range(hits)]
    dice.shuffle(crashes)
    wanted, every = (320, 40) if full else (24, 12)
    look_at = every
    while crowd.kills < wanted or crashes:
        crowd.fill(crashes)
        crowd.kill_one()
        if crowd.kills >= look_at:
            look_at = crowd.kills + every
            crowd.kill_all()
            verdict = await crowd.verdict()
            verdict.assert_clean()
    crowd.kill_all()
    verdict = await crowd.verdict()
    figures(
        "kill -9 of writers",
        kills=crowd.kills,
        of_them_at_named_points=crowd.at_points.total(),
        **verdict.numbers(),
        s_longest_wait=verdict.slowest,
    )
    verdict.assert_clean()
    assert set(crowd.at_points) == set(POINTS), "at some point nobody was killed"
    assert verdict.acknowledged > crowd.kills
    assert verdict.slowest < BOUND_SECONDS


async def test_check_finds_nothing_while_others_write_and_die(
    tmp_path: Path, children: Children, figures: Figures, full: bool
) -> None:
    """A look at a healthy file in full use is no false alarm, also when writers are killed meanwhile."""
    crowd = Crowd(children, tmp_path, random.Random(3))
    looks = 25 if full else 4
    crowd.fill([])
    async with SQLiteKernel(str(crowd.path), declare=FAMILIES) as kernel:
        for _ in range(looks):
            crowd.kill_one()
            assert [problem async for problem in kernel.check()] == []
            crowd.fill([])
    crowd.kill_all()
    figures("check() while writers are killed", looks=looks, kills=crowd.kills, false_alarms=0)


async def test_every_crash_point_is_passed_in_order(tmp_path: Path) -> None:
    """Each named point is on the way of a commit, and no other."""
    passed: list[str] = []
    async with SQLiteKernel(str(tmp_path / "kernel.db"), probe=passed.append) as kernel:
        for _ in range(3):
            await kernel.commit(PARTITION, Append("log", "s", (Draft("a", b""),)))
    assert passed == list(POINTS) * 3
