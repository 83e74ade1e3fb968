"""Processes that are killed while they store, and processes that store to one thread concurrently."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from keelbolt.turns.durable import durable_storage
from tests.integration.turns.stage import Calls, Turn

WRITERS = str(Path(__file__).with_name("writers.py"))


def test_check_43_killed_at_any_moment(lasting_url: str, full: bool) -> None:
    """Each iteration is stored completely or not at all, and the storage opens again."""
    kills = 100 if full or lasting_url.startswith("sqlite") else 10
    command = [sys.executable, WRITERS, "kill", lasting_url, str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= kills - 1


async def test_check_44_two_processes_on_one_thread(lasting_url: str, full: bool) -> None:
    """No value is lost or duplicated, each process keeps its order, and seqs increase strictly."""
    count = 500 if full or lasting_url.startswith("sqlite") else 150
    processes = [
        subprocess.Popen(
            [sys.executable, WRITERS, "store", lasting_url, name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    async with durable_storage(lasting_url) as storage:
        rows: list[dict[str, Any]] = [row async for row in storage.export("acme")]
        ids = await Calls(storage.callbacks(), Turn()).ids()
    seqs = [row["seq"] for row in rows]
    assert seqs == sorted(set(seqs))
    assert [row["id"] for row in rows] == ids
    for name in ("a", "b"):
        assert [each for each in ids if each.startswith(name)] == [f"{name}{number}" for number in range(count)]
    assert len(ids) == 2 * count
    first = ids[:count]
    assert {each[0] for each in first} == {"a", "b"}, "they ran at the same time"
