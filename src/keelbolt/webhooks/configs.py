"""The push configs of tasks. Credentials are written, and never come back on a read."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from keelbolt.errors import BadCursor, CommitRefused, InvalidName, InvalidTaskRequest, StorageBusy, TaskNotFoundError
from keelbolt.protocol.requests import PushConfig, PushConfigPage
from keelbolt.protocol.versions import Version
from keelbolt.storage import (
    Delete,
    FieldIn,
    Insert,
    Kernel,
    Operation,
    Patch,
    Put,
    Query,
    Record,
    Remove,
    Replace,
    new_id,
)
from keelbolt.tasks.families import EVENTS, PUSH_CONFIGS, PUSH_CURSORS, TASKS, WEBHOOKS
from keelbolt.tasks.pushes import NewPush, nudge, push_key
from keelbolt.tasks.record import push_field, push_of
from keelbolt.webhooks.addresses import check_url
from keelbolt.webhooks.cursor import Cursor

MAX_CONFIGS = 50  # of one task
MAX_ID = 64  # characters
PAGE_SIZE = 50
RETRIES = 50
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A config with everything in it, and the version whose words its receiver is told in."""

    config: PushConfig
    version: Version

    def json(self) -> bytes:
        config = self.config.model_dump(mode="json", by_alias=True, exclude_none=True)
        return to_json({"config": config, "version": self.version.value})

    @classmethod
    def of(cls, record: Record) -> StoredConfig:
        body = from_json(record.body)
        return cls(PushConfig.model_validate(body["config"]), Version(body["version"]))


class PushConfigs:
    """Those of all tasks. A partition is its caller's: what another owns is not there."""

    def __init__(self, kernel: Kernel, *, loopback: bool = False) -> None:
        self._kernel = kernel
        self._loopback = loopback

    def new(self, config: PushConfig, version: Version = Version.v1_0) -> NewPush:
        """A config for a task that is about to be made: it is told everything from the first event on."""
        config = self._checked(config)
        assert config.id is not None
        return NewPush(config.id, StoredConfig(config, version).json())

    def _checked(self, config: PushConfig) -> PushConfig:
        check_url(config.url, loopback=self._loopback)
        config_id = config.id or new_id()
        if len(config_id) > MAX_ID or not config_id.isprintable() or "/" in config_id:
            raise InvalidTaskRequest(f"the id of a push config has at most {MAX_ID} characters, and no slash")
        _check_header("token", config.token)
        if config.authentication is not None:
            _check_header("credentials", config.authentication.credentials)
            if not _SCHEME.fullmatch(config.authentication.scheme):
                raise InvalidTaskRequest("the scheme of the authentication is one word, such as Bearer")
        return config.model_copy(update={"id": config_id})

    async def create(
        self,
        partition: str,
        task_id: str,
        config: PushConfig,
        version: Version = Version.v1_0,
        *,
        after: int | None = None,
    ) -> PushConfig:
        """Store a config, in place of the one with the same id.

        It is told what happens after this event of the task (None: from now on). One that takes the place of another
        goes on where that stood, also when that was given up.
        """
        config = self._checked(config).model_copy(update={"task_id": task_id})
        assert config.id is not None
        key = push_key(task_id, config.id)
        for _ in range(RETRIES):
            task = await self._task(partition, task_id)
            known = push_of(task)
            if config.id not in known and len(known) >= MAX_CONFIGS:
                raise InvalidTaskRequest(f"a task has at most {MAX_CONFIGS} push configs; delete one first")
            stored = StoredConfig(config, version).json()
            stood = None
            if config.id in known:
                kept, stood = await asyncio.gather(
                    self._kernel.get(partition, PUSH_CONFIGS, key), self._kernel.get(partition, PUSH_CURSORS, key)
                )
                active = stood is None or Cursor.of(stood).status == "active"
                if kept is not None and kept.body == stored and active:
                    return shown(config, task_id)  # nothing new: whoever delivers to it is not disturbed
            operations: list[Operation] = [
                Put(PUSH_CONFIGS, key, stored, {"task": task_id}),
                self._names(task, [*known, config.id]),
                nudge(partition, task_id, config.id),
            ]
            if config.id not in known:
                begin = after if after is not None else (await self._kernel.log_state(partition, EVENTS, task_id)).head
                operations.append(Put(PUSH_CURSORS, key, Cursor(begin, late=True).json()))
            elif stood is not None:  # whoever delivers to the old one notices, and looks again
                operations.append(Replace(PUSH_CURSORS, key, stood.version, Cursor.of(stood).again().json()))
            else:
                operations.append(Insert(PUSH_CURSORS, key, Cursor().json()))
            if await self._committed(partition, operations):
                return shown(config, task_id)
        raise StorageBusy("the task changes all the time; try again")

    async def delete(self, partition: str, task_id: str, config_id: str | None) -> None:
        """Remove it, or all; no error when there is none."""
        for _ in range(RETRIES):
            task = await self._task(partition, task_id)
            known = push_of(task)
            gone = known if config_id is None else [each for each in known if each == config_id]
            if not gone:
                return
            operations: list[Operation] = [self._names(task, [each for each in known if each not in gone])]
            for each in gone:
                key = push_key(task_id, each)
                operations += [Delete(PUSH_CONFIGS, key), Delete(PUSH_CURSORS, key), Remove(WEBHOOKS, key)]
            if await self._committed(partition, operations):
                return
        raise StorageBusy("the task changes all the time; try again")

    async def _task(self, partition: str, task_id: str) -> Record:
        task = await self._kernel.get(partition, TASKS, task_id)
        if task is None:
            raise TaskNotFoundError(task_id)
        return task

    def _names(self, task: Record, config_ids: Sequence[str]) -> Patch:
        """The task's record names its configs, so that whoever writes its events knows whom to tell."""
        unique = list(dict.fromkeys(config_ids))
        return Patch(TASKS, task.key, {"push": push_field(unique) if unique else None}, task.version)

    async def _committed(self, partition: str, operations: Sequence[Operation]) -> bool:
        try:
            await self._kernel.commit(partition, *operations)
        except CommitRefused:
            return False
        return True

    # -------------------------------------------------------------------------------------------------------- read

    async def get(self, partition: str, task_id: str, config_id: str | None) -> PushConfig:
        """The config; without an id the task's first. Raises TaskNotFoundError, as the specification has it."""
        record: Record | None = None
        if config_id is None:
            page = await self.list(partition, task_id, page_size=1)
            if page.configs:
                return page.configs[0]
        else:
            with contextlib.suppress(InvalidName):  # no config has such an id
                record = await self._kernel.get(partition, PUSH_CONFIGS, push_key(task_id, config_id))
            if record is not None:
                return shown(StoredConfig.of(record).config, task_id)
        raise TaskNotFoundError(task_id, message="There is no such push config.")

    async def cursors(self, partition: str, task_id: str, config_ids: Sequence[str]) -> Sequence[Cursor]:
        """How far each of these was told."""
        keys = [push_key(task_id, config_id) for config_id in config_ids]
        found = await self._kernel.get_many(partition, PUSH_CURSORS, keys)
        return [Cursor.of(record) if record is not None else Cursor() for record in found]

    async def replay(self, partition: str, task_id: str, config_id: str, *, after: int | None = None) -> None:
        """Deliver again what comes after ``after`` (None: go on where it stands), also to one that was given up."""
        await self.get(partition, task_id, config_id)  # raises when there is none
        key = push_key(task_id, config_id)
        for _ in range(RETRIES):
            stood = await self._kernel.get(partition, PUSH_CURSORS, key)
            again = (Cursor.of(stood) if stood is not None else Cursor()).again(after)
            write = Insert(PUSH_CURSORS, key, again.json())
            operations: list[Operation] = [
                FieldIn(PUSH_CONFIGS, key, "task", (task_id,)),
                write if stood is None else Replace(PUSH_CURSORS, key, stood.version, again.json()),
                nudge(partition, task_id, config_id),
            ]
            if await self._committed(partition, operations):
                return
            await self.get(partition, task_id, config_id)  # it may have been deleted meanwhile
        raise StorageBusy("the webhook is told about events all the time; try again")

    async def list(
        self, partition: str, task_id: str, *, page_size: int | None = None, page_token: str | None = None
    ) -> PushConfigPage:
        query = Query(PUSH_CONFIGS, {"task": task_id})
        limit = min(page_size or PAGE_SIZE, MAX_CONFIGS)
        try:
            page = await self._kernel.find(partition, query, limit=limit, cursor=page_token or None)
        except BadCursor:
            raise InvalidTaskRequest("this page token belongs to another list, or is damaged") from None
        configs = [shown(StoredConfig.of(record).config, task_id) for record in page.records]
        return PushConfigPage(configs, page.cursor or "")


def shown(config: PushConfig, task_id: str) -> PushConfig:
    """The config as its owner sees it: with the scheme, without the credentials."""
    config = config.model_copy(update={"task_id": task_id})
    if config.authentication is None or config.authentication.credentials is None:
        return config
    hidden = config.authentication.model_copy(update={"credentials": None})
    return config.model_copy(update={"authentication": hidden})


def _check_header(name: str, value: str | None) -> None:
    if value and not _VALUE.fullmatch(value):
        raise InvalidTaskRequest(f"the {name} of a push config go into a header: printable ASCII, no line breaks")
