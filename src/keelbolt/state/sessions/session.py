"""A session: one conversation, its context and its tasks, kept in a StateStore."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from keelbolt.errors import LeaseLost
from keelbolt.kernel import Scope
from keelbolt.state.adapters import HybridStateStore
from keelbolt.state.sessions.context import ContextPatch, MergeStrategy, PendingContextPatch
from keelbolt.state.sessions.controls import ControlPolicy, Controls
from keelbolt.state.sessions.live_context import LiveContext
from keelbolt.state.sessions.process import SessionProcess
from keelbolt.state.sessions.recovery import OtherSessions, Recover, SessionRecovery, fail_orphans
from keelbolt.state.sessions.runner import SessionParts, TaskOptions, TaskRunner
from keelbolt.state.sessions.runtime import SteeringInbox, TaskPipeline, TaskResult, TaskRuntime
from keelbolt.state.sessions.storage import SessionRun, SessionStorage, list_runs, underlying
from keelbolt.state.sessions.tasks import SessionLimits, SessionRuns, SessionTasks, TaskRegistry, is_over
from keelbolt.state.sessions.telemetry import TaskTelemetrySink, Telemetry
from keelbolt.state.sessions.updates import SessionConnection, SessionTransport, SessionUpdates, Subscription
from keelbolt.state.store import StateStore
from keelbolt.state.types.planner import BackgroundTaskResult
from keelbolt.state.types.tasks import (
    StateUpdate,
    SteeringEvent,
    SteeringEventType,
    TaskState,
    TaskStatus,
    TaskType,
    UpdateType,
)

StoredSession = tuple[Sequence[PendingContextPatch], Sequence[SteeringEvent], Sequence[SessionRun]]


class StreamingSession:
    """One conversation. Any number of processes may have it open; each runs the tasks that it started.

    Without a store it is kept in memory. While it is open, this process takes over the tasks of dead processes, of this
    and of other sessions. ``recover`` decides about such a task: it returns a pipeline that runs the task again, or
    None to fail it. All processes that share a storage need the same ``recover``.

        async with StreamingSession("s1", state_store=store) as session:
            result = await session.run_task(pipeline, query="...")
    """

    def __init__(
        self,
        session_id: str,
        *,
        state_store: StateStore | HybridStateStore | None = None,
        limits: SessionLimits | None = None,
        control_policy: ControlPolicy | None = None,
        telemetry_sink: TaskTelemetrySink | None = None,
        recover: Recover = fail_orphans,
    ) -> None:
        store = StateStore("memory:") if state_store is None else underlying(state_store)
        self._owns_store = state_store is None
        self.session_id = session_id
        self.tenant = store.tenant
        limits = limits or SessionLimits()
        storage = SessionStorage(store)
        process = SessionProcess.of(store, lease_seconds=limits.lease_seconds)
        runs = SessionRuns(self, session_id, storage, process)
        updates = SessionUpdates(session_id, store, storage, runs.checks)
        self._parts = SessionParts(
            session_id=session_id,
            store=store,
            storage=storage,
            limits=limits,
            runs=runs,
            tasks=SessionTasks(session_id, store, runs, limits),
            updates=updates,
            context=LiveContext(session_id, storage, updates, max_pending_patches=limits.max_pending_patches),
            telemetry=Telemetry(telemetry_sink),
        )
        self._runner = TaskRunner(self._parts, self._runtime)
        self._controls = Controls(self._parts, self._runner, control_policy or ControlPolicy())
        self._recovery = SessionRecovery(self._parts, self._runner, recover)
        alike = partial(
            StreamingSession,
            limits=limits,
            control_policy=control_policy,
            telemetry_sink=telemetry_sink,
            recover=recover,
        )
        self._others = OtherSessions(store, alike)
        self._hydrating = asyncio.Lock()
        self._hydrated = False

    async def __aenter__(self) -> Self:
        await self.hydrate()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------------------------------------------ the session

    async def hydrate(self) -> None:
        """Restore the stored data: tasks, context with version and hash, waiting patches and controls.

        Tasks of dead processes are recovered before it returns. A second call does nothing.
        """
        async with self._hydrating:
            if self._hydrated:
                return
            parts = self._parts
            parts.runs.enter()
            nothing: StoredSession = ((), (), ())
            tasks, (patches, controls, runs) = await asyncio.gather(
                parts.store.list_tasks(self.session_id), parts.storage.attempt(self._load, nothing, "hydrate")
            )
            parts.tasks.restore(tasks, runs)
            parts.context.restore(patches)
            self._controls.restore(controls)
            self._runner.restore(tasks)
            await parts.runs.take_over(runs)
            self._hydrated = True

    async def _load(self, scope: Scope) -> StoredSession:
        return await asyncio.gather(
            self._parts.context.load(scope), self._controls.load(scope), list_runs(scope, self.session_id)
        )

    async def take(self, run: SessionRun) -> None:
        """Recover a task of a dead process, of this session or another one."""
        if (run.tenant, run.session_id) != (self.tenant, self.session_id):
            await self._others.take(run)
            return
        await self._parts.tasks.refresh()
        await self._recovery.recover(run)

    def lost(self, run: SessionRun) -> None:
        """Stop a task whose lease could not be renewed: another process may take it over."""
        self._runner.lose(run)

    def steered(self, event: SteeringEvent) -> None:
        """Execute a control that another process passed on."""
        self._controls.receive(event)

    def leave_tasks(self) -> None:
        """Stop the tasks and release them for other processes."""
        self._runner.release()

    async def finish(self) -> None:
        """Wait for the tasks that run here, also those taken over meanwhile, then close."""
        while running := self._runner.running():
            await asyncio.gather(*running, return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        """Cancel the tasks that run here, close the subscriptions, and end the lease with the last open session."""
        await self._others.close()
        await self._runner.cancel_all("session_closed")
        await asyncio.gather(*self._runner.running(), *self._controls.acting(), return_exceptions=True)
        self._parts.updates.close()
        await self._parts.telemetry.close()
        await self._parts.runs.leave()
        if self._owns_store:
            await self._parts.store.close()

    # ------------------------------------------------------------------------------------------------------ the context

    @property
    def limits(self) -> SessionLimits:
        """Limits of this session."""
        return self._parts.limits

    @property
    def registry(self) -> TaskRegistry:
        """The tasks that this process knows."""
        return self._parts.tasks.registry

    @property
    def context_version(self) -> int:
        """Number of updates of the context."""
        return self._parts.context.current.version

    @property
    def context_hash(self) -> str | None:
        """Hash of the model's context; None before the first update, and if the context is not JSON."""
        return self._parts.context.current.context_hash

    @property
    def pending_patches(self) -> dict[str, PendingContextPatch]:
        """The patches that wait for approval, by id."""
        return self._parts.context.pending

    @property
    def pending_controls(self) -> dict[str, SteeringEvent]:
        """The controls that wait for approval, by id."""
        return self._controls.pending

    def get_context(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return shallow copies of the model's and the tools' context."""
        context = self._parts.context.current
        return dict(context.llm_context), dict(context.tool_context)

    def get_background_results(self) -> dict[str, BackgroundTaskResult]:
        """Return the results of background tasks that are not consumed yet, by task."""
        context = self._parts.context.current
        last = context.background_result
        return {**context.background_results, **({last.task_id: last} if last is not None else {})}

    def update_context(
        self,
        *,
        llm_context: Mapping[str, Any] | None = None,
        tool_context: Mapping[str, Any] | None = None,
        memory: Mapping[str, Any] | None = None,
        artifacts: Iterable[Mapping[str, Any]] | None = None,
    ) -> Awaitable[Any]:
        """Replace these parts of the context at once; the version grows by one.

        Saving has started when this returns and need not be awaited; awaiting waits for the commit.
        """
        return self._parts.context.update(
            llm_context=llm_context, tool_context=tool_context, memory=memory, artifacts=artifacts
        )

    async def refresh(self) -> None:
        """Load the changes of other processes to the context."""
        await self._parts.context.refresh()

    async def apply_context_patch(
        self,
        *,
        patch: ContextPatch,
        strategy: MergeStrategy = MergeStrategy.APPEND,
        payload: Any | None = None,
        group_id: str | None = None,
    ) -> str | None:
        """Merge a patch into the context. With HUMAN_GATED it waits; return its id for approval or rejection."""
        return await self._parts.context.apply(patch, strategy, payload=payload, group_id=group_id)

    async def apply_pending_patch(self, *, patch_id: str, strategy: MergeStrategy | None = None) -> bool:
        """Approve a waiting patch; return False if it does not wait."""
        return await self._parts.context.approve(patch_id, strategy)

    async def reject_pending_patch(self, *, patch_id: str) -> bool:
        """Reject a waiting patch; return False if it does not wait."""
        return await self._parts.context.reject(patch_id)

    async def mark_background_consumed(self, *, task_ids: Iterable[str]) -> int:
        """Remove the results of these tasks and return their number."""
        return await self._parts.context.consume(task_ids)

    # ------------------------------------------------------------------------------------------------------------ tasks

    async def spawn_task(self, pipeline: TaskPipeline, **options: Unpack[TaskOptions]) -> str:
        """Start a task in the background and return its id. Raise SessionLimitReached if a limit is reached."""
        await self.hydrate()
        task, run = await self._runner.create(options)
        self._runner.start(task, run, pipeline, options.get("merge_strategy", MergeStrategy.APPEND))
        return task.task_id

    async def run_task(self, pipeline: TaskPipeline, **options: Unpack[TaskOptions]) -> TaskResult:
        """Run a task and return its result. Raise the error of its pipeline, or SteeringCancelled."""
        await self.hydrate()
        task, run = await self._runner.create(options)
        return await self._runner.run(task, run, pipeline, options.get("merge_strategy", MergeStrategy.APPEND))

    async def ensure_capacity(self, task_type: TaskType) -> None:
        """Raise SessionLimitReached if the session can't have another task of this type."""
        await self._parts.tasks.ensure_capacity(task_type)

    async def get_task(self, task_id: str) -> TaskState | None:
        """Return the current state of the task, wherever it runs, or None."""
        return await self._parts.tasks.load(task_id)

    async def list_tasks(self, *, status: TaskStatus | None = None) -> list[TaskState]:
        """Return the current state of all tasks, wherever they run, in order of creation."""
        await self._parts.tasks.refresh()
        return self.registry.tasks(status=status)

    async def cancel_task(self, task_id: str, *, reason: str | None = None) -> bool:
        """Request the cancel of a task and its children; return whether it was accepted."""
        payload = {"reason": reason} if reason else {}
        return await self.steer(self._demand(task_id, SteeringEventType.CANCEL, payload, "user"))

    async def steer(self, event: SteeringEvent) -> bool:
        """Process a control; return whether it was accepted. Repeated, invalid and waiting controls are not."""
        await self.hydrate()
        return await self._controls.steer(event)

    async def broadcast_steer(
        self, *, event_type: SteeringEventType, payload: Mapping[str, Any] | None = None, source: str = "user"
    ) -> int:
        """Send the same control to every unfinished task and return how many accepted it."""
        active = [task.task_id for task in await self.list_tasks() if not is_over(task)]
        accepted = [await self.steer(self._demand(task, event_type, payload or {}, source)) for task in active]
        return sum(accepted)

    def _demand(self, task_id: str, kind: SteeringEventType, payload: Mapping[str, Any], source: str) -> SteeringEvent:
        types = self._parts.store.types
        event: SteeringEvent = types.SteeringEvent(
            session_id=self.session_id,
            task_id=task_id,
            event_type=types.SteeringEventType(kind.value),
            payload=dict(payload),
            source=source,
        )
        return event

    # ---------------------------------------------------------------------------------------------------------- updates

    async def subscribe(
        self,
        *,
        task_ids: Iterable[str] | None = None,
        update_types: Iterable[UpdateType] | None = None,
        since_id: str | None = None,
    ) -> Subscription:
        """Follow the updates of all processes, from now on or after ``since_id``; none is missed or repeated.

        An unknown or expired id starts with the oldest update that is kept.
        """
        return await self._parts.updates.subscribe(task_ids, update_types, since_id)

    async def connect(self, transport: SessionTransport, *, since_id: str | None = None) -> SessionConnection:
        """Connect a client: it receives updates and can send controls."""
        return SessionConnection(self, transport, since_id=since_id)

    async def list_updates(
        self, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> list[StateUpdate]:
        """Return stored updates: the first ``limit`` after ``since_id``, or the last ones."""
        store = self._parts.store
        return list(await store.list_updates(self.session_id, task_id=task_id, since_id=since_id, limit=limit))

    def report(self, task: TaskState, kind: UpdateType, content: Any, **fields: Any) -> StateUpdate:
        """Publish an update of a task and store its progress. Raise LeaseLost in a task that was lost."""
        if self._parts.tasks.get(task.task_id) is not task:
            raise LeaseLost
        if kind == UpdateType.PROGRESS and isinstance(content, dict) and not is_over(task):
            self._parts.tasks.change_progress(task, content)
        return self._parts.updates.report(task.task_id, kind, content, trace_id=task.trace_id, **fields)

    def _runtime(self, task: TaskState, inbox: SteeringInbox) -> TaskRuntime:
        return TaskRuntime(session=self, state=task, steering=inbox)
