"""A bare loop of multi-row statements on PostgreSQL: what the server itself can do with the same rows."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from benchmarks.load import BODY, CHUNK
from keelbolt.storage.ids import new_id
from keelbolt.storage.postgres.connection import connect, plain_url, statements
from keelbolt.storage.postgres.schema import prepare_schema

FIELDS = '{"state":"working"}'


@dataclass(frozen=True, slots=True)
class Bare:
    """Commits per second, and the 99th percentile of a transaction, in milliseconds."""

    rate: float
    p99: float


async def bare_rate(url: str, schema: str, *, seconds: float, rows: int) -> Bare:
    """A connection that writes ``rows`` commits in each transaction, one after another."""
    connection = await connect(plain_url(url))
    await prepare_schema(connection, schema)
    sql = statements(schema)
    keys = [new_id() for _ in range(rows)]
    partition, collection = [f"bare/{keys[0]}"] * rows, ["bare"] * rows
    ids = [await connection.fetchval(f"SELECT nextval('{schema}.ids')") + number for number in range(rows)]
    none = [None] * rows
    ones, zeros = [1] * rows, [0] * rows
    fields, bodies, chunks, kinds = [FIELDS] * rows, [BODY] * rows, [CHUNK] * rows, ["chunk"] * rows
    await connection.execute(sql["insert_records"], partition, collection, keys, none, ones, fields, none, bodies)
    await connection.execute(sql["insert_streams"], ids, partition, collection, keys, none, zeros, zeros)
    times: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        began = time.perf_counter()
        seqs = [len(times) + 1] * rows
        await connection.execute("BEGIN")
        replaced = (partition, collection, keys, seqs, fields, none, bodies)
        appended = (ids, seqs, zeros, ids, seqs, zeros, kinds, chunks)
        await connection.execute(sql["replace_and_append"], *replaced, *appended)
        await connection.execute("COMMIT")
        times.append(time.perf_counter() - began)
    rate = rows * len(times) / (time.perf_counter() - start)
    await connection.close()
    return Bare(rate, 1000 * statistics.quantiles(times, n=100)[98])
