"""The task engine, wired: a storage, a worker, and everything between them."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from holdfast.storage import Clock, Kernel
from holdfast.tasks.dependencies import Dependencies
from holdfast.tasks.events import Events
from holdfast.tasks.families import FAMILIES
from holdfast.tasks.hooks import LifecycleHooks
from holdfast.tasks.manager import TaskManager
from holdfast.tasks.retention import RetentionPolicy
from holdfast.tasks.runner import Runner
from holdfast.tasks.settings import TaskSettings
from holdfast.tasks.store import TaskStore
from holdfast.tasks.sweep import Sweeper
from holdfast.tasks.worker import AnyWorker, handler_of


class TaskEngine:
    """Runs a worker's tasks on an open kernel.

    async with open_storage("sqlite:///holdfast.db") as kernel, TaskEngine(kernel, Echo()) as engine:
        sent = await engine.tasks.send(message)
        task = await engine.tasks.settled(sent)

    Without a worker it takes messages and leaves the work to other processes.
    """

    def __init__(
        self,
        kernel: Kernel,
        worker: AnyWorker | None = None,
        *,
        settings: TaskSettings | None = None,
        dependencies: Mapping[Any, Any] | None = None,
        hooks: LifecycleHooks | None = None,
        retention: RetentionPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.kernel = kernel
        self.settings = settings or TaskSettings.of()
        self.store = TaskStore(kernel, clock=clock)
        self.events = Events(self.store)
        self.dependencies = Dependencies(dependencies)
        self.runner: Runner | None = None
        if worker is not None:
            self.runner = Runner(
                self.store,
                self.events,
                handler_of(worker),
                settings=self.settings,
                dependencies=self.dependencies,
                hooks=hooks,
            )
        self.tasks = TaskManager(self.store, self.events, settings=self.settings, runner=self.runner)
        self._sweeper = Sweeper(self.store, retention) if retention is not None else None

    async def __aenter__(self) -> Self:
        await self.kernel.declare(*FAMILIES)
        if self.runner is not None:
            await self.dependencies.start()
            await self.runner.start()
        if self._sweeper is not None:
            self._sweeper.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            await self._sweeper.stop()
        if self.runner is not None:
            await self.runner.stop()
            await self.dependencies.stop()
