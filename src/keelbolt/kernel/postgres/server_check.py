"""Checks on opening that a server behaves like PostgreSQL where a difference would silently lose or repeat work.

Databases that speak PostgreSQL's protocol can differ without an error: advisory locks that lock nothing, and sequences
cached per session, so that a later number can be lower.
"""

from __future__ import annotations

import asyncio
import random

from keelbolt.errors import CannotOpen
from keelbolt.kernel.postgres.connection import BEGIN, CONNECT_SECONDS, MISSING, Connection


async def prove(first: Connection, second: Connection, sql: dict[str, str]) -> None:
    """Raise CannotOpen unless locks exclude each other and ids increase across these two connections."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.gather(first.execute(BEGIN), second.execute(BEGIN))
    except TimeoutError:
        raise CannotOpen(
            "this server, or the pooler before it, allows only one connection at a time; Keelbolt needs at least two"
        ) from None
    try:
        await _prove(first, second, sql)
    except MISSING as error:
        raise CannotOpen(
            "this server is not PostgreSQL and has no transaction-level advisory locks; Keelbolt needs them"
        ) from error
    finally:
        await asyncio.gather(first.execute("ROLLBACK"), second.execute("ROLLBACK"))


async def _prove(first: Connection, second: Connection, sql: dict[str, str]) -> None:
    locks = [random.getrandbits(62) for _ in range(2)]  # random, so that no other process uses the same
    low = (await first.fetchrow(sql["prove_locks"], *locks))[0]
    shared, exclusive, middle = await second.fetchrow(sql["try_locks"], *locks)
    if shared or exclusive:
        raise CannotOpen(
            "advisory locks of this server are not exclusive: two connections got the same one, so two "
            "processes could overwrite each other's data; use PostgreSQL, or a version of this database that has "
            "advisory locks"
        )
    high = await first.fetchval(sql["next_ids"])
    await first.execute("ROLLBACK")
    shared, exclusive, last = await second.fetchrow(sql["try_locks"], *locks)
    if not (shared and exclusive):
        raise CannotOpen(
            "this server does not release advisory locks when their transaction ends; Keelbolt needs that. "
            "Use PostgreSQL"
        )
    if not low < middle < high < last:
        raise CannotOpen(
            "sequences of this server do not increase across connections: a later number was lower, so a "
            "worker that lost its lease could still write. Set the sequence's cache to 1, and turn off sequence "
            "caching in the server"
        )
