"""The state of webhooks for operators, without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keelbolt.kernel import Page, Query, Record, Scope
from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.types import timestamp
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks.families import PUSH_CONFIGS, PUSH_CURSORS
from keelbolt.tasks.pushes import push_ids
from keelbolt.webhooks.configs import MAX_CONFIGS, StoredConfig
from keelbolt.webhooks.receivers import DeliveryCursor


@dataclass(frozen=True, slots=True)
class Webhook:
    """A config, and the cursor of its deliveries."""

    scope: Scope
    task_id: str
    config: PushConfig
    version: ProtocolVersion
    cursor: DeliveryCursor

    @property
    def config_id(self) -> str:
        return self.config.id or ""

    def json(self, *, operator: bool = True) -> dict[str, Any]:
        """Return all but token, credentials and secret. For errors, callers see the category, operators the cause."""
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


async def webhooks(scope: Scope, task_id: str) -> list[Webhook]:
    """Return the webhooks of a task, which has at most `MAX_CONFIGS`."""
    return await _webhooks(scope, await scope.find(Query(PUSH_CONFIGS, {"task": task_id}), limit=MAX_CONFIGS))


async def webhook_page(scope: Scope, *, limit: int, cursor: str | None) -> tuple[list[Webhook], str | None]:
    """Return a page of the webhooks of all tasks, by task, and the cursor of the next page (None: the last page)."""
    page = await scope.find(Query(PUSH_CONFIGS), limit=limit, cursor=cursor)
    return await _webhooks(scope, page), page.cursor


async def _webhooks(scope: Scope, page: Page) -> list[Webhook]:
    keys = [record.key for record in page.records]
    stood = await scope.get_many(PUSH_CURSORS, keys) if keys else ()
    return [_webhook(scope, record, cursors) for record, cursors in zip(page.records, stood, strict=True)]


def _webhook(scope: Scope, record: Record, stood: Record | None) -> Webhook:
    stored = StoredConfig.of(record)
    cursor = DeliveryCursor.of(stood) if stood is not None else DeliveryCursor()
    return Webhook(scope, push_ids(record.key)[0], stored.config, stored.version, cursor)
