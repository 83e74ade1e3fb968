"""Opens and closes all stores together."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent
from a2a.server.context import ServerCallContext
from a2a.server.tasks.push_notification_config_store import (
    PushNotificationConfigStore,
    normalize_push_notification_config,
)
from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from google.protobuf.json_format import Parse
from pydantic_core import from_json, to_json

from keelbolt.a2a_sdk.codec import encoded, event_of
from keelbolt.a2a_sdk.families import CONFIGS
from keelbolt.a2a_sdk.families import FAMILIES as SDK_FAMILIES
from keelbolt.a2a_sdk.tasks import (
    KeelboltPlainTaskStore,
    KeelboltTaskStore,
    ScopeResolver,
    Whose,
    delete_configs,
    owner_partition,
)
from keelbolt.kernel import Delete, Entry, Put, Query, Record, Scope, open_storage
from keelbolt.protocol import v1
from keelbolt.tasks.events import TaskFeeds, TaskSnapshot
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.stored_tasks import StoredTasks
from keelbolt.webhooks.sealing import Sealer, opened


@dataclass(frozen=True, slots=True)
class SdkStores:
    """``tasks`` is versioned; ``plain_tasks`` is for handlers without versions."""

    tasks: KeelboltTaskStore
    plain_tasks: KeelboltPlainTaskStore
    events: KeelboltEventStream
    push_configs: KeelboltPushConfigStore


@asynccontextmanager
async def sdk_stores(
    url: str, *, whose: Whose = owner_partition, secret_key: str | None = None
) -> AsyncIterator[SdkStores]:
    """Open the stores on this storage. ``whose`` returns the partition of a call's tasks (default: tenant and user).

    ``secret_key`` (default: ``KEELBOLT_SECRET_KEY`` in the environment) encrypts push configs.
    """
    sealer = Sealer.of(os.environ.get("KEELBOLT_SECRET_KEY", "") if secret_key is None else secret_key)
    async with open_storage(url, declare=[*FAMILIES, *SDK_FAMILIES]) as kernel:
        store = StoredTasks(kernel)
        events = TaskFeeds(store)
        directory = ScopeResolver(kernel, whose)
        tasks = KeelboltTaskStore(store, directory)
        try:
            yield SdkStores(
                tasks,
                KeelboltPlainTaskStore(tasks),
                KeelboltEventStream(events, directory),
                KeelboltPushConfigStore(directory, sealer),
            )
        finally:
            events.close()


# ----------------------------------------------------------------------------------------------------------------- push


class KeelboltPushConfigStore(PushNotificationConfigStore):
    """Stores configs in the partition of the task's owner; dispatch finds them by the task."""

    def __init__(self, directory: ScopeResolver, sealer: Sealer | None = None) -> None:
        self._directory = directory
        self._sealer = sealer  # encrypts whole configs, because they contain a token and credentials

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        config = normalize_push_notification_config(task_id, notification_config)
        key, body = f"{task_id}/{config.id}", encoded(config)
        if self._sealer is not None:
            body = to_json({"sealed": self._sealer.seal(body, key)})
        await self._directory.scope(context).commit(Put(CONFIGS, key, body, {"task": task_id}))
        return config

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        return await self._of(self._directory.scope(context), task_id)

    async def get_info_for_dispatch(self, task_id: str) -> list[TaskPushNotificationConfig]:
        scope = await self._directory.find(task_id)
        return [] if scope is None else await self._of(scope, task_id)

    async def _of(self, scope: Scope, task_id: str) -> list[TaskPushNotificationConfig]:
        return [self._read(record) async for record in scope.scan(Query(CONFIGS, {"task": task_id}))]

    def _read(self, record: Record) -> TaskPushNotificationConfig:
        """Decode a config. Raise SecretKeyMissing: a config without its credentials must not be used for delivery."""
        body, found = record.body, from_json(record.body)
        if "sealed" in found:
            body = opened(self._sealer, found["sealed"], record.key)
        config: TaskPushNotificationConfig = Parse(body, TaskPushNotificationConfig())
        return config

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        scope = self._directory.scope(context)
        if config_id is None:
            await delete_configs(scope, task_id)
        else:
            await scope.commit(Delete(CONFIGS, f"{task_id}/{config_id}"))


# --------------------------------------------------------------------------------------------------------------- events


class KeelboltEventStream(TaskEventStream):
    """Streams the event of each save with the version that the save created."""

    def __init__(self, events: TaskFeeds, directory: ScopeResolver) -> None:
        self._events = events
        self._directory = directory

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Do nothing: the store wrote the event in the same commit as the task."""

    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        scope = await self._directory.find(task_id)
        if scope is None:
            return
        seq: int = 0 if after.is_missing else after._value  # type: ignore[assignment]  # noqa: SLF001
        splice: v1.EventEncoder | None = None
        events = self._events.follow(scope, task_id, after=seq)
        try:
            async for event in events:
                if isinstance(event, TaskSnapshot):
                    json = await self._events.store.task_json(event.task)
                    yield VersionedEvent(event_of(v1.sent_task(json)), TaskVersion(event.seq))
                elif event.kind in WIRE_KINDS:
                    splice = splice or await self._splice(scope, task_id)
                    yield VersionedEvent(event_of(_written(splice, event)), TaskVersion(event.seq))
        finally:
            await events.aclose()

    async def _splice(self, scope: Scope, task_id: str) -> v1.EventEncoder:
        record = await self._events.store.record(scope, task_id)
        return v1.EventEncoder(task_id, record.context_id if record is not None else "")

    async def destroy(self, task_id: str) -> None:
        """Do nothing: the log stays for late subscribers."""


def _written(splice: v1.EventEncoder, entry: Entry) -> bytes:
    return splice.artifact_update(entry.data) if entry.kind == "artifact" else splice.status_update(entry.data)
