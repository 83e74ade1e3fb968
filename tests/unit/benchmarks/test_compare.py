"""`python -m benchmarks compare` prints every figure; their values are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import compare
from benchmarks.__main__ import main
from benchmarks.http_load import message, post_for
from benchmarks.processes import _seconds, started

TINY = compare.Counts(rounds=1, seconds=0.3, connections=2, chunks=20)


def test_compare_prints_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "QUICK", TINY)
    file = tmp_path / "figures.json"
    # Any storage can replace the other engines; a file needs no server.
    further = ["--postgres", f"sqlite:///{tmp_path}/further.db"]
    result = CliRunner().invoke(main, ["compare", "--quick", "--json", str(file), *further], catch_exceptions=False)
    assert result.exit_code == 0
    figures = {figure["name"]: figure for figure in json.loads(file.read_text())["figures"]}
    floor = ["requests", "CPU of a request", "p99"]
    agent = [*floor, "requests ÷ the floor's", "CPU ÷ the floor's", "20 streamed chunks", "chunks lost"]
    further = [*floor, "requests ÷ the SQLite floor's", "CPU ÷ the SQLite floor's", "20 streamed chunks", "chunks lost"]
    assert list(figures) == [
        *(f"floor, memory: {name}" for name in floor),
        *(f"floor, SQLite: {name}" for name in floor),
        *(f"agent, memory: {name}" for name in agent),
        *(f"agent, SQLite: {name}" for name in agent),
        *(f"agent, PostgreSQL: {name}" for name in further),
    ]
    for name, figure in figures.items():
        assert name in result.stdout
        assert (figure["value"] > 0) is ("lost" not in name and "CPU" not in name) or "CPU" in name
    assert {name: figure["target"] for name, figure in figures.items() if figure["target"]} == {
        "agent, memory: requests ÷ the floor's": "≥ 0.2",
        "agent, memory: CPU ÷ the floor's": "≤ 5.5",
        "agent, memory: chunks lost": "≤ 0",
        "agent, SQLite: requests ÷ the floor's": "≥ 0.22",
        "agent, SQLite: CPU ÷ the floor's": "≤ 4.5",
        "agent, SQLite: chunks lost": "≤ 0",
        "agent, PostgreSQL: chunks lost": "≤ 0",
    }


async def test_the_floor_writes_rows_before_it_responds(tmp_path: Path) -> None:
    """One task row and two event rows for each request, readable by other connections after the response."""
    import sqlite3
    from contextlib import closing

    async with started("floor", f"sqlite:///{tmp_path}/floor.db") as floor:
        rate = await post_for(
            floor.port, lambda *_: message("hi", "1"), connections=3, seconds=0.1, expected=b"echo: hi"
        )
        with closing(sqlite3.connect(tmp_path / "floor.db")) as database:
            assert database.execute("SELECT count(*), count(DISTINCT id) FROM task").fetchone() == (rate.count,) * 2
            assert database.execute("SELECT count(*) FROM event").fetchone() == (2 * rate.count,)
            assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_wrong_answer_stops_the_load() -> None:
    async with started("floor", "memory:") as floor:
        with pytest.raises(RuntimeError, match="the server returned"):
            await post_for(floor.port, lambda *_: message("hi", "1"), connections=1, seconds=1, expected=b"bye")


async def test_a_server_that_can_not_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exited before it served"):
        async with started("floor", f"sqlite:///{tmp_path}/no/such/folder.db"):
            pass


def test_the_clock_of_ps() -> None:
    """macOS prints minutes, seconds and hundredths; days and hours come before them."""
    assert _seconds("  0:01.25\n") == 1.25
    assert _seconds("61:02.50") == 3662.5
    assert _seconds("1-02:03:04") == 93784
