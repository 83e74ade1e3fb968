"""`keelbolt erase`: its output, its exit codes, and the contents of the file afterwards."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from keelbolt.cli.main import main
from keelbolt.data import Subject, erase
from keelbolt.kernel import open_storage
from tests.integration.data.filling import fill_state, fill_tasks, fill_turns, rows_with, run_session

CANARY = "canary-4f1c09d2"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["erase", *words])


async def fill(url: str, *, tenant: str = "", canary: str) -> str:
    async with open_storage(url) as kernel:
        await fill_state(kernel, tenant or "default", "session-1", canary=canary)
        await fill_turns(kernel, f"{tenant}/ada" if tenant else "ada", "talk", canary=canary)
        return await fill_tasks(kernel, "ada", tenant=tenant, canary=canary)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/file.db"


def holds(directory: Path, *, word: str = CANARY) -> list[str]:
    """Return the files of the storage that contain the word."""
    return [path.name for path in directory.iterdir() if path.is_file() and word.encode() in path.read_bytes()]


async def in_thread(*words: str) -> Result:
    """Run the command in a thread, because it has its own event loop."""
    return await asyncio.to_thread(run, *words)


async def test_no_file_of_the_storage_holds_a_byte_of_it(url: str, tmp_path: Path) -> None:
    """Neither the database nor its write-ahead log contains it. Bytes of files stay for a grace period of an hour."""
    task = await fill(url, canary=CANARY)
    assert holds(tmp_path)
    for words in (("--session", "session-1"), ("--context", "talk", "--owner", "ada")):
        assert (await in_thread(*words, "--storage", url)).exit_code == 0
    async with open_storage(url) as kernel:
        with closing(sqlite3.connect(tmp_path / "file.db")) as database:
            database.execute("UPDATE blob SET expires_at = 1")
            database.commit()
        while (await kernel.sweep()).blobs:
            pass
        await kernel.scrub()
    assert holds(tmp_path) == []
    assert holds(tmp_path, word=task) == []


async def test_it_counts_then_erases_then_finds_nothing(url: str) -> None:
    await fill(url, tenant="acme", canary=CANARY)
    where = ("--session", "session-1", "--tenant", "acme", "--storage", url, "--json")
    tried = await in_thread(*where, "--dry-run")
    done = await in_thread(*where)
    assert (tried.exit_code, done.exit_code) == (0, 0)
    counted, erased = json.loads(tried.stdout), json.loads(done.stdout)
    assert (counted.pop("dryRun"), erased.pop("dryRun")) == (True, False)
    assert counted == erased
    assert erased["erased"]["session tasks"] == 1
    again = await in_thread(*where)
    assert again.exit_code == 3
    assert "there is no session 'session-1'" in again.stderr


async def test_a_tenant_is_erased_after_a_question(url: str) -> None:
    await fill(url, tenant="acme", canary=CANARY)
    assert (await in_thread("--tenant", "acme", "--storage", url)).exit_code == 1  # an empty answer means no
    done = await in_thread("--tenant", "acme", "--storage", url, "--yes")
    assert (done.exit_code, "record(s) erased" in done.stdout) == (0, True)
    async with open_storage(url) as kernel:
        assert await rows_with(kernel, "acme") == []


def test_one_subject_at_a_time(url: str) -> None:
    for words in ((), ("--task", "1", "--context", "2"), ("--task", "")):
        refused = run(*words, "--storage", url)
        assert (refused.exit_code, "name one subject" in refused.stderr) == (2, True)


async def test_an_idle_subject_alone(url: str) -> None:
    """--if-idle refuses a session that a process runs, with the exit code of a refusal."""
    await fill(url, canary=CANARY)
    async with open_storage(url) as kernel:
        await fill_state(kernel, "default", "session-1", canary=CANARY)
        await run_session(kernel, "default", "session-1")
    refused = await in_thread("--session", "session-1", "--storage", url, "--if-idle")
    assert (refused.exit_code, "nothing was erased" in refused.stderr) == (3, True)
    assert (await in_thread("--session", "session-1", "--storage", url)).exit_code == 0


async def test_only_blobs_in_their_grace_period_are_left(url: str, tmp_path: Path) -> None:
    """Right after the erasure only the blob table holds the bytes of files."""
    await fill(url, canary=CANARY)
    async with open_storage(url) as kernel:
        await erase(kernel, Subject(kind="user", id="ada"))
        await erase(kernel, Subject(kind="session", id="session-1"))
    with closing(sqlite3.connect(tmp_path / "file.db")) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {table for table in tables for row in database.execute(f"SELECT * FROM {table}") if CANARY in repr(row)}
    assert found <= {"blob_chunk"}
