"""Storages of tasks: the contract, and four implementations.

    async with SQLiteStorage("tasks.db") as storage:
        task = await storage.create_task("talk", message, idempotency_key="1")
        await storage.update_task(task.id, TaskState.completed, artifacts=[ArtifactWrite(answer)])

A storage of your own needs three methods; `keelbolt.conformance.task_storage` checks it.
"""

from __future__ import annotations

from keelbolt.tasks.listing import ListTasksQuery, ListTasksResult
from keelbolt.tasks.storage.contract import ArtifactWrite, ContextT, Storage
from keelbolt.tasks.storage.engines import (
    InMemoryStorage,
    PostgreSQLStorage,
    RedisStorage,
    SQLiteStorage,
    storage_of,
)
from keelbolt.tasks.storage.kernel import KernelStorage

__all__ = [
    "ArtifactWrite",
    "ContextT",
    "InMemoryStorage",
    "KernelStorage",
    "ListTasksQuery",
    "ListTasksResult",
    "PostgreSQLStorage",
    "RedisStorage",
    "SQLiteStorage",
    "Storage",
    "storage_of",
]
