"""The PostgreSQL engine obeys every law: a schema of its own for each, in one real server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import asyncpg
import pytest

from keelbolt.conformance.machine import check_histories
from keelbolt.conformance.pytest import storage_laws
from keelbolt.conformance.storage import Place, Subject
from keelbolt.storage import Collection, Kernel, open_storage
from keelbolt.testing.postgres import URL_VARIABLE, PostgresServer

pytest_plugins = ["keelbolt.testing.pytest"]


@pytest.fixture(scope="module", autouse=True)
def server(keelbolt_postgres: PostgresServer) -> Iterator[None]:
    """One server for all laws; the processes that a law starts find it in their environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL_VARIABLE, keelbolt_postgres.url)
        yield


def make(place: Place, declare: Sequence[Collection], /) -> Kernel:
    return open_storage(f"{os.environ[URL_VARIABLE]}?schema={place.name}", declare=declare)


async def discard(place: Place) -> None:
    connection = await asyncpg.connect(os.environ[URL_VARIABLE])
    await connection.execute("SET client_min_messages = error")
    await connection.execute(f"DROP SCHEMA IF EXISTS {place.name} CASCADE")
    await connection.close()


SUBJECT = Subject("PostgreSQL", make, persistent=True, shared=True, discard=discard)

test_law = storage_laws(SUBJECT)


@pytest.mark.timeout(600)
def test_histories() -> None:
    """Random histories, compared with an independent model."""
    assert check_histories(SUBJECT, steps=1000) >= 1000
