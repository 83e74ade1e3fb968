"""The task engine: connects a storage, a worker, and the parts between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict
from functools import partial
from types import TracebackType
from typing import Any, Self

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.data.retention import FacePolicy
from keelbolt.data.sweeping import EVERY_SECONDS, Duty, StoreSweeper, retain, sweep_expired
from keelbolt.errors import CommitRefused, TaskNotAcceptingMessagesError, UnsupportedOperationError
from keelbolt.kernel import Clock, Kernel, Scope, new_id
from keelbolt.observability.metrics import Metrics
from keelbolt.observability.tracing import Tracing
from keelbolt.protocol.requests import TaskPage
from keelbolt.protocol.types import Message, TaskState
from keelbolt.tasks.events import TaskFeeds
from keelbolt.tasks.families import FAMILIES
from keelbolt.tasks.listing import ListTasksQuery
from keelbolt.tasks.manager import TaskManager
from keelbolt.tasks.mirror import Mirror, asked
from keelbolt.tasks.mirrored import OWNER, ListsOwned
from keelbolt.tasks.runner import Runner
from keelbolt.tasks.sends import Envelope, Send, Sent
from keelbolt.tasks.settings import RetentionPolicy, TaskSettings
from keelbolt.tasks.statistics import StatisticsWriter
from keelbolt.tasks.storage import KernelStorage, Storage, storage_of
from keelbolt.tasks.storage.contract import overrides
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks
from keelbolt.tasks.sweep import sweep
from keelbolt.tasks.worker import AnyWorker, Dependencies, Dependency, LifecycleHooks, Worker, handler_of


class TaskEngine:
    """Runs a worker's tasks on an open kernel.

    async with open_storage("sqlite:///keelbolt.db") as kernel, TaskEngine(kernel, Echo()) as engine:
        sent = await engine.tasks.send(message)
        task = await engine.tasks.settled(sent)

    Without a worker, it accepts messages, and other processes run the tasks.
    """

    def __init__(
        self,
        kernel: Kernel,
        worker: AnyWorker | None = None,
        *,
        settings: TaskSettings | None = None,
        dependencies: Mapping[Any, Any] | None = None,
        hooks: LifecycleHooks | None = None,
        retention: FacePolicy | Sequence[FacePolicy] | None = None,
        clock: Clock | None = None,
        mirror: Mirror | None = None,
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.kernel = kernel
        self.settings = settings or TaskSettings.of()
        self.store = StoredTasks(kernel, clock=clock) if mirror is None else mirror.store
        self.events = TaskFeeds(self.store)
        self.dependencies = Dependencies(_with_worker(dependencies, worker))
        self.runner: Runner | None = None
        if worker is not None:
            self.runner = Runner(
                self.store,
                self.events,
                handler_of(worker),
                settings=self.settings,
                dependencies=self.dependencies,
                hooks=hooks,
                metrics=metrics,
                tracing=tracing,
            )
        self._mirror = mirror
        if mirror is None:
            self.tasks = TaskManager(self.store, self.events, settings=self.settings, runner=self.runner)
        else:
            self.tasks = MirrorManager(mirror, self.events, settings=self.settings, runner=self.runner)
        if isinstance(worker, Worker):
            worker.attach(self.tasks)
        self._owned: list[AbstractAsyncContextManager[Any]] = []  # opened and closed with the engine
        self._opened = AsyncExitStack()
        self.retention = [retention] if isinstance(retention, FacePolicy) else list(retention or ())
        self._vitals = StatisticsWriter(kernel, self.runner) if self.runner is not None else None
        self._sweeper = self._sweeps(metrics) if worker is not None or self.retention else None

    @classmethod
    def on(cls, storage: Storage[Any] | str, worker: AnyWorker | None = None, **options: Any) -> Self:
        """Create an engine that opens and closes its storage: ``"memory"``, a URL, or a `Storage`.

        async with TaskEngine.on("sqlite:///keelbolt.db", Echo()) as engine: ...

        A user-defined storage with three methods is enough; `limits` lists the features that it lacks. The options are
        those of the engine.
        """
        storage = storage_of(storage)
        if isinstance(storage, KernelStorage):
            engine = cls(storage.kernel, worker, **options)
            engine._owned = [storage]
            return engine
        mirror = Mirror(storage, clock=options.get("clock"))
        engine = cls(mirror.kernel, worker, mirror=mirror, **options)
        engine._owned = [storage, mirror.kernel]
        return engine

    @property
    def limits(self) -> tuple[str, ...]:
        """Features that this storage does not support, one line each. Empty for Keelbolt's own storages."""
        return () if self._mirror is None else self._mirror.limits

    def _sweeps(self, metrics: Metrics | None) -> StoreSweeper:
        """Create the sweeper: it always removes expired data, and applies each retention policy."""
        duties: dict[str, Duty] = {"expired": sweep_expired}
        every = EVERY_SECONDS
        for policy in self.retention:
            if isinstance(policy, RetentionPolicy):
                every = policy.every
                duties[policy.face] = partial(_sweep_tasks, self.store, policy)
            else:
                duties[policy.face] = partial(retain, policy)
        return StoreSweeper(self.kernel, duties, every=every, swept=None if metrics is None else metrics.swept)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            for owned in self._owned:
                await opened.enter_async_context(owned)
            await self.kernel.declare(*FAMILIES)
            if self._mirror is not None:
                self._mirror.warn()
            if self.runner is not None:
                await self.dependencies.start()
                opened.push_async_callback(self.dependencies.stop)
                await self.runner.start()
            if self._vitals is not None:
                self._vitals.start()
            if self._sweeper is not None:
                self._sweeper.start()
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        async with self._opened:
            if self._sweeper is not None:
                await self._sweeper.stop()
            if self.runner is not None:
                await self.runner.stop()
                if self._mirror is not None:
                    await self._mirror.give_up_the_rest()
            if self._vitals is not None:
                await self._vitals.stop()


async def _sweep_tasks(store: StoredTasks, policy: RetentionPolicy, _kernel: Kernel) -> dict[str, int]:
    """Sweep by the clock of the engine."""
    return {what: count for what, count in asdict(await sweep(store, policy)).items() if count}


def _with_worker(dependencies: Mapping[Any, Any] | None, worker: AnyWorker | None) -> dict[Any, Any]:
    """Add a worker that is a Dependency, after the dependencies that it may need, so that the engine starts it."""
    found = dict(dependencies or {})
    if isinstance(worker, Dependency):
        found.setdefault(type(worker), worker)
    return found


# ------------------------------------------------------------------------------------------------------- mirror manager


class MirrorManager(TaskManager):
    """The client operations of the engine where the storage assigns the ids."""

    def __init__(
        self, mirror: Mirror, events: TaskFeeds, *, settings: TaskSettings, runner: Runner | None = None
    ) -> None:
        super().__init__(mirror.store, events, settings=settings, runner=runner)
        self.mirror = mirror

    async def _create(
        self, scope: Scope, message: Message, send: Send, envelope: Envelope, ids: tuple[str, str] | None = None
    ) -> Sent:
        mirror = self.mirror
        name = f"{scope.partition}/{send.keys[0]}" if send.keys else ""
        async with AsyncExitStack() as locks:
            for key in sorted(send.keys):
                await locks.enter_async_context(mirror.kernel.lock(f"{scope.partition}/{key}"))
            if await send.reached(scope) is not None:
                return await self._repeated(scope, send)
            # If this fails half-way, a repeat of the message must find the task that it created.
            context_id = message.context_id or (mirror.context_of(name) if name else new_id())
            task = await mirror.create(scope, context_id, message, key=send.keys[0] if send.keys else None)
            known = await StoredTasks.find(self.store, scope, task.id)
            if known is not None or task.status.state is not TaskState.submitted:  # sent to an earlier process
                mirror.forget_context(name)
                return Sent(await self.store.load(scope, task.id), self._local(scope, task.id), repeated=True)
            mirror.making[task.id] = message.message_id
            try:
                sent = await super()._create(scope, message, send, envelope, ids or (task.id, context_id))
            except CommitRefused:  # another engine started it meanwhile
                mirror.forget_context(name)
                return Sent(await self.store.load(scope, task.id), self._local(scope, task.id), repeated=True)
            finally:
                del mirror.making[task.id]
            mirror.forget_context(name)
            return sent

    async def _double_text(self, task: StoredTask, message: Message, send: Send, envelope: Envelope) -> Sent:
        if await self.mirror.store.is_run_elsewhere(task):
            words = "Another process is working on this task and can't be reached from here; wait until it finishes."
            raise TaskNotAcceptingMessagesError(task.record.task_id, task.view.state, words)
        return await super()._double_text(task, message, send, envelope)

    async def list(self, query: ListTasksQuery, principal: Principal = ANONYMOUS) -> TaskPage:
        storage = self.mirror.storage
        name = type(storage).__name__
        if isinstance(storage, ListsOwned):
            owned = await asked(storage.list_owned(query, principal.partition), self.mirror)
            return TaskPage(owned.tasks, owned.next_page_token, owned.page_size, owned.total_size)
        if not overrides(storage, "list_tasks"):
            raise UnsupportedOperationError(f"tasks can't be listed here: {name} has no list_tasks of its own")
        if principal.partition != ANONYMOUS.partition:
            raise UnsupportedOperationError(f"tasks can't be listed here: {name} does not distinguish owners")
        page = await asked(storage.list_tasks(query), self.mirror)
        # Hide tasks of named owners. The total of the storage still includes them.
        tasks = [task for task in page.tasks if OWNER not in (task.metadata or {})]
        return TaskPage(tasks, page.next_page_token, page.page_size, page.total_size)
