"""A bare loop of multi-row statements on PostgreSQL: the limit of the server itself for the same rows."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from benchmarks.load import BODY, CHUNK
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.postgres.connection import connect, plain_url
from keelbolt.kernel.postgres.schema import prepare_schema

FIELDS = '{"state":"working"}'

_RECORDS = """INSERT INTO {schema}.record (partition, collection, name, version, fields, body)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bytea[])"""
_STREAMS = """INSERT INTO {schema}.stream (id, partition, log, name, head, floor)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])"""
_COMMITS = """WITH bodies AS (
    UPDATE {schema}.record AS r SET version = n.version, fields = n.fields, body = n.body
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bytea[])
        AS n (partition, collection, name, version, fields, body)
    WHERE r.partition = n.partition AND r.collection = n.collection AND r.name = n.name
), heads AS (
    UPDATE {schema}.stream AS s SET head = n.head
    FROM unnest($7::bigint[], $8::bigint[]) AS n (id, head) WHERE s.id = n.id)
INSERT INTO {schema}.entry (stream, seq, at, kind, data)
SELECT * FROM unnest($9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bytea[])"""


@dataclass(frozen=True, slots=True)
class Bare:
    """Commits per second, and the 99th percentile of a transaction, in milliseconds."""

    rate: float
    p99: float


async def bare_rate(url: str, schema: str, *, seconds: float, rows: int) -> Bare:
    """Measure a connection that writes ``rows`` commits in each transaction, one after another."""
    connection = await connect(plain_url(url))
    await prepare_schema(connection, schema)
    records, streams, commits = (sql.format(schema=schema) for sql in (_RECORDS, _STREAMS, _COMMITS))
    keys = [new_id() for _ in range(rows)]
    partition, collection = [f"bare/{keys[0]}"] * rows, ["bare"] * rows
    ids = [await connection.fetchval(f"SELECT nextval('{schema}.ids')") + number for number in range(rows)]
    ones, zeros = [1] * rows, [0] * rows
    fields, bodies, chunks, kinds = [FIELDS] * rows, [BODY] * rows, [CHUNK] * rows, ["chunk"] * rows
    await connection.execute(records, partition, collection, keys, ones, fields, bodies)
    await connection.execute(streams, ids, partition, collection, keys, zeros, zeros)
    times: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        began = time.perf_counter()
        seqs = [len(times) + 1] * rows
        await connection.execute("BEGIN")
        replaced = (partition, collection, keys, seqs, fields, bodies)
        await connection.execute(commits, *replaced, ids, seqs, ids, seqs, zeros, kinds, chunks)
        await connection.execute("COMMIT")
        times.append(time.perf_counter() - began)
    rate = rows * len(times) / (time.perf_counter() - start)
    await connection.close()
    return Bare(rate, 1000 * statistics.quantiles(times, n=100)[98])
