"""Agents of the chat executor are killed at their awaits: each purchase is paid once.

Every kill is a SIGKILL of a whole process; the next process continues with the same storage. With ``--full`` the
process is killed at every step of its event loop, on each engine; without it, at some steps.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.integration.tasks.conftest import store_url
from tests.integration.turns.chatter import CONCURRENT

CHATTER = str(Path(__file__).with_name("chatter.py"))
LANES = 4  # storages that are used concurrently
EVERY = 45  # steps between kills, without --full
BEYOND = 12  # with --full: no steps are left after this many consecutive runs that end before their step
KILLS_IN_A_ROW = 3
PURCHASES = {"readme": 1, "concurrent": CONCURRENT}


@dataclass
class AgentProcess:
    """One storage, and the process that forks agents on it, one after another."""

    program: str
    url: str
    folder: Path
    process: asyncio.subprocess.Process
    kills: int = 0
    violations: list[str] = field(default_factory=list)

    async def run(self, name: str, step: int) -> dict[str, Any] | None:
        """Return the state that a process found at its end; None if it was killed."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        request = {
            "program": self.program,
            "url": self.url,
            "folder": str(folder),
            "name": name,
            "step": step,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(self.process.stdout.readline(), 120))
        assert answer["code"] in (0, -9), answer.get("error")
        found: dict[str, Any] | None = answer.get("found")
        return found

    async def survives(self, name: str, steps: Sequence[int]) -> int:
        """Kill the agent at each of these steps, let it finish, and record problems; return the number of kills."""
        killed = 0
        for step in steps:
            killed += await self.run(name, step) is None
        found = await self.run(name, -1)
        assert found is not None
        self.kills += killed
        bought = PURCHASES[self.program]
        del found["steps"]
        paid = found.pop("paid")
        expected = {
            "states": ["completed"] * bought,
            "asked": bought,
            "answers": bought,
            "calls": ["pay"] * bought + ["price"] * bought,
            "pending": 0,
        }
        if found != expected:
            self.violations.append(f"killed at {steps}: {found}")
        # A kill between a payment and its record repeats the call with the same key: the bank has one payment.
        if len(paid) != bought or max(paid) > 1 + killed:
            self.violations.append(f"killed at {steps}: the bank's attempts by key are {paid}")
        return killed


@asynccontextmanager
async def agent_process(program: str, url: str, folder: Path) -> AsyncIterator[AgentProcess]:
    folder.mkdir(parents=True)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, CHATTER, stdin=pipe, stdout=pipe)
    try:
        yield AgentProcess(program, url, folder, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@pytest.mark.timeout(7200)  # with --full
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis"])
@pytest.mark.parametrize("program", PURCHASES)
async def test_killed_at_every_await_it_pays_once(
    program: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path, full: bool
) -> None:
    """With --full the agent is killed at every step; ``-s`` prints the number of kills.

    The number of steps depends on the load of the machine, so the test continues until runs end before their step.
    """
    agents: list[AgentProcess] = []
    steps = iter(count(0) if full else count(20, EVERY))
    survived = 0  # consecutive runs that ended before their step

    async def work(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        url = store_url(engine, request, folder)
        async with agent_process(program, url, folder / "paid") as mine:
            agents.append(mine)
            nonlocal survived
            while survived < (BEYOND if full else 1):
                step = next(steps)
                survived = 0 if await mine.survives(f"step-{step}", [step]) else survived + 1

    async with asyncio.TaskGroup() as group:
        for number in range(LANES):
            group.create_task(work(number))
    violations = [each for one in agents for each in one.violations]
    kills = sum(each.kills for each in agents)
    print(f"{program} on {engine}: {kills} kills, {len(violations)} violations")
    assert violations == []
    assert kills > 0


async def test_killed_repeatedly_on_every_engine(lasting_url: str, tmp_path: Path) -> None:
    """Successive processes are killed too; the last process finishes."""
    seed = int(os.environ.get("KEELBOLT_SEED", "20"))
    choose = random.Random(f"{seed}{lasting_url.partition(':')[0]}")
    async with agent_process("concurrent", lasting_url, tmp_path / "paid") as mine:
        await mine.survives("row", [choose.randrange(40, 480) for _ in range(KILLS_IN_A_ROW)])
    assert mine.violations == []
    assert mine.kills > 0
