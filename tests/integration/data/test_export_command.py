"""`keelbolt export` and `import`: their output, exit codes and files."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from keelbolt.state import StateStore
from tests.integration.state.session import everything, fill


async def run(*words: str, given: bytes | None = None) -> Result:
    """Run the command in a thread, because it has its own event loop."""
    return await asyncio.to_thread(CliRunner().invoke, main, words, input=given)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/file.db"


async def test_a_session_is_exported_and_imported(url: str, tmp_path: Path) -> None:
    """The other store has the same ids, order and values, also unusual values; a second import changes nothing."""
    file, other = tmp_path / "out.jsonl", f"sqlite:///{tmp_path}/other.db"
    async with StateStore(url, types="own") as store:
        await fill(store)
        before = await everything(store)
    done = await run("export", "--session", "session", "--storage", url, "--output", str(file), "--json")
    assert (done.exit_code, json.loads(done.stdout)["skipped"]) == (0, []), done.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = await run("export", "--session", "session", "--storage", url, "--output", str(file))
    assert (again.exit_code, "choose a new file" in again.stderr) == (1, True)  # no file is overwritten
    for new in (True, False):
        imported = await run("import", str(file), "--storage", other, "--json")
        assert (imported.exit_code, json.loads(imported.stdout)["new"] > 0) == (0, new), imported.output
    async with StateStore(other, types="own") as store:
        assert await everything(store) == before
        await store.save_memory_state("t:u:session", {"turns": []})
    refused = await run("import", str(file), "--storage", other)
    assert (refused.exit_code, "already stored with other content" in refused.stderr) == (3, True)


async def test_everything_through_a_pipe(url: str, tmp_path: Path) -> None:
    async with StateStore(url, types="own") as store:
        await fill(store)
        before = await everything(store)
    piped = await run("export", "--all", "--storage", url, "--output", "-")
    other = f"sqlite:///{tmp_path}/other.db"
    assert (await run("import", "-", "--storage", other, given=piped.stdout_bytes)).exit_code == 0
    async with StateStore(other, types="own") as store:
        assert await everything(store) == before


async def test_wrong_usage(url: str, tmp_path: Path) -> None:
    async with StateStore(url) as store:
        await store.save_memory_state("t:u:session", {"a": 1})
    file = tmp_path / "file.jsonl"
    missing = await run("export", "--task", "none", "--storage", url, "--output", str(file))
    assert (missing.exit_code, missing.stderr) == (3, "error: there is no task 'none'\n")
    assert not file.exists()
    for words in ((), ("--all", "--session", "s"), ("--session", "a", "--task", "b")):
        assert (await run("export", *words, "--storage", url, "--output", str(file))).exit_code == 2
    file.write_text("hello\n")
    bad = await run("import", str(file), "--storage", url)
    assert (bad.exit_code, bad.stderr) == (1, "error: line 1 is incomplete: the file is truncated\n")
