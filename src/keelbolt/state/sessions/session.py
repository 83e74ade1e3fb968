"""A session: one conversation, its context and its tasks, kept in a StateStore."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from keelbolt.errors import LeaseLost, StateNotSaved, StorageClosed
from keelbolt.state.hybrid import HybridStateStore
from keelbolt.state.sessions.controls import Controls
from keelbolt.state.sessions.core import SessionCore
from keelbolt.state.sessions.feed import Subscription
from keelbolt.state.sessions.inbox import SteeringInbox
from keelbolt.state.sessions.launching import Launcher, TaskOptions
from keelbolt.state.sessions.limits import SessionLimits
from keelbolt.state.sessions.merging import PatchManager
from keelbolt.state.sessions.opening import restore
from keelbolt.state.sessions.patches import ContextPatch, MergeStrategy, PendingContextPatch
from keelbolt.state.sessions.policy import ControlPolicy
from keelbolt.state.sessions.process import SessionRun
from keelbolt.state.sessions.recovery import OtherSessions, Recover, SessionRecovery, fail_orphans
from keelbolt.state.sessions.registry import TaskRegistry, is_over
from keelbolt.state.sessions.results import TaskPipeline, TaskResult, TaskRuntime
from keelbolt.state.sessions.storage import underlying
from keelbolt.state.sessions.telemetry import TaskTelemetrySink, Telemetry
from keelbolt.state.sessions.transport import SessionConnection, SessionTransport
from keelbolt.state.store import StateStore
from keelbolt.state.types.planner import BackgroundTaskResult
from keelbolt.state.types.steering import SteeringEvent, SteeringEventType
from keelbolt.state.types.tasks import StateUpdate, TaskState, TaskStatus, TaskType, UpdateType


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
        self._core = SessionCore(self, session_id, store, limits or SessionLimits(), Telemetry(telemetry_sink))
        self._patches = PatchManager(self._core)
        self._controls = Controls(self._core, self._patches, control_policy or ControlPolicy(), self.get_task)
        self._launcher = Launcher(self._core, self._patches, self._runtime)
        self._recovery = SessionRecovery(self._core, recover, self._launcher.start)

        def alike(other_id: str, other_store: StateStore) -> StreamingSession:
            return StreamingSession(
                other_id,
                state_store=other_store,
                limits=limits,
                control_policy=control_policy,
                telemetry_sink=telemetry_sink,
                recover=recover,
            )

        self._others = OtherSessions(store, alike)
        self._hydrating = asyncio.Lock()
        self._hydrated = False
        self._forwarded: set[asyncio.Task[bool]] = set()

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
            self._core.process.enter(self)
            opened = await restore(self._core, self._patches, self._controls)
            self._launcher.foreground = opened.foreground
            await self._core.process.settle(self._core.ground, self.session_id, opened.runs)
            self._hydrated = True

    async def _look_again(self) -> None:
        """Recover tasks of dead processes, and reload the tasks of other processes: some may have ended."""
        await self._core.process.settle(self._core.ground, self.session_id)
        await self.list_tasks()

    async def take(self, run: SessionRun) -> None:
        """Recover a task of a dead process, of this session or another one."""
        if (run.tenant, run.session_id) != (self.tenant, self.session_id):
            await self._others.take(run)
            return
        await self.list_tasks()
        await self._recovery.recover(run)

    def lost(self, run: SessionRun) -> None:
        """Stop a task whose lease could not be renewed: another process may take it over."""
        handle = self._core.handles.get(run.task_id)
        if self._core.runs.get(run.task_id) is run and handle is not None:
            handle.cancel()
        self._core.lose(run)

    def leave_tasks(self) -> None:
        """Stop the tasks and release them for other processes."""
        for run in list(self._core.runs.values()):
            self.lost(run)
            self._core.process.give_back(run)

    async def finish(self) -> None:
        """Wait for the tasks that run here, then close."""
        await asyncio.gather(*self._core.handles.values(), return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        """Cancel the tasks that run here, close the subscriptions, and end the lease with the last open session."""
        await self._others.close()
        core = self._core
        for task_id, handle in list(core.handles.items()):
            with contextlib.suppress(LeaseLost, StateNotSaved, StorageClosed):
                await core.change(task_id, status=TaskStatus.CANCELLED, error="session_closed")
            handle.cancel()
        await asyncio.gather(*core.handles.values(), *self._forwarded, return_exceptions=True)
        core.feed.close()
        await core.telemetry.close()
        await core.process.leave(self)
        if self._owns_store:
            await core.store.close()

    # ------------------------------------------------------------------------------------------------------ the context

    @property
    def limits(self) -> SessionLimits:
        """Limits of this session."""
        return self._core.limits

    @property
    def registry(self) -> TaskRegistry:
        """The tasks that this process knows."""
        return self._core.registry

    @property
    def context_version(self) -> int:
        """Number of updates of the context."""
        return self._patches.context.version

    @property
    def context_hash(self) -> str | None:
        """Hash of the model's context; None before the first update, and if the context is not JSON."""
        return self._patches.context.context_hash

    @property
    def pending_patches(self) -> dict[str, PendingContextPatch]:
        """The patches that wait for approval, by id."""
        return dict(self._patches.pending)

    @property
    def pending_controls(self) -> dict[str, SteeringEvent]:
        """The controls that wait for approval, by id."""
        return dict(self._controls.pending)

    def get_context(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return shallow copies of the model's and the tools' context."""
        return dict(self._patches.context.llm_context), dict(self._patches.context.tool_context)

    def get_background_results(self) -> dict[str, BackgroundTaskResult]:
        """Return the results of background tasks that are not consumed yet, by task."""
        context = self._patches.context
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
        return self._patches.update(
            llm_context=llm_context, tool_context=tool_context, memory=memory, artifacts=artifacts
        )

    async def refresh(self) -> None:
        """Load the changes of other processes to the context."""
        await self._patches.refresh()

    async def apply_context_patch(
        self,
        *,
        patch: ContextPatch,
        strategy: MergeStrategy = MergeStrategy.APPEND,
        payload: Any | None = None,
        group_id: str | None = None,
    ) -> str | None:
        """Merge a patch into the context. With HUMAN_GATED it waits; return its id for approval or rejection."""
        return await self._patches.apply(patch, strategy, payload=payload, group_id=group_id)

    async def apply_pending_patch(self, *, patch_id: str, strategy: MergeStrategy | None = None) -> bool:
        """Approve a waiting patch; return False if it does not wait."""
        return await self._patches.approve(patch_id, strategy)

    async def reject_pending_patch(self, *, patch_id: str) -> bool:
        """Reject a waiting patch; return False if it does not wait."""
        return await self._patches.reject(patch_id)

    async def mark_background_consumed(self, *, task_ids: Iterable[str]) -> int:
        """Remove the results of these tasks and return their number."""
        return await self._patches.consume(task_ids)

    # ------------------------------------------------------------------------------------------------------------ tasks

    async def spawn_task(self, pipeline: TaskPipeline, **options: Unpack[TaskOptions]) -> str:
        """Start a task in the background and return its id. Raise SessionLimitReached if a limit is reached."""
        await self.hydrate()
        task = await self._launcher.create(options, self._look_again)
        self._launcher.start(task, pipeline, options.get("merge_strategy", MergeStrategy.APPEND))
        return task.task_id

    async def run_task(self, pipeline: TaskPipeline, **options: Unpack[TaskOptions]) -> TaskResult:
        """Run a task and return its result. Raise the error of its pipeline, or SteeringCancelled."""
        await self.hydrate()
        task = await self._launcher.create(options, self._look_again)
        return await self._launcher.run(task, pipeline, options.get("merge_strategy", MergeStrategy.APPEND))

    async def ensure_capacity(self, task_type: TaskType) -> None:
        """Raise SessionLimitReached if the session can't have another task of this type."""
        await self._launcher.ensure_capacity(task_type)

    async def get_task(self, task_id: str) -> TaskState | None:
        """Return the current state of the task, wherever it runs, or None."""
        known = self._core.registry.get(task_id)
        if known is None or not (is_over(known) or self._core.runs_here(task_id)):
            await self.list_tasks()
        return self._core.registry.get(task_id)

    async def list_tasks(self, *, status: TaskStatus | None = None) -> list[TaskState]:
        """Return the current state of all tasks, wherever they run, in order of creation."""
        core = self._core
        for task in await core.store.list_tasks(self.session_id):
            known = core.registry.get(task.task_id)
            if known is None or not (is_over(known) or core.runs_here(task.task_id)):
                core.registry.add(task)
        return core.registry.tasks(status=status)

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

    def steered(self, event: Any) -> None:
        """Execute a control that another process passed on."""
        if self._core.runs_here(event.task_id) and self._controls.receive(event):
            task = asyncio.get_running_loop().create_task(self._controls.act(event), name="session-steered")
            self._forwarded.add(task)
            task.add_done_callback(self._forwarded.discard)

    def _demand(self, task_id: str, kind: SteeringEventType, payload: Mapping[str, Any], source: str) -> SteeringEvent:
        types = self._core.types
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
        return await self._core.feed.subscribe(task_ids, update_types, since_id)

    async def connect(self, transport: SessionTransport, *, since_id: str | None = None) -> SessionConnection:
        """Connect a client: it receives updates and can send controls."""
        return SessionConnection(self, transport, since_id=since_id)

    async def list_updates(
        self, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> list[StateUpdate]:
        """Return stored updates: the first ``limit`` after ``since_id``, or the last ones."""
        store = self._core.store
        return list(await store.list_updates(self.session_id, task_id=task_id, since_id=since_id, limit=limit))

    def report(self, task: TaskState, kind: UpdateType, content: Any, **fields: Any) -> StateUpdate:
        """Publish an update of a task and store its progress. Raise LeaseLost in a task that was lost."""
        if self._core.registry.get(task.task_id) is not task:
            raise LeaseLost
        if kind == UpdateType.PROGRESS and isinstance(content, dict) and not is_over(task):
            self._core.report_progress(task, content)
        update: StateUpdate = self._core.report(task.task_id, kind, content, trace_id=task.trace_id, **fields)
        return update

    def _runtime(self, task: TaskState, inbox: SteeringInbox) -> TaskRuntime:
        return TaskRuntime(session=self, state=task, steering=inbox)
