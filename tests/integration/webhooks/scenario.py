"""A store with tasks, and processes that deliver their events to webhooks and can be killed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, cast

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import Entry, Kernel
from keelbolt.protocol.requests import PushConfig
from keelbolt.protocol.versions import ProtocolVersion
from keelbolt.tasks import Envelope, Sent, TaskContext, TaskEngine
from keelbolt.tasks.families import WEBHOOKS
from keelbolt.tasks.notes import WIRE_KINDS
from keelbolt.tasks.pushes import push_key
from keelbolt.tasks.stored_tasks import StoredTasks
from keelbolt.testing.worker import KernelLink
from keelbolt.webhooks.configs import PushConfigs
from keelbolt.webhooks.delivery import Deliverer, DeliverySettings
from keelbolt.webhooks.post import Poster
from keelbolt.webhooks.receivers import DeliveryCursor
from tests.integration.tasks.stage import Stage, log, message, until
from tests.integration.webhooks.receiver import Receiver

PARTITION = ANONYMOUS.partition


class DeliveryScenario:
    """``go`` lets the worker write its next chunk; ``free`` lets it write them all."""

    def __init__(self, url: str) -> None:
        self._stage = Stage(url)
        self._stack = AsyncExitStack()
        self._steps: dict[str, asyncio.Semaphore] = {}
        self.lines: dict[Deliverer, KernelLink] = {}
        self.engine: TaskEngine

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._stage)
        self.engine = await self._stage.engine(self._worker)
        self.configs = PushConfigs(loopback=True)
        self.scope = self.engine.kernel.scoped(PARTITION)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for steps in self._steps.values():
            for _ in range(100):
                steps.release()
        for deliverer, line in self.lines.items():
            if not line.cut:
                await deliverer.stop()
        await self._stack.aclose()

    # ------------------------------------------------------------------------------------------------------- tasks

    async def _worker(self, ctx: TaskContext) -> None:
        """Execute the message: ``chunks N`` writes N chunks; ``slowly N`` writes each chunk when the test allows it."""
        how, _, count = ctx.user_text.partition(" ")
        for number in range(int(count or 0)):
            if how == "slowly":
                await self.steps(ctx.message.message_id).acquire()
            await ctx.emit_text_artifact(f"chunk {number}", append=number > 0, last_chunk=number == int(count) - 1)
        await ctx.complete()

    def steps(self, message_id: str) -> asyncio.Semaphore:
        return self._steps.setdefault(message_id, asyncio.Semaphore(0))

    async def send(
        self,
        text: str,
        config: PushConfig | None = None,
        *,
        version: ProtocolVersion = ProtocolVersion.v1_0,
        **more: Any,
    ) -> Sent:
        """Create a task with a push config."""
        push = self.configs.new(config, version) if config is not None else None
        return await self.engine.tasks.send(message(text, **more), Envelope(push=push))

    async def finished(self, sent: Sent) -> str:
        """Wait for the end of the task; return its id."""
        await self.engine.tasks.settled(sent, seconds=20)
        return sent.task.task_id

    async def wire(self, task_id: str) -> list[Entry]:
        """Return the events that a webhook gets."""
        return [entry for entry in await log(self.engine, task_id) if entry.kind in WIRE_KINDS]

    # ---------------------------------------------------------------------------------------------------- delivery

    async def deliverer(self, **given: Any) -> Deliverer:
        """Start a process that delivers, until the end of the test."""
        seconds = given.pop("seconds", 5.0)
        more = {name: given.pop(name) for name in ("key", "metrics") if name in given}
        given.setdefault("heartbeat_seconds", 1.0)
        line = KernelLink(await self._stage.kernel())
        poster = Poster(loopback=True, seconds=seconds)
        store = StoredTasks(cast("Kernel", line))
        deliverer = Deliverer(store, poster, settings=DeliverySettings(**given), **more)
        self.lines[deliverer] = line
        await deliverer.start()
        return deliverer

    async def crash(self, deliverer: Deliverer) -> None:
        """Kill the process: nothing more of it reaches the store, and its lease ends."""
        line = self.lines[deliverer]
        line.cut = True
        assert deliverer._claiming is not None
        assert deliverer._lease._beating is not None
        dying = [deliverer._claiming, deliverer._lease._beating, *deliverer._running]
        for task in dying:
            task.cancel()
        await asyncio.wait(dying, timeout=5)
        await deliverer._poster.aclose()
        await line.kernel.heartbeat(deliverer._lease.name, lease_seconds=0.001)

    async def until_delivered(self, receiver: Receiver, task_id: str, config: str | None = None) -> None:
        """Wait until the receiver has every event of the task."""
        wanted = {entry.seq for entry in await self.wire(task_id)}
        await until(lambda: wanted <= set(self.seqs(receiver, task_id, config)), seconds=30)

    @staticmethod
    def seqs(receiver: Receiver, task_id: str, config: str | None = None) -> list[int]:
        return [
            arrival.seq
            for arrival in receiver.arrivals
            if arrival.id.startswith(task_id) and config in (None, arrival.config)
        ]

    async def cursor(self, task_id: str, config_id: str) -> DeliveryCursor:
        [found] = await self.configs.cursors(self.scope, task_id, [config_id])
        return found

    async def work(self, task_id: str, config_id: str) -> str | None:
        """Return the state of the work item of this webhook."""
        item = await self.engine.kernel.work(PARTITION, WEBHOOKS, push_key(task_id, config_id))
        return item.state if item is not None else None

    async def idle(self, task_id: str, config_id: str) -> None:
        """Wait until there is nothing to deliver."""

        async def nothing() -> bool:
            return await self.work(task_id, config_id) in (None, "dead")

        await until(nothing, seconds=30)


def in_order(seqs: list[int]) -> bool:
    """Return whether the numbers increase, apart from repeats."""
    first = list(dict.fromkeys(seqs))
    return first == sorted(first)
