"""Attack: another user of the machine reads the database, its side files, backups, exports and spools."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from keelbolt.cli.main import main
from keelbolt.kernel import Collection, Put, open_storage
from keelbolt.kernel.copies import backup_storage, restore_storage
from keelbolt.kernel.sqlite.schema import migrate
from keelbolt.state import StateStore
from tests.integration.kernel.whole_store import fill

PLAIN = Collection("plain")
UMASKS = (0o000, 0o022, 0o077)


@pytest.fixture(params=UMASKS, ids=lambda mask: f"umask-{mask:03o}", autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def modes(folder: Path) -> dict[str, str]:
    """Return the mode of every file and socket folder."""
    return {each.name: oct(stat.S_IMODE(each.lstat().st_mode)) for each in sorted(folder.iterdir())}


def private(folder: Path) -> None:
    found = modes(folder)
    assert found
    for name, mode in found.items():
        assert mode == ("0o700" if (folder / name).is_dir() else "0o600"), (name, found)


async def test_the_database_and_its_side_files(place: Path) -> None:
    async with open_storage(f"sqlite:///{place}/keelbolt.db") as kernel:
        await kernel.declare(PLAIN)
        await kernel.commit("alice", Put("plain", "key", b"secret"))
        names = set(modes(place))
        assert {"keelbolt.db", "keelbolt.db-wal", "keelbolt.db-shm", "keelbolt.db-lock", "keelbolt.db-turn"} <= names
        assert "keelbolt.db-reserve" in names
        private(place)
    private(place)


def test_a_database_that_migrate_creates(place: Path) -> None:
    migrate(f"{place}/keelbolt.db")
    private(place)


async def test_a_database_behind_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(place / "real.db")
    async with open_storage(f"sqlite:///{tmp_path}/link.db"):
        assert modes(place)["real.db"] == "0o600"


@pytest.mark.parametrize("portable", [False, True])
async def test_backups_and_restored_files(place: Path, tmp_path: Path, portable: bool) -> None:
    for name in ("source", "backup", "restored"):
        (place / name).mkdir()
        (place / name).chmod(0o755)
    async with open_storage(f"sqlite:///{place}/source/keelbolt.db") as kernel:
        await fill(kernel)
        watching = asyncio.create_task(_never_open(place / "backup"))
        await backup_storage(kernel, place / "backup" / "it", portable=portable)
        watching.cancel()
    private(place / "backup")
    await restore_storage(place / "backup" / "it", f"sqlite:///{place}/restored/keelbolt.db")
    private(place / "restored")


async def _never_open(folder: Path) -> None:
    """Check that the file is private, also while it is written."""
    while True:
        for mode in modes(folder).values():
            assert mode == "0o600"
        await asyncio.sleep(0)


async def test_exports(place: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    async with StateStore(url) as store:
        await store.save_memory_state("key", {"secret": "yes"})
    output = place / "export.jsonl"
    words = ["export", "--all", "--storage", url, "--output", str(output)]
    ran = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert ran.exit_code == 0, ran.output
    private(place)


async def test_spools(place: Path) -> None:
    """A resilient store whose storage is unreachable keeps writes in a spool."""
    spool = place / "spool"
    store = StateStore(f"sqlite:///{place}/missing/state.db", policy="resilient", spool=spool, timeout_seconds=0.2)
    await store.save_memory_state("key", {"secret": "yes"})
    await store.close()
    assert any(spool.iterdir())
    assert modes(place) == {"spool": "0o700"}
    private(spool)


async def test_existing_files_keep_their_mode(place: Path, umask: int) -> None:
    """An operator may let a group read the database."""
    file = place / "keelbolt.db"
    async with open_storage(f"sqlite:///{file}"):
        pass
    file.chmod(0o640)
    async with open_storage(f"sqlite:///{file}"):
        assert modes(place)["keelbolt.db"] == "0o640"


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
