"""Partitions stay listed when an engine clears its limited memory of those that it has registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from keelbolt.kernel import Collection, Put, open_storage
from keelbolt.testing.postgres import own_postgres


async def fill(url: str) -> None:
    names = [f"tenant-{number:02}" for number in range(10)]
    async with open_storage(url) as kernel:
        await kernel.declare(Collection("things"))
        for name in (*names, *names):
            await kernel.commit(name, Put("things", "a", b""))
        assert list(await kernel.partitions()) == names


async def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.kernel.sqlite.rows.KNOWN_KEYS", 3)
    await fill(f"sqlite:///{tmp_path}/file.db")


async def test_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.kernel.postgres.committer.KNOWN_PARTITIONS", 3)
    with own_postgres() as postgres:
        await fill(postgres.create_database())
