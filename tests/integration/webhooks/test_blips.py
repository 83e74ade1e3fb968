"""A short or long failure must not leave a webhook without the end of its task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import StorageUnreachable
from keelbolt.kernel import Put, Scope, Trim, open_storage
from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks import Envelope, TaskContext, TaskEngine
from keelbolt.tasks.stored_tasks import snapshot_operations
from keelbolt.tasks.sweep import trim_log
from keelbolt.webhooks.configs import PushConfigs
from keelbolt.webhooks.delivery import Deliverer
from keelbolt.webhooks.post import Poster, PostResult
from keelbolt.webhooks.receivers import DeliveryCursor


class Box(Poster):
    """A receiver that can be unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.seqs: list[int] = []

    async def post(self, url: str, body: bytes, headers: Any) -> PostResult:
        if self.away:
            return PostResult(ok=False, error="HTTP 503")
        self.seqs.append(int(headers["webhook-id"].rpartition(":")[2]))
        return PostResult(ok=True)


async def worker(ctx: TaskContext) -> None:
    await ctx.complete("done")


async def ended(engine: TaskEngine) -> tuple[Scope, str]:
    """Return an ended task with a webhook that got none of its events."""
    push = PushConfigs().new(PushConfig(id="c", url="https://example.org/x"))
    message = Message(message_id="m", role=Role.user, parts=[Part(text="hi")])
    task = await engine.tasks.settled(await engine.tasks.send(message, Envelope(push=push)))
    return task.scope, task.task_id


async def until(engine: TaskEngine, box: Box, last: int) -> None:
    async with asyncio.timeout(20):
        while last not in box.seqs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_log_is_kept_until_every_webhook_got_it() -> None:
    """Retention does not remove entries that are still to be delivered."""
    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        scope, task_id = await ended(engine)
        assert not await trim_log(engine.store, scope, task_id)
        box = Box()
        deliverer = Deliverer(engine.store, box)
        await deliverer.start()
        await until(engine, box, (await engine.tasks.load(task_id)).version)
        await deliverer.stop()
        assert await trim_log(engine.store, scope, task_id)


async def test_a_webhook_below_the_floor_gets_the_current_status() -> None:
    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        scope, task_id = await ended(engine)
        task = await engine.tasks.load(task_id)
        await scope.commit(
            *snapshot_operations(task.view),
            Trim("task_events", task_id, task.version),
            Put("task_push_cursors", f"{task_id}/c", DeliveryCursor(1).json()),
        )
        box = Box()
        deliverer = Deliverer(engine.store, box)
        await deliverer.start()
        await until(engine, box, task.version)
        await deliverer.stop()
        assert box.seqs == [task.version]


async def test_a_short_outage_of_the_store_leaves_no_webhook_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A work item that could not be released is released as soon as the store is reachable."""
    async with open_storage("memory:") as kernel, TaskEngine(kernel, worker) as engine:
        _, task_id = await ended(engine)
        commit, away = kernel.commit, asyncio.get_running_loop().time() + 0.3

        async def blip(*operations: Any) -> Any:
            if asyncio.get_running_loop().time() < away:
                raise StorageUnreachable("away")
            return await commit(*operations)

        monkeypatch.setattr(kernel, "commit", blip)
        box = Box()
        deliverer = Deliverer(engine.store, box)
        await deliverer.start()
        await until(engine, box, (await engine.tasks.load(task_id)).version)
        await deliverer.stop()
