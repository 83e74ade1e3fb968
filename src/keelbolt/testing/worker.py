"""Runs a worker in a test: real tasks in memory, lost attempts, and time that the test advances.

async with WorkerHarness(worker) as agent:
    task = await agent.send("Book a table")
    assert agent.state == "input_required"
    task = await agent.answer("at eight")
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from msgspec.structs import replace
from pydantic_core import from_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import KeelboltError, StorageUnreachable
from keelbolt.kernel import Claim, Kernel, Scope, new_id
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.protocol.types import Message, Part, Role, Task
from keelbolt.tasks import Envelope, TaskEngine, TaskSettings
from keelbolt.tasks.families import EVENTS, QUEUE
from keelbolt.tasks.stored_tasks import StoredTask
from keelbolt.tasks.worker import AnyWorker
from keelbolt.testing.clock import FakeClock

SECONDS = 10.0
LOOK_SECONDS = 0.002


class WorkerHarness:
    """Runs tasks of a worker, one after the other, on an in-memory storage.

    `send`, `answer`, `cancel`, `crash` and `advance` return the task when its turn is over, or when it sleeps in
    `ctx.sleep`. Every `ctx.sleep`, however short, ends only by `advance`, and the process releases the task meanwhile.
    ``seconds`` is the real time after which these calls raise TimeoutError.
    """

    def __init__(
        self,
        worker: AnyWorker,
        *,
        dependencies: Mapping[Any, Any] | None = None,
        principal: Principal = ANONYMOUS,
        seconds: float = SECONDS,
        **settings: Any,
    ) -> None:
        self.clock = FakeClock()
        self.task: Task | None = None  # as last returned by `send`, `answer`, …
        self._worker = worker
        self._dependencies = dependencies
        self._principal = principal
        self._seconds = seconds
        self._settings = TaskSettings.of({}, **{"drain_seconds": 0.0, "sleep_hold_seconds": 0.0, **settings})
        self._kernel = MemoryKernel(clock=self.clock)
        self._stack = contextlib.AsyncExitStack()
        self._front = TaskEngine(self._kernel, settings=self._settings, clock=self.clock)  # serves the clients
        self._engine: TaskEngine | None = None
        self._process: KernelLink | None = None
        self._task_id: str | None = None
        self._log: list[tuple[str, Any]] = []
        self._stored: StoredTask | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._kernel)
        await self._stack.enter_async_context(self._front)
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        """Start the worker's process."""
        self._process = KernelLink(self._kernel)
        self._engine = TaskEngine(
            cast("Kernel", self._process),
            self._worker,
            settings=self._settings,
            dependencies=self._dependencies,
            clock=self.clock,
        )
        await self._stack.enter_async_context(self._engine)

    # ------------------------------------------------------------------------------------------------- client actions

    async def send(self, content: str | Message | Sequence[Part], *, wait: bool = True, **more: Any) -> Task:
        """Send a message that creates a new task. ``more`` are members of the message: ``metadata``, ``context_id``, …

        ``wait=False`` returns immediately, for a `crash` or a `cancel` while the worker runs.
        """
        return await self._sent(_message(content, more), wait=wait)

    async def answer(self, content: str | Message | Sequence[Part], *, wait: bool = True, **more: Any) -> Task:
        """Send a message to the task: the answer to its question, or text while it runs."""
        return await self._sent(_message(content, {"task_id": self._known(), **more}), wait=wait)

    async def _sent(self, message: Message, *, wait: bool) -> Task:
        self._running()
        sent = await self._front.tasks.send(message, Envelope(self._principal))
        self._task_id = sent.task.task_id
        return await self._settled() if wait else await self._look()

    async def cancel(self, *, reason: str = "", metadata: Mapping[str, Any] | None = None) -> Task:
        """Cancel the task, and wait for the worker's cleanup."""
        await self._front.tasks.cancel(
            self._known(), self._principal, reason=reason, metadata=metadata, seconds=self._seconds
        )
        return await self._settled()

    # ------------------------------------------------------------------------------------------------ faults and time

    async def crash(self, *, wait: bool = True) -> Task:
        """Kill the worker's process: the attempt is lost, its lease ends, and another process takes over the task.

        Later writes of the handler do not reach the storage. Python can't end a coroutine without running its `finally`
        blocks; they run, and every write in them fails.
        """
        engine, process = self._running(), self._process
        assert process is not None
        process.cut = True
        assert engine.runner is not None
        name = engine.runner.name
        await engine.runner.abandon()
        await self._kernel.heartbeat(name, lease_seconds=0.001)
        self.clock.advance(0.01)
        await self._start()
        return await self._settled() if wait else await self._look()

    async def advance(self, seconds: float, *, wait: bool = True) -> Task:
        """Let time pass for the storage and for `ctx.sleep`; the task continues if its sleep is over."""
        engine = self._running()
        assert engine.runner is not None
        self.clock.advance(seconds)
        await self._kernel.heartbeat(engine.runner.name, lease_seconds=self._settings.lease_seconds)
        return await self._settled() if wait else await self._look()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until the condition is true, for example before a `crash`. The condition can use the properties."""
        async with asyncio.timeout(self._seconds):
            while True:
                if self._task_id is not None:
                    await self._look()
                if condition():
                    break
                await asyncio.sleep(LOOK_SECONDS)
            if self._task_id is not None:
                await self._look()  # the condition may have become true during the last look

    # -------------------------------------------------------------------------------------------------------- results

    @property
    def state(self) -> str:
        """The name of the task's state: ``completed``, ``input_required``, …"""
        return self._now().status.state.name

    @property
    def text(self) -> str:
        """The message of the status: the question, or the reason of a failure."""
        message = self._now().status.message
        return message.text if message is not None else ""

    @property
    def artifacts(self) -> dict[str, str]:
        """The text of each artifact by its id."""
        found = self._now().artifacts or []
        return {item.artifact_id: "".join(part.text or "" for part in item.parts) for item in found}

    @property
    def steps(self) -> dict[str, str]:
        """The steps of the current turn by name, with their states: started, done, failed, asked, …"""
        assert self._stored is not None
        return {key: step.state for key, step in self._stored.view.steps.items() if not key.startswith("~")}

    @property
    def task_state(self) -> Any:
        """`ctx.state` as committed at the end of the last turn."""
        assert self._stored is not None
        return from_json(self._stored.view.kept)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The log of the task: the kind and the content of each entry."""
        return list(self._log)

    # -------------------------------------------------------------------------------------------------- internals

    def _running(self) -> TaskEngine:
        if self._engine is None:
            raise KeelboltError("use a WorkerHarness in an `async with` block")
        return self._engine

    def _known(self) -> str:
        if self._task_id is None:
            raise KeelboltError("there is no task yet: call `send` first")
        return self._task_id

    def _now(self) -> Task:
        if self.task is None:
            raise KeelboltError("there is no task yet: call `send` first")
        return self.task

    async def _settled(self) -> Task:
        task_id, scope = self._known(), self._front.tasks.scope(self._principal)
        async with asyncio.timeout(self._seconds):
            while True:
                stored = await self._front.store.load(scope, task_id)
                if stored.view.over or stored.view.state.paused:
                    break
                item = await scope.work(QUEUE, task_id)
                if item is not None and item.holder is None and item.ready_in > 0:
                    break
                await asyncio.sleep(LOOK_SECONDS)
        return await self._look()

    async def _look(self) -> Task:
        task_id, store, scope = self._known(), self._front.store, self._front.tasks.scope(self._principal)
        self._stored = await store.load(scope, task_id)
        self.task = await store.task(self._stored)
        self._log = []
        while True:
            page = await scope.read_log(EVENTS, task_id, after=len(self._log))
            self._log += [(entry.kind, from_json(entry.data)) for entry in page.entries]
            if len(self._log) >= page.head:
                return self.task


def _message(content: str | Message | Sequence[Part], more: dict[str, Any]) -> Message:
    if isinstance(content, Message):
        return content.model_copy(update=more)
    parts = [Part(text=content)] if isinstance(content, str) else list(content)
    return Message(**{"message_id": new_id(), "role": Role.user, "parts": parts, **more})


# ----------------------------------------------------------------------------------------------------------------- link


class KernelLink:
    """Forwards every call to the kernel. While ``cut`` is set, calls raise StorageUnreachable instead.

    Its scopes and the scopes of its claims use the link as well.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut and name != "watch":
            raise StorageUnreachable
        return getattr(self.kernel, name)

    def scoped(self, partition: str) -> Scope:
        return Scope(self, partition)  # type: ignore[arg-type]

    async def claim(self, *given: Any, **named: Any) -> Sequence[Claim]:
        claims = await self.__getattr__("claim")(*given, **named)
        return [replace(claim, scope=self.scoped(claim.partition)) for claim in claims]
