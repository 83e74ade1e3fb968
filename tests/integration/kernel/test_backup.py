"""Backups: consistent, complete, restorable into any engine, and never silently damaged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import BadBackup, CopyOutdated, DestinationInUse, NotKeelbolt, StoragePaused, TransferError
from keelbolt.kernel import Append, Collection, Draft, Insert, Kernel, Put, new_id, open_storage
from keelbolt.kernel.copies import backup_storage, restore_storage
from keelbolt.kernel.transfer import backup
from keelbolt.kernel.transfer.backup import ArchiveWriter
from keelbolt.testing.postgres import PostgresServer
from keelbolt.testing.valkey import ValkeyServer
from tests.integration.kernel.whole_store import PARTITIONS, fill, seen

pytest_plugins = ["keelbolt.testing.pytest"]

PLAIN = Collection("plain")
COMMAND = [sys.executable, "-c", "from keelbolt.cli.main import main; main()", "storage"]


@pytest.fixture
def postgres(keelbolt_postgres: PostgresServer) -> str:
    return f"{keelbolt_postgres.url}?schema=backup_{new_id().replace('-', '')}"


async def problems(kernel: Kernel) -> list[str]:
    return [f"{problem.where}: {problem.what}" async for problem in kernel.check()]


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("destination", ["sqlite", "postgresql", "redis"])
@pytest.mark.parametrize("source", ["memory", "sqlite", "postgresql", "redis"])
async def test_a_backup_is_restored_into_any_engine(
    tmp_path: Path,
    keelbolt_postgres: PostgresServer,
    keelbolt_valkey: ValkeyServer,
    source: str,
    destination: str,
    portable: bool,
) -> None:
    def url(engine: str, name: str) -> str:
        if engine == "redis":
            return f"{keelbolt_valkey.url}?namespace={name}-{new_id()}"
        if engine == "postgresql":
            return f"{keelbolt_postgres.url}?schema={name}_{new_id().replace('-', '')}"
        return "memory:" if engine == "memory" else f"sqlite:///{tmp_path}/{name}.db"

    target = url(destination, "restored")
    async with open_storage(url(source, "source")) as one:
        await fill(one)
        made = await backup_storage(one, tmp_path / "backup", portable=portable)
        before = await seen(one)
        fence = max(before[f"{partition} side held"][5] for partition in PARTITIONS)
    restored = await restore_storage(tmp_path / "backup", target)
    assert restored.families == made.families
    async with open_storage(target) as other:
        assert await seen(other) == before
        assert await problems(other) == []
        await other.commit("acme/alice", Put("note", "a", b"goes on"))
        (claim,) = await other.claim("jobs", "new worker")
        assert claim.fence > fence
    assert not list(tmp_path.glob("*.partial*"))


async def test_nothing_is_restored_over_data(tmp_path: Path, postgres: str) -> None:
    async with open_storage(f"sqlite:///{tmp_path}/a.db", declare=[PLAIN]) as one:
        await one.commit("p", Insert("plain", "a", b"1"))
        await backup_storage(one, tmp_path / "native")
        await backup_storage(one, tmp_path / "portable", portable=True)
        with pytest.raises(DestinationInUse, match="'portable' exists already"):
            await backup_storage(one, tmp_path / "portable", portable=True)
    async with open_storage(postgres, declare=[PLAIN]) as other:
        await other.commit("p", Insert("plain", "mine", b"kept"))
    for file in ("native", "portable"):
        for url in (f"sqlite:///{tmp_path}/a.db", postgres):
            with pytest.raises(DestinationInUse):
                await restore_storage(tmp_path / file, url)
    async with open_storage(postgres) as other:
        assert await other.get("p", "plain", "mine") is not None
        await other.commit("p", Insert("plain", "more", b"still writable"))


@pytest.mark.parametrize("engine", ["sqlite", "redis"])
async def test_a_backup_of_a_busy_store_is_consistent(
    tmp_path: Path, keelbolt_valkey: ValkeyServer, engine: str
) -> None:
    """While another connection writes, the backup ends and holds a prefix of the writes."""
    url = f"sqlite:///{tmp_path}/a.db"
    if engine == "redis":
        url = f"{keelbolt_valkey.url}?namespace=busy-{new_id()}"
    async with open_storage(url, declare=[PLAIN]) as one, open_storage(url) as writer:
        for number in range(20):
            await one.commit("p", *[Insert("plain", f"{number}-{at}", b"x" * 2000) for at in range(200)])
        acknowledged = 0
        stop = asyncio.Event()

        async def write() -> None:
            nonlocal acknowledged
            while not stop.is_set():
                number = acknowledged + 1
                body = str(number).encode()
                try:
                    await writer.commit("p", Put("plain", "last", body), Append("log", "s", (Draft("n", body),)))
                except StoragePaused:
                    assert engine == "redis"
                    await asyncio.sleep(0.005)
                else:
                    acknowledged = number

        task = asyncio.ensure_future(write())
        await asyncio.sleep(0.2)
        before = acknowledged
        await backup_storage(one, tmp_path / "native")
        await backup_storage(one, tmp_path / "portable", portable=True)
        assert (await one.health()).writes
        stop.set()
        await task
    for file in ("native", "portable"):
        await restore_storage(tmp_path / file, f"sqlite:///{tmp_path}/{file}.db")
        async with open_storage(f"sqlite:///{tmp_path}/{file}.db") as other:
            state = await other.log_state("p", "log", "s")
            last = await other.get("p", "plain", "last")
            assert last is not None
            assert before <= state.head <= acknowledged
            assert int(last.body) == last.version == state.head
            assert await problems(other) == []


async def test_a_backup_with_writes_in_between_is_removed(
    tmp_path: Path, keelbolt_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup of Redis is consistent only if its mark was valid the whole time."""

    async def asleep(*_args: object) -> None:
        pass

    monkeypatch.setattr("keelbolt.kernel.transfer.copy.MARK_SECONDS", 0.01)
    monkeypatch.setattr("keelbolt.kernel.transfer.copy._renew", asleep)
    async with open_storage(f"{keelbolt_valkey.url}?namespace=lapsed-{new_id()}") as one:
        await fill(one)
        with pytest.raises(CopyOutdated):
            await backup_storage(one, tmp_path / "backup")
        assert (await one.health()).writes
    assert list(tmp_path.iterdir()) == []


async def test_a_log_of_another_database_is_not_applied_to_a_restored_file(tmp_path: Path) -> None:
    """SQLite would write the pages of a left write-ahead log into the restored file."""
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    async with open_storage(f"sqlite:///{tmp_path}/agent.db") as kernel:
        await kernel.declare(PLAIN)
        await kernel.scoped("p").commit(Put("plain", "key", b"saved"))
        await backup_storage(kernel, tmp_path / "backup.db")
        await kernel.scoped("p").commit(Put("plain", "key", b"later"))
        (crashed / "agent.db-wal").write_bytes((tmp_path / "agent.db-wal").read_bytes())
    url = f"sqlite:///{crashed}/agent.db"
    with pytest.raises(DestinationInUse, match="db-wal"):
        await restore_storage(tmp_path / "backup.db", url)
    (crashed / "agent.db-wal").unlink()
    await restore_storage(tmp_path / "backup.db", url)
    async with open_storage(url) as kernel:
        await kernel.declare(PLAIN)
        record = await kernel.scoped("p").get("plain", "key")
        assert record is not None
        assert record.body == b"saved"


async def test_every_damage_of_a_portable_backup_is_noticed(tmp_path: Path) -> None:
    async with open_storage(f"sqlite:///{tmp_path}/a.db") as one:
        await fill(one)
        await backup_storage(one, tmp_path / "backup", portable=True)
    data = (tmp_path / "backup").read_bytes()
    damaged = tmp_path / "damaged"
    for place in [*range(0, len(data), len(data) // 97), len(data) - 1]:
        changed = bytearray(data)
        changed[place] ^= 0x10
        damaged.write_bytes(changed)
        with pytest.raises(BadBackup):
            await restore_storage(damaged, f"sqlite:///{tmp_path}/never.db")
    for length in (0, 5, 18, 100, len(data) // 2, len(data) - 1):
        damaged.write_bytes(data[:length])
        with pytest.raises(BadBackup):
            await restore_storage(damaged, f"sqlite:///{tmp_path}/never.db")
    async with open_storage(f"sqlite:///{tmp_path}/never.db") as other:
        assert (await other.health()).writes
        assert (await other.stats()).partitions == 0


HEAD: dict[str, Any] = {"id": "1", "engine": "sqlite", "taken_at": 1}
DONE: dict[str, Any] = {"rows": 0, "last_fence": 1, "digests": {}}


@pytest.mark.parametrize(
    "frames",
    [
        [(b"HEAD", b"{"), (b"DONE", json.dumps(DONE).encode())],
        [(b"HEAD", b"[]"), (b"DONE", json.dumps(DONE).encode())],
        [(b"HEAD", b'{"id": "1"}'), (b"DONE", json.dumps(DONE).encode())],
        [(b"HEAD", json.dumps(HEAD).encode()), (b"DONE", b'{"last_fence": 1, "digests": [1]}')],
        [(b"HEAD", json.dumps(HEAD).encode()), (b"ROWS", b"x"), (b"DONE", json.dumps(DONE).encode())],
        [(b"HEAD", json.dumps(HEAD).encode()), (b"ROWS", zlib.compress(b"\xff")), (b"DONE", json.dumps(DONE).encode())],
    ],
)
async def test_a_forged_backup_is_refused(tmp_path: Path, frames: list[tuple[bytes, bytes]]) -> None:
    """Frames with correct checksums, but with content that no backup has."""
    with (tmp_path / "forged").open("wb") as file:
        writer = ArchiveWriter(file)
        for tag, payload in frames:
            writer.write(tag, payload)
    with pytest.raises(BadBackup):
        await restore_storage(tmp_path / "forged", f"sqlite:///{tmp_path}/never.db")


def test_a_page_that_decompresses_to_far_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "MAX_PAGE", 1_000_000)
    assert backup.unpack(zlib.compress(backup.pack("record", []))) == ("record", [])
    for bad in (zlib.compress(bytes(2_000_000)), zlib.compress(backup.pack("record", []))[:-1], b""):
        with pytest.raises(BadBackup):
            backup.unpack(bad)


async def test_damage_of_a_sqlite_backup_is_noticed(tmp_path: Path, postgres: str) -> None:
    """If SQLite does not detect a flipped byte, the kernel's checksums do."""
    body = b"the quick brown fox" * 20
    async with open_storage(f"sqlite:///{tmp_path}/a.db", declare=[PLAIN]) as one:
        await one.commit("p", Insert("plain", "a", body))
        await backup_storage(one, tmp_path / "backup")
    data = (tmp_path / "backup").read_bytes()
    place = data.index(body) + 7
    (tmp_path / "backup").write_bytes(data[:place] + b"!" + data[place + 1 :])
    for url in (f"sqlite:///{tmp_path}/never.db", postgres):
        with pytest.raises(Exception, match="damaged"):
            await restore_storage(tmp_path / "backup", url)
    assert not (tmp_path / "never.db").exists()


async def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    sqlite3.connect(tmp_path / "foreign").executescript(
        "CREATE TABLE t (a); INSERT INTO t VALUES (1)"
    ).connection.close()
    with pytest.raises(BadBackup, match="not a backup"):
        await restore_storage(tmp_path / "text", f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(BadBackup, match="no file"):
        await restore_storage(tmp_path / "missing", f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(NotKeelbolt):
        await restore_storage(tmp_path / "foreign", f"sqlite:///{tmp_path}/a.db")
    async with open_storage("memory:") as one:
        with pytest.raises(TransferError, match="can't be written"):
            await backup_storage(one, tmp_path / "no" / "such" / "folder")


def test_the_commands(tmp_path: Path, postgres: str, redis_url: str) -> None:
    """copy, backup and restore from a shell: counts as JSON, a line of text for people, exit code 3 for a refusal."""

    async def make() -> None:
        async with open_storage(f"sqlite:///{tmp_path}/a.db") as one:
            await fill(one)

    asyncio.run(make())

    def run(*words: str, code: int = 0) -> str:
        ran = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == code, ran.stderr
        return ran.stdout if code == 0 else ran.stderr

    answer = json.loads(run("backup", "sqlite:///a.db", "a.backup", "--portable", "--json"))
    assert answer["families"]["records of note"] == 24
    assert "restored and verified" in run("restore", "a.backup", postgres)
    assert "is marked as moved" in run("copy", postgres, "sqlite:///b.db")
    assert "error: This storage was moved" in run("copy", postgres, "sqlite:///never.db", code=3)
    assert "written and checked" in run("backup", "sqlite:///b.db", "b.backup")
    assert "accepts writes again" in run("copy", "sqlite:///b.db", "sqlite:///c.db", "--keep-source")
    assert "copied and verified" in run("copy", "sqlite:///b.db", "sqlite:///d.db")
    assert json.loads(run("stats", "sqlite:///d.db", "--json"))["records"]["note"] == 24
    assert "accepts writes again" in run("copy", "sqlite:///d.db", redis_url, "--keep-source")
    assert "accepts writes again" in run("copy", redis_url, "sqlite:///f.db", "--keep-source")
    assert "written and checked" in run("backup", redis_url, "redis.backup")
    assert "restored and verified" in run("restore", "redis.backup", "sqlite:///g.db")
    assert json.loads(run("stats", "sqlite:///g.db", "--json"))["records"]["note"] == 24
    assert "error: The destination holds data" in run("copy", "sqlite:///c.db", "sqlite:///d.db", code=3)
    assert "error: 'b.backup' exists already" in run("backup", "sqlite:///c.db", "b.backup", code=3)
    assert "no storage exists at this URL" in run("copy", "sqlite:///none.db", "sqlite:///e.db", code=3)
    assert "in memory" in run("copy", "sqlite:///c.db", "memory:", code=2)
