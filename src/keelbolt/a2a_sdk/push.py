"""The SDK's store of push configs."""

from __future__ import annotations

from a2a.server.context import ServerCallContext
from a2a.server.tasks.push_notification_config_store import (
    PushNotificationConfigStore,
    normalize_push_notification_config,
)
from a2a.types.a2a_pb2 import TaskPushNotificationConfig
from google.protobuf.json_format import Parse
from pydantic_core import from_json, to_json

from keelbolt.a2a_sdk.codec import encoded
from keelbolt.a2a_sdk.families import CONFIGS
from keelbolt.a2a_sdk.scope import ScopeResolver
from keelbolt.kernel import Delete, Put, Query, Record, Scope
from keelbolt.webhooks.sealing import Sealer, opened


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
        keys = [f"{task_id}/{config_id}"]
        if config_id is None:
            keys = [record.key async for record in scope.scan(Query(CONFIGS, {"task": task_id}))]
        if keys:
            await scope.commit(*[Delete(CONFIGS, key) for key in keys])
