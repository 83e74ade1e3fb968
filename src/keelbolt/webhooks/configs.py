"""The push configs of tasks. Credentials can be written, but a read never returns them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import from_json, to_json

from keelbolt.errors import (
    AddressNotAllowed,
    BadCursor,
    CommitRefused,
    InvalidName,
    InvalidTaskRequest,
    SecretKeyMissing,
    StorageBusy,
    TaskNotFoundError,
    WebhookAddressError,
)
from keelbolt.kernel import (
    Delete,
    FieldIn,
    Insert,
    Operation,
    Patch,
    Put,
    Query,
    Record,
    Remove,
    Replace,
    Scope,
    new_id,
)
from keelbolt.outbound.addresses import check_url
from keelbolt.protocol.requests import PushConfig, PushConfigPage
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks.families import EVENTS, PUSH_CONFIGS, PUSH_CURSORS, TASKS, WEBHOOKS
from keelbolt.tasks.pushes import NewPush, nudge, push_key
from keelbolt.tasks.record import push_field, push_of
from keelbolt.webhooks.receivers import DeliveryCursor
from keelbolt.webhooks.sealing import Sealer, opened
from keelbolt.webhooks.signing import issue, new_signing_secret

MAX_CONFIGS = 50  # per task
MAX_ID = 64  # characters, as the limits below
MAX_TOKEN = 1024
MAX_CREDENTIALS = 4096
MAX_SCHEME = 64
PAGE_SIZE = 50
RETRIES = 50
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A config with its credentials, the protocol version of its deliveries, and the secret that signs them.

    ``locked`` is the reason why its token, credentials and secret can't be decrypted; they are missing then.
    """

    config: PushConfig
    version: ProtocolVersion
    secret: str = field(default="", repr=False)
    locked: str = ""

    def json(self, key: str, sealer: Sealer | None = None) -> bytes:
        """Return the JSON to store under this key; with a sealer, its secrets are encrypted."""
        config = self.config.model_dump(mode="json", by_alias=True, exclude_none=True)
        body: dict[str, Any] = {"config": config, "version": self.version.value}
        if sealer is None:
            body["secret"] = self.secret
        else:
            hidden = {
                "token": config.pop("token", None),
                "credentials": config.get("authentication", {}).pop("credentials", None),
                "secret": self.secret,
            }
            body["sealed"] = sealer.seal(to_json(hidden), key)
        return to_json(body)

    @classmethod
    def of(cls, record: Record, sealer: Sealer | None = None) -> StoredConfig:
        """Return the stored config. Without the sealer that encrypted it, the secrets are missing."""
        body = from_json(record.body)
        config, version = PushConfig.model_validate(body["config"]), ProtocolVersion(body["version"])
        if "sealed" not in body:
            return cls(config, version, body.get("secret", ""))
        try:
            hidden = from_json(opened(sealer, body["sealed"], record.key))
        except SecretKeyMissing as error:
            return cls(config, version, locked=str(error))
        authentication = config.authentication
        if authentication is not None:
            authentication = authentication.model_copy(update={"credentials": hidden["credentials"]})
        whole = config.model_copy(update={"token": hidden["token"], "authentication": authentication})
        return cls(whole, version, hidden["secret"])


class PushConfigs:
    """The configs of all tasks. A scope gives access only to its own caller's configs.

    ``hosts`` are the only allowed receivers (see `check_url`). ``sealer`` encrypts the secrets of a config.
    """

    def __init__(self, *, loopback: bool = False, hosts: Sequence[str] = (), sealer: Sealer | None = None) -> None:
        self._loopback = loopback
        self._hosts = tuple(hosts)
        self._sealer = sealer

    def new(self, config: PushConfig, version: ProtocolVersion = ProtocolVersion.v1_0) -> NewPush:
        """Return a config for a task that is about to be created; it receives all events from the first one."""
        config = self._checked(config)
        assert config.id is not None
        stored = StoredConfig(config, version, new_signing_secret())
        return NewPush(config.id, lambda key: stored.json(key, self._sealer), stored.secret)

    def _checked(self, config: PushConfig) -> PushConfig:
        try:
            check_url(config.url, loopback=self._loopback, hosts=self._hosts)
        except AddressNotAllowed as wrong:
            raise WebhookAddressError(f"the webhook can't be used: {wrong}") from None
        config_id = config.id or new_id()
        if len(config_id) > MAX_ID or not config_id.isprintable() or "/" in config_id:
            raise InvalidTaskRequest(f"the id of a push config must have at most {MAX_ID} characters and no slash")
        _check_header("token", config.token, MAX_TOKEN)
        if config.authentication is not None:
            scheme = config.authentication.scheme
            _check_header("credentials", config.authentication.credentials, MAX_CREDENTIALS)
            if len(scheme) > MAX_SCHEME or not _SCHEME.fullmatch(scheme):
                raise InvalidTaskRequest("the scheme of the authentication must be one word, such as Bearer")
        return config.model_copy(update={"id": config_id})

    async def create(
        self,
        scope: Scope,
        task_id: str,
        config: PushConfig,
        version: ProtocolVersion = ProtocolVersion.v1_0,
        *,
        after: int | None = None,
    ) -> PushConfig:
        """Store a config, replacing the one with the same id.

        It receives the events after this event of the task (None: from now on). A replacement continues at the position
        of the old config, also if that was given up, and keeps its signing secret. A new secret is returned to the
        caller of the current request (`issue`).
        """
        config = self._checked(config).model_copy(update={"task_id": task_id})
        assert config.id is not None
        key = push_key(task_id, config.id)
        for _ in range(RETRIES):
            task = await self._task(scope, task_id)
            known = push_of(task)
            if config.id not in known and len(known) >= MAX_CONFIGS:
                raise InvalidTaskRequest(f"a task has at most {MAX_CONFIGS} push configs; delete one first")
            stored = StoredConfig(config, version)
            stood = None
            if config.id in known:
                kept, stood = await asyncio.gather(scope.get(PUSH_CONFIGS, key), scope.get(PUSH_CURSORS, key))
                if kept is not None:
                    before = StoredConfig.of(kept, self._sealer)
                    stored = replace(stored, secret=before.secret)
                    active = stood is None or DeliveryCursor.of(stood).status == "active"
                    if before == stored and active:
                        return shown(config, task_id)  # no change: running deliveries are not disturbed
            new = not stored.secret
            if new:
                stored = replace(stored, secret=new_signing_secret())
            operations: list[Operation] = [
                Put(PUSH_CONFIGS, key, stored.json(key, self._sealer), {"task": task_id}),
                self._names(task, [*known, config.id]),
                nudge(scope, task_id, config.id),
            ]
            if config.id not in known:
                begin = after if after is not None else (await scope.log_state(EVENTS, task_id)).head
                operations.append(Put(PUSH_CURSORS, key, DeliveryCursor(begin, late=True).json()))
            elif stood is not None:  # the process that delivers to the old config notices the change and reads it again
                operations.append(Replace(PUSH_CURSORS, key, stood.version, DeliveryCursor.of(stood).again().json()))
            else:
                operations.append(Insert(PUSH_CURSORS, key, DeliveryCursor().json()))
            if await self._committed(scope, operations):
                if new:
                    issue(stored.secret)
                return shown(config, task_id)
        raise StorageBusy("concurrent changes to the task prevented this write; try again")

    async def renew_secret(self, scope: Scope, task_id: str, config_id: str) -> str:
        """Give a config a new signing secret, and return it. Raises TaskNotFoundError."""
        key = push_key(task_id, config_id)
        for _ in range(RETRIES):
            record = None
            with contextlib.suppress(InvalidName):  # not a valid config id
                record = await scope.get(PUSH_CONFIGS, key)
            if record is None:
                raise TaskNotFoundError(task_id, message="There is no such push config.")
            before = StoredConfig.of(record, self._sealer)
            if before.locked:
                raise SecretKeyMissing(before.locked)
            stored = replace(before, secret=new_signing_secret())
            body = stored.json(key, self._sealer)
            operations = [Replace(PUSH_CONFIGS, key, record.version, body, {"task": task_id})]
            if await self._committed(scope, operations):
                return stored.secret
        raise StorageBusy("concurrent changes to the config prevented this write; try again")

    async def delete(self, scope: Scope, task_id: str, config_id: str | None) -> None:
        """Remove the config, or all configs; no error if there is none."""
        for _ in range(RETRIES):
            task = await self._task(scope, task_id)
            known = push_of(task)
            gone = known if config_id is None else [each for each in known if each == config_id]
            if not gone:
                return
            operations: list[Operation] = [self._names(task, [each for each in known if each not in gone])]
            for each in gone:
                key = push_key(task_id, each)
                operations += [Delete(PUSH_CONFIGS, key), Delete(PUSH_CURSORS, key), Remove(WEBHOOKS, key)]
            if await self._committed(scope, operations):
                return
        raise StorageBusy("concurrent changes to the task prevented this write; try again")

    async def _task(self, scope: Scope, task_id: str) -> Record:
        task = await scope.get(TASKS, task_id)
        if task is None:
            raise TaskNotFoundError(task_id)
        return task

    def _names(self, task: Record, config_ids: Sequence[str]) -> Patch:
        """Return the patch that lists the configs in the task's record, where writers of events find the receivers."""
        unique = list(dict.fromkeys(config_ids))
        return Patch(TASKS, task.key, {"push": push_field(unique) if unique else None}, task.version)

    async def _committed(self, scope: Scope, operations: Sequence[Operation]) -> bool:
        try:
            await scope.commit(*operations)
        except CommitRefused:
            return False
        return True

    # -------------------------------------------------------------------------------------------------------- read

    async def get(self, scope: Scope, task_id: str, config_id: str | None) -> PushConfig:
        """Return the config, by default the task's first. Raises TaskNotFoundError, as the specification requires."""
        record: Record | None = None
        if config_id is None:
            page = await self.list(scope, task_id, page_size=1)
            if page.configs:
                return page.configs[0]
        else:
            with contextlib.suppress(InvalidName):  # not a valid config id
                record = await scope.get(PUSH_CONFIGS, push_key(task_id, config_id))
            if record is not None:
                return shown(StoredConfig.of(record, self._sealer).config, task_id)
        raise TaskNotFoundError(task_id, message="There is no such push config.")

    async def cursors(self, scope: Scope, task_id: str, config_ids: Sequence[str]) -> Sequence[DeliveryCursor]:
        """Return the cursor of each of these configs."""
        keys = [push_key(task_id, config_id) for config_id in config_ids]
        found = await scope.get_many(PUSH_CURSORS, keys)
        return [DeliveryCursor.of(record) if record is not None else DeliveryCursor() for record in found]

    async def replay(self, scope: Scope, task_id: str, config_id: str, *, after: int | None = None) -> None:
        """Deliver the events after ``after`` again (None: from the current position), even if it was given up."""
        await self.get(scope, task_id, config_id)  # raises if there is none
        key = push_key(task_id, config_id)
        for _ in range(RETRIES):
            stood = await scope.get(PUSH_CURSORS, key)
            again = (DeliveryCursor.of(stood) if stood is not None else DeliveryCursor()).again(after)
            write = Insert(PUSH_CURSORS, key, again.json())
            operations: list[Operation] = [
                FieldIn(PUSH_CONFIGS, key, "task", (task_id,)),
                write if stood is None else Replace(PUSH_CURSORS, key, stood.version, again.json()),
                nudge(scope, task_id, config_id),
            ]
            if await self._committed(scope, operations):
                return
            await self.get(scope, task_id, config_id)  # the config may have been deleted meanwhile
        raise StorageBusy("concurrent deliveries to the webhook prevented this write; try again")

    async def list(
        self, scope: Scope, task_id: str, *, page_size: int | None = None, page_token: str | None = None
    ) -> PushConfigPage:
        query = Query(PUSH_CONFIGS, {"task": task_id})
        limit = min(page_size or PAGE_SIZE, MAX_CONFIGS)
        try:
            page = await scope.find(query, limit=limit, cursor=page_token or None)
        except BadCursor:
            raise InvalidTaskRequest("the page token is invalid or belongs to another list") from None
        configs = [shown(StoredConfig.of(record, self._sealer).config, task_id) for record in page.records]
        return PushConfigPage(configs, page.cursor or "")


def shown(config: PushConfig, task_id: str) -> PushConfig:
    """Return the config for its owner: with the scheme, without the credentials."""
    config = config.model_copy(update={"task_id": task_id})
    if config.authentication is None or config.authentication.credentials is None:
        return config
    hidden = config.authentication.model_copy(update={"credentials": None})
    return config.model_copy(update={"authentication": hidden})


def _check_header(name: str, value: str | None, longest: int) -> None:
    if value and len(value) > longest:
        raise InvalidTaskRequest(f"the {name} of a push config must have at most {longest} characters")
    if value and not _VALUE.fullmatch(value):
        raise InvalidTaskRequest(
            f"the {name} of a push config must fit into a header: use printable ASCII without line breaks"
        )
