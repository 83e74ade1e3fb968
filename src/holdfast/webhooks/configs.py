"""The push configs of tasks. Credentials are written, and never come back on a read."""

from __future__ import annotations

from holdfast.errors import BadCursor, InvalidTaskRequest, TaskNotFoundError
from holdfast.protocol.requests import PushConfig, PushConfigPage
from holdfast.storage import Delete, Kernel, Put, Query, Record, new_id
from holdfast.tasks.families import PUSH_CONFIGS

MAX_CONFIGS = 100  # of one task
PAGE_SIZE = 50


class PushConfigs:
    """Those of all tasks. A partition is its caller's: what another owns is not there."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def create(self, partition: str, task_id: str, config: PushConfig) -> PushConfig:
        """Store a config, in place of the one with the same id; the server names those that have no id."""
        config = config.model_copy(update={"id": config.id or new_id(), "task_id": task_id})
        query = Query(PUSH_CONFIGS, {"task": task_id})
        if (await self._kernel.count(partition, query, cap=MAX_CONFIGS)).value >= MAX_CONFIGS:
            raise InvalidTaskRequest(f"a task has at most {MAX_CONFIGS} push configs; delete one first")
        body = config.model_dump_json(by_alias=True, exclude_none=True).encode()
        await self._kernel.commit(partition, Put(PUSH_CONFIGS, _key(task_id, config.id), body, {"task": task_id}))
        return _shown(config)

    async def get(self, partition: str, task_id: str, config_id: str | None) -> PushConfig:
        """The config; without an id the task's first. Raises TaskNotFoundError, as the specification has it."""
        if config_id is None:
            page = await self.list(partition, task_id, page_size=1)
            if page.configs:
                return page.configs[0]
        else:
            record = await self._kernel.get(partition, PUSH_CONFIGS, _key(task_id, config_id))
            if record is not None:
                return _shown(_config(record))
        raise TaskNotFoundError(task_id, message="There is no such push config.")

    async def list(
        self, partition: str, task_id: str, *, page_size: int | None = None, page_token: str | None = None
    ) -> PushConfigPage:
        query = Query(PUSH_CONFIGS, {"task": task_id})
        limit = min(page_size or PAGE_SIZE, MAX_CONFIGS)
        try:
            page = await self._kernel.find(partition, query, limit=limit, cursor=page_token or None)
        except BadCursor:
            raise InvalidTaskRequest("this page token belongs to another list, or is damaged") from None
        return PushConfigPage([_shown(_config(record)) for record in page.records], page.cursor or "")

    async def delete(self, partition: str, task_id: str, config_id: str | None) -> None:
        """Remove it, or all; no error when there is none."""
        if config_id is not None:
            await self._kernel.commit(partition, Delete(PUSH_CONFIGS, _key(task_id, config_id)))
            return
        page = await self._kernel.find(partition, Query(PUSH_CONFIGS, {"task": task_id}), limit=MAX_CONFIGS)
        if page.records:
            await self._kernel.commit(partition, *[Delete(PUSH_CONFIGS, record.key) for record in page.records])


def _key(task_id: str, config_id: str | None) -> str:
    return f"{task_id}/{config_id}"


def _config(record: Record) -> PushConfig:
    return PushConfig.model_validate_json(record.body)


def _shown(config: PushConfig) -> PushConfig:
    """The config as its owner sees it: with the scheme, without the credentials."""
    if config.authentication is None or config.authentication.credentials is None:
        return config
    hidden = config.authentication.model_copy(update={"credentials": None})
    return config.model_copy(update={"authentication": hidden})
