"""Every storage of tasks obeys its laws: four engines, an example that has the three methods and
nothing else, and the task store of apcore agents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import asyncpg
import pytest
import redis

from keelbolt.apcore import InMemoryTaskStore, TaskStoreStorage
from keelbolt.conformance.pytest import task_storage_laws
from keelbolt.conformance.task_storage import TaskStoragePlace, TaskStorageSubject
from keelbolt.tasks.storage import InMemoryStorage, PostgreSQLStorage, RedisStorage, SQLiteStorage
from keelbolt.testing import postgres, valkey
from tests.conformance.three_methods import ThreeMethods

pytest_plugins = ["keelbolt.testing.pytest"]


@pytest.fixture(scope="module", autouse=True)
def servers(keelbolt_postgres: postgres.PostgresServer, keelbolt_valkey: valkey.ValkeyServer) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(postgres.URL_VARIABLE, keelbolt_postgres.url)
        patch.setenv(valkey.URL_VARIABLE, keelbolt_valkey.url)
        yield


def sqlite(place: TaskStoragePlace) -> SQLiteStorage:
    return SQLiteStorage(f"sqlite+aiosqlite:///{place.directory}/tasks.db")


def postgresql(place: TaskStoragePlace) -> PostgreSQLStorage:
    url = os.environ[postgres.URL_VARIABLE].replace("postgresql://", "postgresql+asyncpg://")
    return PostgreSQLStorage(f"{url}?schema={place.name}")


async def drop_schema(place: TaskStoragePlace) -> None:
    connection = await asyncpg.connect(os.environ[postgres.URL_VARIABLE])
    await connection.execute("SET client_min_messages = error")
    await connection.execute(f"DROP SCHEMA IF EXISTS {place.name} CASCADE")
    await connection.close()


def on_redis(place: TaskStoragePlace) -> RedisStorage:
    return RedisStorage(f"{os.environ[valkey.URL_VARIABLE]}?namespace={place.name}")


async def drop_keys(place: TaskStoragePlace) -> None:
    with redis.Redis.from_url(os.environ[valkey.URL_VARIABLE]) as client:
        for key in client.scan_iter(f"{place.name}:*", count=1000):
            client.unlink(key)


test_three_methods = task_storage_laws(ThreeMethods)
test_memory = task_storage_laws(InMemoryStorage)
test_task_store = task_storage_laws(
    TaskStorageSubject("TaskStore", lambda _place: TaskStoreStorage(InMemoryTaskStore()), TaskStoreStorage)
)
test_sqlite = task_storage_laws(TaskStorageSubject("SQLite", sqlite, SQLiteStorage, persistent=True))
test_postgresql = task_storage_laws(
    TaskStorageSubject("PostgreSQL", postgresql, PostgreSQLStorage, persistent=True, discard=drop_schema)
)
test_redis = task_storage_laws(TaskStorageSubject("Redis", on_redis, RedisStorage, persistent=True, discard=drop_keys))
