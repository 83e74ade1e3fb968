"""`python -m benchmarks state` says every figure, and its samples are stores that keep events."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import state
from benchmarks.__main__ import main
from benchmarks.state_sample import SamplePostgres, SampleSQLite
from keelbolt.state import StoredEvent
from keelbolt.testing.postgres import PostgresServer

EVENT = StoredEvent("trace", 1.0, "node_start", "node", "node_1", {"n": 1})


def test_bench_state_says_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "HYDRATED", 10)
    monkeypatch.setattr(state, "QUICK", 3000)
    monkeypatch.setattr("benchmarks.state_agents.CHUNK_SECONDS", 0.0)
    file = tmp_path / "figures.json"
    url = f"sqlite:///{tmp_path}/bench.db"
    result = CliRunner().invoke(main, ["state", "--quick", "--url", url, "--json", str(file)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    figures = {figure["name"].removeprefix("sqlite: "): figure for figure in json.loads(file.read_text())["figures"]}
    assert {name for name, figure in figures.items() if figure["target"]} == {
        "events ÷ an INSERT for each",
        "a run of five nodes, write-behind ÷ in memory, CPU",
        "a streamed answer, stored",
        "a context written while its task progressed 20 times",
        "the same, of 3,000 ÷ of 1,000",
        "opening ÷ decoding",
    }
    assert figures["planner events of a streamed answer"]["value"] > 500
    assert figures["a context written while its task progressed 20 times"]["met"]


async def test_the_sample_on_sqlite_keeps_an_event_once(tmp_path: Path) -> None:
    sample = SampleSQLite(f"{tmp_path}/sample.db")
    for _ in range(2):
        await sample.save_event(EVENT)
    await sample.close()
    with closing(sqlite3.connect(tmp_path / "sample.db")) as connection:
        assert connection.execute("SELECT trace_id, kind, payload FROM flow_events").fetchall() == [
            ("trace", "node_start", '{"n": 1}')
        ]


async def test_the_sample_on_postgresql_keeps_an_event_once(keelbolt_postgres: PostgresServer) -> None:
    sample = await SamplePostgres.open(keelbolt_postgres.url, "sample")
    for _ in range(2):
        await sample.save_event(EVENT)
    assert await sample._pool.fetchval("SELECT count(*) FROM sample.flow_events") == 1
    await sample.close()
