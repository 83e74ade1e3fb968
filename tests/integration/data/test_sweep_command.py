"""`keelbolt sweep` has one retention syntax for all faces."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from keelbolt.kernel import open_storage
from keelbolt.state import StateStore
from tests.integration.data.filling import fill_tasks, fill_turns
from tests.integration.state.things import update


async def run(*words: str) -> Result:
    """Run the command in a thread, because it has its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, main, ["sweep", *words])


async def removed(*words: str) -> dict[str, Any]:
    done = await run(*words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["removed"]
    return found


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """A storage with data of each face."""
    url = f"sqlite:///{tmp_path}/file.db"
    async with StateStore(url, types="own") as store:
        for number in range(5):
            await store.save_update(update(number))
        await store.save_memory_state("a:b:c", {})
    async with open_storage(url) as kernel:
        await fill_tasks(kernel, "ada", canary="word")
        await fill_turns(kernel, "acme", "thread-1", canary="word")
    return url


async def test_one_syntax_for_all_faces(url: str) -> None:
    """One policy has ages and numbers of tasks, state and turns; a dry run counts the same and changes nothing."""
    retain = ("--retain", "updates=2 events=1d,completed=0s", "--retain", "deleted=0s", "--storage", url)
    dry = await removed(*retain, "--dry-run")
    assert dry == {"state": {"updates": 3}, "tasks": {"tasks": 1}, "turns": {"deleted": 1}}
    assert await removed(*retain, "--dry-run") == dry
    done = await removed(*retain)
    expired = done.pop("expired")
    assert done == {"state": {"updates": 3}, "tasks": {"tasks": 1, "contexts": 1}, "turns": {"deleted": 1}}
    assert "unfinished erasures" not in expired
    again = await removed(*retain)
    assert {face: again[face] for face in ("state", "tasks", "turns")} == {"state": {}, "tasks": {}, "turns": {}}
    assert (await run("--storage", url)).stdout == "nothing to remove\n"


async def test_threads_are_removed_by_their_last_use(url: str) -> None:
    kept = await removed("--retain", "threads=1d", "--storage", url)
    assert kept["turns"] == {}
    gone = await removed("--retain", "threads=0s", "--storage", url)
    assert gone["turns"]["threads"] > 10
    assert (await removed("--retain", "threads=0s", "--storage", url))["turns"] == {}


async def test_memory_and_sessions(url: str) -> None:
    """A session that was used in the last two hours stays."""
    done = await run("--retain", "sessions=1s", "--retain", "memory=0s", "--storage", url)
    assert "memory" in done.stdout
    async with StateStore(url) as store:
        assert len(await store.list_updates("session")) == 5
        assert await store.load_memory_state("a:b:c") is None


@pytest.mark.parametrize("word", ["nothing", "nothing=3d", "completed=3", "max_updates=3", "updates=-1", "every"])
async def test_an_invalid_policy_is_refused(url: str, word: str) -> None:
    """The error lists the known names, and nothing is removed."""
    wrong = await run("--storage", url, "--retain", f"completed=0s,{word}")
    assert (wrong.exit_code, wrong.stderr.startswith("error: ")) == (2, True)
    assert (await removed("--storage", url, "--retain", "completed=0s", "--dry-run"))["tasks"] == {"tasks": 1}
