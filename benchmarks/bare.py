"""A bare loop that runs the statements of the load in batches: the limit of SQLite itself."""

from __future__ import annotations

import threading
import time
from itertools import count

from benchmarks.load import BODY, CALLERS, CHUNK
from keelbolt.kernel.ids import new_id
from keelbolt.kernel.sqlite.connection import SQL, connect, prepare
from keelbolt.kernel.sqlite.rows import entry_crc, head_crc
from keelbolt.kernel.sqlite.schema import migrate

FIELDS = '{"state":"working"}'


def bare_rate(path: str, *, seconds: float, rows: int = CALLERS) -> float:
    """Return the commits per second of a writer thread that writes ``rows`` commits in each transaction."""
    migrate(path)
    rates: list[float] = []
    thread = threading.Thread(target=lambda: rates.append(_write(path, seconds, rows)))
    thread.start()
    thread.join()
    return rates[0]


def _write(path: str, seconds: float, rows: int) -> float:
    connection = connect(path)
    prepare(connection, "durable")
    keys = [new_id() for _ in range(rows)]
    connection.execute("BEGIN IMMEDIATE")
    for number, key in enumerate(keys):
        connection.execute(SQL["insert_record"], (number, "bench", "t", key, 1, FIELDS, None, 0, 0, BODY))
        connection.execute(SQL["insert_stream"], (number, "bench", "l", key, 0, 0))
    connection.execute("COMMIT")
    done = 0
    start = time.perf_counter()
    for seq in count(1):
        connection.execute("BEGIN IMMEDIATE")
        heads = [head_crc("bench", "t", key, seq, FIELDS, None) for key in keys]
        connection.executemany(
            SQL["update_record"], [(seq, FIELDS, None, heads[number], 0, BODY, number) for number in range(rows)]
        )
        connection.executemany(
            SQL["insert_entry"],
            [(number, seq, 0, entry_crc(number, seq, 0, "chunk", CHUNK), "chunk", CHUNK) for number in range(rows)],
        )
        connection.executemany(SQL["update_stream"], [(seq, 0, number) for number in range(rows)])
        connection.execute("COMMIT")
        done += rows
        if time.perf_counter() - start > seconds:
            break
    rate = done / (time.perf_counter() - start)
    connection.close()
    return rate
