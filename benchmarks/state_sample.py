"""Stores like the samples of the StateStore specification: an INSERT for each event, with its fingerprint."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from typing import Any

_TABLE = """CREATE TABLE {name} (
    id {serial},
    trace_id TEXT NOT NULL,
    ts DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    node_name TEXT,
    node_id TEXT,
    event_fp TEXT NOT NULL,
    payload {json},
    created_at TEXT,
    UNIQUE (trace_id, event_fp)
)"""
_INDEXES = ("(trace_id, ts, id)", "(kind)")
_INSERT = """INSERT INTO {name} (trace_id, ts, kind, node_name, node_id, event_fp, payload)
VALUES ({values}) ON CONFLICT (trace_id, event_fp) DO NOTHING"""


def _row(event: Any) -> tuple[Any, ...]:
    trace_id = event.trace_id or "__global__"
    fields = {name: getattr(event, name) for name in ("ts", "kind", "node_name", "node_id")}
    raw = json.dumps(
        {"trace_id": trace_id, **fields, "payload": dict(event.payload)},
        ensure_ascii=False,
        sort_keys=True,
        default=str,
    )
    fingerprint = hashlib.sha256(raw.encode()).hexdigest()
    return (trace_id, *fields.values(), fingerprint, json.dumps(dict(event.payload)))


class SamplePostgres:
    """The sample on asyncpg, with its pool of 5 to 20 connections."""

    def __init__(self, pool: Any, schema: str) -> None:
        self._pool = pool
        self._insert = _INSERT.format(
            name=f"{schema}.flow_events", values=", ".join(f"${number}" for number in range(1, 8))
        )

    @classmethod
    async def open(cls, url: str, schema: str) -> SamplePostgres:
        """Create the table in a new schema."""
        import asyncpg

        pool = await asyncpg.create_pool(url, min_size=5, max_size=20, command_timeout=5.0)
        await pool.execute(f"CREATE SCHEMA {schema}")
        table = _TABLE.format(name=f"{schema}.flow_events", serial="BIGSERIAL PRIMARY KEY", json="JSONB")
        await pool.execute(table)
        for columns in _INDEXES:
            await pool.execute(f"CREATE INDEX ON {schema}.flow_events {columns}")
        return cls(pool, schema)

    async def save_event(self, event: Any) -> None:
        await self._pool.execute(self._insert, *_row(event))

    async def load_history(self, _trace_id: str) -> list[Any]:
        return []

    async def save_remote_binding(self, _binding: Any) -> None:
        pass

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def close(self) -> None:
        await self._pool.close()


class SampleSQLite:
    """The sample on a SQLite file, durable: WAL, and synchronous=FULL, in a thread."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_TABLE.format(name="flow_events", serial="INTEGER PRIMARY KEY", json="TEXT"))
        for number, columns in enumerate(_INDEXES):
            self._connection.execute(f"CREATE INDEX by_{number} ON flow_events {columns}")
        self._insert = _INSERT.format(name="flow_events", values=", ".join("?" * 7))
        self._lock = asyncio.Lock()

    async def save_event(self, event: Any) -> None:
        async with self._lock:
            await asyncio.to_thread(self._connection.execute, self._insert, _row(event))

    async def load_history(self, _trace_id: str) -> list[Any]:
        return []

    async def save_remote_binding(self, _binding: Any) -> None:
        pass

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def close(self) -> None:
        self._connection.close()
