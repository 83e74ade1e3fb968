"""The PostgreSQL engine obeys every law. Each law has its own schema in one real server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import asyncpg
import pytest

from keelbolt.conformance.kernel import KernelPlace, KernelSubject
from keelbolt.conformance.kernel.histories import check_histories
from keelbolt.conformance.pytest import kernel_laws
from keelbolt.kernel import Collection, Kernel, open_storage
from keelbolt.kernel.postgres import PostgresKernel
from keelbolt.testing.postgres import URL_VARIABLE, PostgresServer

pytest_plugins = ["keelbolt.testing.pytest"]


@pytest.fixture(scope="module", autouse=True)
def server(keelbolt_postgres: PostgresServer) -> Iterator[None]:
    """One server for all laws; the processes that a law starts find it in their environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL_VARIABLE, keelbolt_postgres.url)
        yield


def make(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return open_storage(f"{os.environ[URL_VARIABLE]}?schema={place.name}", declare=declare)


# The server refuses rows that would make a table larger than this, as on a full disk.
LIMIT = """
CREATE OR REPLACE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_total_relation_size('{schema}.record') + pg_total_relation_size('{schema}.entry') > 4000000
       AND pg_column_size(NEW) > 8192 THEN
        RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON {schema}.record
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON {schema}.entry
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
"""


class SmallKernel(PostgresKernel):
    async def _open(self) -> None:
        await super()._open()
        connection = await asyncpg.connect(os.environ[URL_VARIABLE])
        await connection.execute(LIMIT.format(schema=self._schema))
        await connection.close()


def make_small(place: KernelPlace, declare: Sequence[Collection], /) -> Kernel:
    return SmallKernel(os.environ[URL_VARIABLE], schema=place.name, declare=declare)


async def discard(place: KernelPlace) -> None:
    connection = await asyncpg.connect(os.environ[URL_VARIABLE])
    await connection.execute("SET client_min_messages = error")
    await connection.execute(f"DROP SCHEMA IF EXISTS {place.name} CASCADE")
    await connection.close()


SUBJECT = KernelSubject("PostgreSQL", make, persistent=True, shared=True, discard=discard, small=make_small)

test_law = kernel_laws(SUBJECT)


@pytest.mark.timeout(600)
def test_histories() -> None:
    """Random histories, compared with an independent model."""
    assert check_histories(SUBJECT, steps=1000) >= 1000
