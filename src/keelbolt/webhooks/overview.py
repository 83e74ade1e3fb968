"""How webhooks stand, for whoever looks after them: without anything secret."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.types import timestamp
from keelbolt.protocol.versions import Version
from keelbolt.storage import Query, Record
from keelbolt.tasks.families import PUSH_CONFIGS, PUSH_CURSORS
from keelbolt.tasks.pushes import push_ids
from keelbolt.tasks.store import TaskStore
from keelbolt.webhooks.configs import StoredConfig
from keelbolt.webhooks.cursor import Cursor


@dataclass(frozen=True, slots=True)
class Webhook:
    """A config, and how far its receiver was told."""

    partition: str
    task_id: str
    config: PushConfig
    version: Version
    cursor: Cursor

    @property
    def config_id(self) -> str:
        return self.config.id or ""

    def json(self, *, operator: bool = True) -> dict[str, Any]:
        """All but token, credentials and secret. Of an error, callers see the category and operators the cause."""
        cursor, authentication = self.cursor, self.config.authentication
        return {
            "id": self.config_id,
            "taskId": self.task_id,
            "url": self.config.url,
            "version": self.version.value,
            "authentication": None if authentication is None else {"scheme": authentication.scheme},
            "status": cursor.status,
            "cursor": cursor.seq,
            "delivered": cursor.delivered,
            "failures": cursor.failures,
            "error": cursor.error if operator else cursor.category,
            "category": cursor.category,
            "failingSince": _moment(cursor.since),
            "retryAt": _moment(cursor.retry_at),
            "triedAt": _moment(cursor.tried_at),
            "httpStatus": (cursor.code or None) if operator else None,
        }


def _moment(seconds: float) -> str | None:
    return timestamp(int(seconds * 1_000_000)) if seconds else None


async def webhooks(store: TaskStore, partition: str, task_id: str | None = None) -> AsyncGenerator[Webhook, None]:
    """Those of a task, or of a whole partition, by task."""
    cursor = None
    while True:
        found, cursor = await webhook_page(store, partition, task_id, cursor=cursor)
        for webhook in found:
            yield webhook
        if cursor is None:
            return


async def webhook_page(
    store: TaskStore, partition: str, task_id: str | None = None, *, limit: int = 100, cursor: str | None = None
) -> tuple[list[Webhook], str | None]:
    """A page of them, and the cursor of the next page (None: this was the last)."""
    query = Query(PUSH_CONFIGS, {"task": task_id}) if task_id is not None else Query(PUSH_CONFIGS)
    page = await store.kernel.find(partition, query, limit=limit, cursor=cursor)
    keys = [record.key for record in page.records]
    stood = await store.kernel.get_many(partition, PUSH_CURSORS, keys) if keys else ()
    found = [_webhook(partition, record, cursors) for record, cursors in zip(page.records, stood, strict=True)]
    return found, page.cursor


def _webhook(partition: str, record: Record, stood: Record | None) -> Webhook:
    stored = StoredConfig.of(record)
    cursor = Cursor.of(stood) if stood is not None else Cursor()
    return Webhook(partition, push_ids(record.key)[0], stored.config, stored.version, cursor)
