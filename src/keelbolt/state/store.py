"""The StateStore: every capability of the specification, on every engine."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from keelbolt.errors import InvalidState
from keelbolt.kernel import Durability, Kernel, Operation, open_storage
from keelbolt.kernel.private_files import ensure_private_folder
from keelbolt.state.artifacts.record import Retention
from keelbolt.state.artifacts.store import ArtifactStore
from keelbolt.state.classes import Choice, Types
from keelbolt.state.codec import Fallback, describe
from keelbolt.state.engine.connection import Counters, PolicyName, StoreConnection
from keelbolt.state.engine.host import LoopHost, SharedHost
from keelbolt.state.engine.spool import FileSpool
from keelbolt.state.engine.thread import ThreadHost, finish_on_sigterm
from keelbolt.state.engine.writer import StateWriter
from keelbolt.state.engine.writes import Saved, background_saves, handed_over
from keelbolt.state.events.traces import Bindings, HistoryPage, PlannerEvents, StateEvents, Trajectories
from keelbolt.state.families import StateRetention, partition_of
from keelbolt.state.planner_state import PAUSE_SECONDS, MemoryStates, PauseLease, Pauses, WaitingPause
from keelbolt.state.retention import SWEEP_SECONDS, StateSweeper, StateSwept, sweep_state
from keelbolt.state.store_context import StateHealth, StoreContext, counters_of, health_of
from keelbolt.state.tasks import SessionIndex, SteeringLog, Tasks, Updates


class StateStore:
    """Pass it to PenguiFlow as ``state_store=…``, or use it alone.

        store = StateStore("sqlite:///state.db")
        await store.save_event(event)
        history = await store.load_history("trace")

    It can be created and used anywhere, in one event loop or several in turn, and need not be closed (`close`, or
    ``async with``, only ends it earlier). Each ``save_*`` copies its arguments when it is *called*, and call order is
    commit order. Awaiting a save returns when it is committed; concurrent saves share a commit.

    ``url`` is a storage URL, or an open kernel; then the store belongs to the loop of that kernel. ``tenant`` divides
    one storage among several tenants. ``types`` selects the classes of returned objects: penguiflow's if it is
    installed, else Keelbolt's. ``policy`` is ``strict`` or ``resilient``, ``spool`` a directory for writes that fail
    during an outage (in memory, if None). ``write_behind=True``: events, updates, planner events and trajectories are
    acknowledged before their commit and batched; a process that is killed loses the last of them. ``retention`` is the
    policy of sweeps; a store in use sweeps every ``sweep_every`` seconds (None: never).
    """

    def __init__(
        self,
        url: str | Kernel,
        *,
        tenant: str = "default",
        types: Choice = "auto",
        policy: PolicyName = "strict",
        spool: str | os.PathLike[str] | None = None,
        durability: Durability | None = None,
        write_behind: bool = False,
        timeout_seconds: float = 10.0,
        exit_seconds: float = 5.0,
        pause_seconds: float = PAUSE_SECONDS,
        max_waiting: int = 20_000,
        fallback: Fallback = describe,
        artifact_retention: Retention | None = None,
        retention: StateRetention | None = None,
        sweep_every: float | None = SWEEP_SECONDS,
    ) -> None:
        if policy not in ("strict", "resilient"):
            raise InvalidState(f"policy must be 'strict' or 'resilient', not {policy!r}")
        if spool is not None:
            if policy != "resilient":
                raise InvalidState("a spool requires policy='resilient'; with policy='strict', failed saves raise")
            try:
                ensure_private_folder(spool)
            except OSError as error:
                raise InvalidState(
                    f"can't use {os.fspath(spool)!r} as the spool directory: {error.strerror}"
                ) from error

        def engine() -> tuple[StoreConnection, StateWriter]:
            link = (
                StoreConnection(given=url)
                if isinstance(url, Kernel)
                else StoreConnection(lambda: open_storage(url, durability=durability))
            )
            waiting = FileSpool(spool) if spool is not None else None
            return link, StateWriter(link, policy, timeout_seconds=timeout_seconds, spool=waiting)

        if isinstance(url, Kernel):
            host = SharedHost.of(None, lambda: LoopHost(engine))
        else:
            open_storage(url, durability=durability)  # raises for an invalid URL now, not later
            where = None if spool is None else os.fspath(spool)
            here = str(Path.cwd()) if url.startswith("sqlite:") else ""  # the path in a URL may be relative
            key = (url, here, durability, policy, where, timeout_seconds, exit_seconds)
            alone = url.startswith("memory:")  # memory storage is never shared
            host = SharedHost.of(None if alone else key, lambda: ThreadHost(engine, exit_seconds=exit_seconds))
            if write_behind:
                finish_on_sigterm()
        self._set_up(
            host,
            tenant=tenant,
            types=Types(types),
            policy=policy,
            timeout_seconds=timeout_seconds,
            behind=write_behind,
            fallback=fallback,
            max_waiting=max_waiting,
            pause_seconds=pause_seconds,
            artifact_retention=artifact_retention,
            retention=retention,
            sweep_every=sweep_every,
        )

    def for_tenant(self, tenant: str) -> StateStore:
        """Return a store for the state of another tenant, with the same settings, thread and connections.

        Each store is closed separately; the storage is released when the last one is closed.
        """
        store = StateStore.__new__(StateStore)
        store._set_up(self._desk.host.share(), **{**self._settings, "tenant": tenant})  # noqa: SLF001  (same class)
        return store

    def _set_up(self, host: SharedHost, **settings: Any) -> None:
        self._settings = settings
        given = dict(settings)
        self.tenant: str = given.pop("tenant")
        pause_seconds, artifact_retention = given.pop("pause_seconds"), given.pop("artifact_retention")
        sweeper = StateSweeper(partition_of(self.tenant), given.pop("retention"), given.pop("sweep_every"))
        self._desk = desk = StoreContext(host, partition_of(self.tenant), given.pop("types"), sweeper=sweeper, **given)
        weakref.finalize(desk, host.abandon).atexit = False  # when neither store nor artifacts are in use
        self._events = StateEvents(desk)
        self._bindings = Bindings(desk)
        self._pauses = Pauses(desk, pause_seconds)
        self._memory = MemoryStates(desk)
        self._tasks = Tasks(desk)
        self._updates = Updates(desk)
        self._steering = SteeringLog(desk)
        self._trajectories = Trajectories(desk)
        self._planner_events = PlannerEvents(desk)
        self._directory = SessionIndex(desk)
        self._artifacts = ArtifactStore(desk, retention=artifact_retention)

    # -------------------------------------------------------------------------------------------------- lifecycle

    @property
    def desk(self) -> StoreContext:
        """Shared parts of the store, for code that builds on it."""
        return self._desk

    @property
    def policy(self) -> PolicyName:
        """The policy for an unavailable storage."""
        return self._desk.policy

    @property
    def host(self) -> SharedHost:
        """The host of the kernel."""
        return self._desk.host

    @property
    def partition(self) -> str:
        """The partition of this tenant's state."""
        return self._desk.partition

    @property
    def types(self) -> Types:
        """The classes of returned objects."""
        return self._desk.types

    async def flush(self) -> None:
        """Return when all earlier saves are committed, including PenguiFlow's background saves.

        Under ``strict``, raise the first lost save that no caller awaited and no other call has raised.
        """
        await background_saves()
        await self._desk.host.flush()
        if (loss := self._desk.loss()) is not None:
            raise loss

    async def sweep(self, retention: StateRetention) -> StateSwept:
        """Remove data that this policy no longer keeps, and expired data, and return the counts."""
        return await self._desk.host.ask(self._desk.scoped(lambda scope: sweep_state(scope, retention)))

    async def close(self) -> None:
        """Finish all saves and release the storage."""
        try:
            await self.flush()
        finally:
            await self._desk.host.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def health(self) -> StateHealth:
        """Return the health of the store; never raises."""
        return await health_of(self._desk)

    @property
    def counters(self) -> Counters:
        """Counts since the store was created."""
        return counters_of(self._desk)

    @property
    def artifact_store(self) -> ArtifactStore:
        """The artifacts, in the same storage."""
        return self._artifacts

    # ----------------------------------------------------------------------------------------------------- events

    @handed_over
    def save_event(self, event: Any, planner_event: Any = None) -> Saved:
        """Save an event of a flow. ``save_event(trace_id, planner_event)`` is the older name of save_planner_event."""
        if planner_event is not None:
            return self._planner_events.save(event, planner_event)
        return self._events.save(event)

    @handed_over
    def save_events(self, events: Iterable[Any]) -> Saved:
        """Save several events of flows, of any traces."""
        return self._events.save_many(events)

    save_events_bulk = save_events

    async def load_history(self, trace_id: str) -> Sequence[Any]:
        """Return the events of a trace, by time and then by arrival; ``__global__`` is for events without a trace."""
        return await self._events.load(trace_id)

    async def load_history_page(self, trace_id: str, *, after: int = 0, limit: int = 1000) -> HistoryPage:
        """Return a page of a long trace in order of arrival; ``after`` is `HistoryPage.next` of the page before."""
        return await self._events.page(trace_id, after, limit)

    def iter_history(self, trace_id: str) -> AsyncIterator[Any]:
        """Iterate over the events of a trace in order of arrival, without holding all of them in memory."""
        return self._events.iterate(trace_id)

    # --------------------------------------------------------------------------------------------------- bindings

    @handed_over
    def save_remote_binding(self, binding: Any) -> Saved:
        """Save the binding of a trace to a remote task."""
        return self._bindings.save(binding)

    async def find_binding(
        self,
        *,
        router_session_id: str,
        agent_url: str,
        remote_skill: str,
        tenant_id: str | None = None,
        user_id: str | None = None,
    ) -> Any | None:
        """Return the last saved open binding of this conversation, or None."""
        return await self._bindings.find(router_session_id, agent_url, remote_skill, tenant_id, user_id)

    async def list_bindings(self, *, router_session_id: str) -> Sequence[Any]:
        """Return the bindings of a session."""
        return await self._bindings.list(router_session_id)

    async def mark_binding_terminal(self, *, trace_id: str, context_id: str | None, task_id: str) -> None:
        """Mark the binding as terminal: no further turn goes to this remote task."""
        await self._bindings.end(trace_id, context_id, task_id)

    # ------------------------------------------------------------------------------------------- pauses and memory

    @handed_over
    def save_planner_state(self, token: str, payload: dict[str, Any]) -> Saved:
        """Save a pause under its token, for ``pause_seconds``."""
        return self._pauses.save(token, payload)

    async def load_planner_state(self, token: str) -> dict[str, Any] | None:
        """Take the pause: only one of all callers, on all machines, gets it."""
        return await self._pauses.take(token)

    async def take_planner_state(self, token: str, *, lease_seconds: float) -> PauseLease | None:
        """Take the pause with a lease: unless it is confirmed within ``lease_seconds``, others can take it.

        Return None if there is none or another caller has it.
        """
        return await self._pauses.lease(token, lease_seconds)

    async def list_pauses(self, limit: int = 50) -> list[WaitingPause]:
        """Return the waiting pauses, the newest first, without taking them."""
        return await self._pauses.list(limit)

    async def get_pause(self, token: str) -> WaitingPause | None:
        """Return the waiting pause without taking it, or None."""
        return await self._pauses.get(token)

    async def cancel_pause(self, token: str) -> bool:
        """Remove the pause, so that it can't be resumed; return whether it existed."""
        return await self._pauses.cancel(token)

    @handed_over
    def save_memory_state(self, key: str, state: dict[str, Any], *, if_version: int | None = None) -> Saved:
        """Save a state under this key.

        With ``if_version``, raise StateConflict unless the stored state has this version (0: there is none).
        """
        return self._memory.save(key, state, if_version)

    async def load_memory_state(self, key: str) -> dict[str, Any] | None:
        """Return the state, or None. After StateNotLoaded, saves of the key are refused until a load succeeds."""
        return (await self._memory.load(key))[0]

    async def load_memory_version(self, key: str) -> tuple[dict[str, Any] | None, int]:
        """Return the state and its version, for ``save_memory_state(…, if_version=)``; None and 0 if there is none."""
        return await self._memory.load(key)

    # ---------------------------------------------------------------------------------------------------- sessions

    @handed_over
    def save_task(self, state: Any, *, checks: tuple[Operation, ...] = ()) -> Saved:
        """Save the current state of a task. ``checks`` are kernel operations: if one fails, the task is not saved."""
        return self._tasks.save(state, checks=checks)

    async def list_tasks(self, session_id: str) -> Sequence[Any]:
        """Return the tasks of a session in order of arrival."""
        return await self._tasks.load(session_id)

    @handed_over
    def save_update(self, update: Any, *, checks: tuple[Operation, ...] = ()) -> Saved:
        """Save an update; a repeat of its id is the same update. ``checks`` as for `save_task`."""
        return self._updates.save(update, checks=checks)

    async def list_updates(
        self, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> Sequence[Any]:
        """Return the first ``limit`` updates after the cursor; without a cursor, or with an unknown one, the last."""
        return await self._updates.list(session_id, task_id, since_id, limit)

    save_task_update = save_update
    list_task_updates = list_updates

    @handed_over
    def save_steering(self, event: Any) -> Saved:
        """Save a steering event, truncated. An event that is not valid for its type is stored with the reasons."""
        return self._steering.save(event)

    async def list_steering(
        self, session_id: str, *, task_id: str | None = None, since_id: str | None = None, limit: int = 500
    ) -> Sequence[Any]:
        """Return the first ``limit`` events after the cursor; without a cursor, or with an unknown one, the last."""
        return await self._steering.list(session_id, task_id, since_id, limit)

    # ---------------------------------------------------------------------------------------------------- planners

    @handed_over
    def save_trajectory(self, trace_id: str, session_id: str, trajectory: Any) -> Saved:
        """Save a trajectory; it replaces an older one of the same trace and session."""
        return self._trajectories.save(trace_id, session_id, trajectory)

    async def get_trajectory(self, trace_id: str, session_id: str) -> Any | None:
        """Return the trajectory; None also if it belongs to another session."""
        return await self._trajectories.load(trace_id, session_id)

    async def list_traces(self, session_id: str, limit: int = 50) -> list[str]:
        """Return the traces of a session, the last saved first."""
        return await self._trajectories.traces(session_id, limit)

    @handed_over
    def save_planner_event(self, trace_id: str, event: Any) -> Saved:
        """Save a planner event; a repeat is the same event."""
        return self._planner_events.save(trace_id, event)

    async def list_planner_events(self, trace_id: str) -> list[Any]:
        """Return the planner events of a trace in order of arrival."""
        return await self._planner_events.load(trace_id)

    get_events = list_planner_events

    # ------------------------------------------------------------------------------------------------------- lists

    async def list_sessions(self, limit: int = 50) -> list[str]:
        """Return the sessions that have data, the newest first."""
        return await self._directory.sessions(limit)

    async def list_all_traces(self, limit: int = 50) -> list[str]:
        """Return the traces that have data, of all sessions and of none, the newest first."""
        return await self._directory.traces(limit)
