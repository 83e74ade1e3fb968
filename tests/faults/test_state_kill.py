"""kill -9, once a second, of processes that run flows of penguiflow on one store: no acknowledged save is lost."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from keelbolt.state import StateStore
from tests.faults.conftest import Figures
from tests.faults.processes import Child, Children

PROCESSES = 4
KILL_SECONDS = 1.0
TOTAL_SECONDS = 1500.0


@pytest.mark.timeout(TOTAL_SECONDS + 300)
def test_no_acknowledged_save_of_a_killed_flow_is_lost(
    children: Children, task_url: str, tmp_path: Path, figures: Figures, full: bool
) -> None:
    flows = 125 if full else 4
    notes = [tmp_path / f"process{number}.notes" for number in range(PROCESSES)]
    kills = _run(children, task_url, notes, flows)
    noted = [json.loads(line) for file in notes for line in file.read_text().splitlines()]
    counts: Counter[str] = Counter(line[0] for line in noted)
    assert counts["done"] == PROCESSES * flows
    lost = asyncio.run(_lost(task_url, noted))
    assert lost == []
    acknowledged = sum(counts.values()) - counts["done"]
    figures(
        f"flows of killed processes, {task_url.partition(':')[0]}",
        flows=counts["done"],
        kills=kills,
        acknowledged_saves=acknowledged,
        lost=len(lost),
    )


def _run(children: Children, url: str, notes: list[Path], flows: int) -> int:
    """Run the processes until each has done its flows; kills one per second, once it has saved something."""
    running: dict[Path, tuple[Child, int]] = {}
    kills = 0
    dice = random.Random(19)
    until = time.monotonic() + TOTAL_SECONDS
    waiting = set(notes)
    while waiting:
        assert time.monotonic() < until, f"the flows were not done within {TOTAL_SECONDS:g} seconds"
        for file in list(waiting):
            if file in running and not running[file][0].alive:
                child, _ = running.pop(file)
                if child.returncode == 0:
                    waiting.discard(file)
                    continue
                assert child.returncode == -9, f"the process ended with {child.returncode}"
            if file not in running:
                running[file] = (children.start("state_flows", url, file, flows), _size(file))
        time.sleep(KILL_SECONDS)
        at_work = [child for file, (child, size) in running.items() if child.alive and _size(file) > size]
        if at_work:
            dice.choice(at_work).kill()
            kills += 1
    return kills


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


async def _lost(url: str, noted: list[list[Any]]) -> list[list[Any]]:
    """The notes of saves that the store does not have."""
    stored: dict[tuple[str, str], set[tuple[Any, ...]]] = {}
    lost = []
    async with StateStore(url, timeout_seconds=60.0) as store:

        async def load(kind: str, key: str) -> set[tuple[Any, ...]]:
            if kind == "event":
                return {(event.ts, event.kind, event.node_name) for event in await store.load_history(key)}
            if kind == "update":
                return {(update.update_id,) for update in await store.list_updates(key)}
            if kind == "trajectory":
                return {(trace,) for trace in await store.list_traces(key)}
            state = await store.load_memory_state(key)
            return {(state["done"],)} if state is not None else set()

        last_memory = {line[1]: line for line in noted if line[0] == "memory"}
        for line in noted:
            kind, key, *fields = line
            if kind == "done" or (kind == "memory" and last_memory[key] is not line):
                continue
            if (kind, key) not in stored:
                stored[kind, key] = await load(kind, key)
            if tuple(fields) not in stored[kind, key]:
                lost.append(line)
    return lost
