"""An agent of the chat executor that is killed at its awaits: three concurrent turns on one thread, each pays once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

CHATTER = str(Path(__file__).with_name("chatter.py"))
KILLS_EACH = 3  # processes of one store that die before one lives


async def chatter(url: str, folder: Path, step: int) -> dict[str, Any] | None:
    """What it found at its end; None: it was killed."""
    command = [sys.executable, CHATTER, url, str(folder), str(step)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode in (0, -9), err.decode()
    found: dict[str, Any] | None = json.loads(out) if process.returncode == 0 else None
    return found


async def survives(url: str, folder: Path, steps: list[int]) -> int:
    """Kill it at each of these steps, let it finish, and check what is there; returns the kills."""
    kills = 0
    folder.mkdir()
    for step in steps:
        kills += await chatter(url, folder, step) is None
    found = await chatter(url, folder, -1)
    assert found is not None
    del found["steps"]
    paid = found.pop("paid")
    assert found == {
        "states": ["completed"] * 3,
        "asked": 3,
        "answers": 3,
        "calls": ["pay"] * 3 + ["price"] * 3,
        "pending": 0,
    }, steps
    # A kill between the payment and its record repeats the call, under the same key: the other side has it once.
    assert len(paid) == 3, steps
    assert sum(paid) <= 3 + kills, (paid, steps)
    return kills


async def test_killed_at_every_await_it_pays_once(tmp_path: Path, full: bool) -> None:
    """On SQLite, one store for each step; every step with --full, some of them otherwise."""
    first = tmp_path / "first"
    first.mkdir()
    whole = await chatter(f"sqlite:///{tmp_path}/first.db", first, -1)
    assert whole is not None
    steps = range(whole["steps"]) if full else range(20, whole["steps"], 60)
    for step in steps:
        await survives(f"sqlite:///{tmp_path}/{step}.db", tmp_path / f"paid-{step}", [step])


async def test_killed_again_and_again_on_every_engine(lasting_url: str, tmp_path: Path) -> None:
    """Processes that follow each other die too; the last one finishes."""
    seed = int(os.environ.get("KEELBOLT_SEED", "20"))
    choose = random.Random(f"{seed}{lasting_url.partition(':')[0]}")
    steps = [choose.randrange(40, 480) for _ in range(KILLS_EACH)]
    assert await survives(lasting_url, tmp_path / "paid", steps) > 0
