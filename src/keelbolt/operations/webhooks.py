"""The operations API for webhooks: their state, a replay, a new secret."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from keelbolt.errors import InvalidParamsError, TaskNotFoundError
from keelbolt.kernel import Scope
from keelbolt.operations.call import OpsCall, page_of
from keelbolt.tasks.engine import TaskEngine
from keelbolt.webhooks.configs import PushConfigs
from keelbolt.webhooks.overview import Webhook, webhook_page, webhooks

STATES = ("active", "failing", "failed")


class WebhookOperations:
    """The handlers of the routes for webhooks."""

    def __init__(self, engine: TaskEngine, push: PushConfigs) -> None:
        self._store = engine.store
        self._tasks = engine.tasks
        self._push = push

    async def list_push(self, call: OpsCall) -> bytes:
        found = await webhooks(await self._scope(call), call.task_id)
        return to_json({"webhooks": [_json(call, webhook) for webhook in found]})

    async def list_webhooks(self, call: OpsCall) -> bytes:
        state = call.query.get("state")
        if state is not None and state not in STATES:
            raise InvalidParamsError("state must be active, failing or failed")
        found, token = await self._page(call, state)
        return to_json({"webhooks": [_json(call, webhook) for webhook in found], "nextPageToken": token})

    async def replay_push(self, call: OpsCall) -> bytes:
        scope = await self._scope(call)
        after = call.number("after", 0, low=0, high=2**53) if "after" in call.body else None
        config_id = call.names["config_id"]
        await self._push.replay(scope, call.task_id, config_id, after=after)
        return to_json({"replayed": [{"taskId": call.task_id, "configId": config_id}]})

    async def replay_failed(self, call: OpsCall) -> bytes:
        """Deliver again to a page of the webhooks that were given up."""
        found, token = await self._page(call, "failed")
        for webhook in found:
            await self._push.replay(webhook.scope, webhook.task_id, webhook.config_id)
        replayed = [{"taskId": webhook.task_id, "configId": webhook.config_id} for webhook in found]
        return to_json({"replayed": replayed, "nextPageToken": token})

    async def renew_secret(self, call: OpsCall) -> bytes:
        scope = await self._scope(call)
        secret = await self._push.renew_secret(scope, call.task_id, call.names["config_id"])
        return to_json({"secret": secret})

    async def _page(self, call: OpsCall, state: str | None) -> tuple[list[Webhook], str]:
        async def read(scope: Scope, limit: int, cursor: str | None) -> tuple[list[Webhook], str | None]:
            found, cursor = await webhook_page(scope, limit=limit, cursor=cursor)
            return [webhook for webhook in found if _is(webhook, state)], cursor

        return await page_of(self._store.kernel, call, read)

    async def _scope(self, call: OpsCall) -> Scope:
        scope = self._tasks.scope(call.principal)
        if await self._store.record(scope, call.task_id) is None:
            raise TaskNotFoundError(call.task_id)
        return scope


def _is(webhook: Webhook, state: str | None) -> bool:
    """Return whether a webhook is in this state. ``failing``: its last delivery failed, also if it was given up."""
    if state == "failing":
        return webhook.cursor.failures > 0 or webhook.cursor.status == "failed"
    return state in (None, webhook.cursor.status)


def _json(call: OpsCall, webhook: Webhook) -> dict[str, Any]:
    return {"partition": webhook.scope.partition, **webhook.json(operator=call.operator)}
