"""A user of the StateStore: events, memory, pauses, artifacts and sessions, several processes on the same keys."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from pathlib import Path

from keelbolt.errors import KeelboltError
from keelbolt.state import StateStore
from keelbolt.state.sessions import (
    ContextPatch,
    MergeStrategy,
    SessionLimits,
    SessionManager,
    StreamingSession,
    TaskPipeline,
    TaskResult,
    TaskRuntime,
    process,
)
from keelbolt.state.types import ArtifactRetentionConfig, StateUpdate, StoredEvent, TaskType, Trajectory, UpdateType
from tests.chaos.agent import LEASE_SECONDS
from tests.chaos.history import History, pace, rotating

CHANGE_SECONDS = 0.05  # at most, between the read and the write of a memory: other processes change it meanwhile
MEMORIES = 4
# No artifact is evicted or expires: the time to live of artifacts follows the wall clock, which jumps.
MANY = ArtifactRetentionConfig(ttl_seconds=0, max_session_bytes=1 << 40, max_artifacts_per_session=1_000_000)
PAUSE_SECONDS = 0.05
LIMITS = SessionLimits(0, 0, 0, lease_seconds=LEASE_SECONDS)  # without limits for tasks
WORK_SECONDS = 0.3  # of a task of a session, on average
ATTEMPTS = 1000


def work(history: History) -> TaskPipeline:
    """Return what a task of a session does in this process; its result names the run."""

    async def pipeline(runtime: TaskRuntime) -> TaskResult:
        run = history.note("task_run", task=runtime.state.task_id)
        await asyncio.sleep(random.expovariate(1 / WORK_SECONDS))
        return TaskResult(payload=run)

    return pipeline


class StateUser:
    """Works on keys that all users share."""

    def __init__(self, history: History, store: StateStore, seed: int) -> None:
        self._history = history
        self._store = store
        self._dice = random.Random(seed)
        self._work = work(history)
        self._sessions = SessionManager(state_store=store, limits=LIMITS, recover=lambda _task: self._work)
        self._current = ""  # the open session of `merge`, `gated` and `decide`
        self._running: StreamingSession | None = None  # that of `spawn` and `task`
        self._number = 0

    async def run(self) -> None:
        """Run until the process ends."""
        kinds = {
            self.event: 5,
            self.update: 2,
            self.trajectory: 1,
            self.remember: 6,
            self.recall: 3,
            self.pause: 2,
            self.take: 3,
            self.artifact: 2,
            self.merge: 3,
            self.gated: 1,
            self.decide: 2,
            self.spawn: 4,
            self.task: 1,
        }
        while True:
            what = self._dice.choices(list(kinds), list(kinds.values()))[0]
            try:
                await what()
            except (KeelboltError, TimeoutError):
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.sleep(pace() * self._dice.uniform(0, 0.02))

    def _next(self) -> str:
        self._number += 1
        return f"{self._history.id}-{self._number}"

    async def event(self) -> None:
        """Save an event of a trace that all users write."""
        trace, name = rotating(f"trace-{self._dice.randrange(3)}"), self._next()
        asked = self._history.ask("event", trace=trace, name=name)
        event = StoredEvent(trace_id=trace, ts=0.0, kind=name, node_name=None, node_id=None, payload={"name": name})
        await self._store.save_event(event)
        self._history.answer(asked, "event")

    async def update(self) -> None:
        """Save an update of a session that all users write."""
        session, name = rotating("updates"), self._next()
        asked = self._history.ask("update", session=session, name=name)
        await self._store.save_update(
            StateUpdate(
                session_id=session, task_id="task", update_id=name, update_type=UpdateType.PROGRESS, content=name
            )
        )
        self._history.answer(asked, "update")

    async def trajectory(self) -> None:
        """Save a trajectory under its own trace."""
        session, name = rotating("trajectories"), self._next()
        asked = self._history.ask("trajectory", session=session, name=name)
        await self._store.save_trajectory(name, session, Trajectory(query=name))
        self._history.answer(asked, "trajectory")

    async def remember(self) -> None:
        """Compare and set a register; its versions are the order of its writes."""
        key = f"memory-{self._dice.randrange(MEMORIES)}"
        read = self._history.ask("recall", memory=key)
        state, version = await self._store.load_memory_version(key)
        self._history.answer(read, "recall", value=(state or {}).get("value"), version=version)
        await asyncio.sleep(self._dice.uniform(0, CHANGE_SECONDS))
        value = self._next()
        asked = self._history.ask("remember", memory=key, value=value, version=version)
        try:
            await self._store.save_memory_state(key, {"value": value}, if_version=version)
        except KeelboltError as error:
            refused = type(error).__name__
            if refused == "StateConflict":
                self._history.answer(asked, "remember", done=False)
            raise
        self._history.answer(asked, "remember", done=True)

    async def recall(self) -> None:
        """Read such a register."""
        key = f"memory-{self._dice.randrange(MEMORIES)}"
        asked = self._history.ask("recall", memory=key)
        state, version = await self._store.load_memory_version(key)
        self._history.answer(asked, "recall", value=(state or {}).get("value"), version=version)

    async def pause(self) -> None:
        """Save a pause that some process will take."""
        token = f"pause-{self._next()}"
        asked = self._history.ask("pause", token=token)
        await self._store.save_planner_state(token, {"token": token})
        self._history.answer(asked, "pause")

    async def take(self) -> None:
        """Take a pause that some process has saved; of several takers one gets it."""
        waiting = await self._store.list_pauses(limit=5)
        if not waiting:
            return
        token = self._dice.choice(waiting).token
        asked = self._history.ask("take", token=token)
        found = await self._store.load_planner_state(token)
        self._history.answer(asked, "take", token=token, got=found is not None and found["token"] == token)

    async def artifact(self) -> None:
        """Store bytes, completely or not at all."""
        data = os.urandom(self._dice.choice((10, 5_000, 300_000)))
        asked = self._history.ask("artifact")
        reference = await self._store.artifact_store.put_bytes(data, mime_type="application/octet-stream")
        self._history.answer(asked, "artifact", id=reference.id, digest=hashlib.sha256(data).hexdigest())

    async def _session(self) -> StreamingSession:
        """Return the current session; close the one before it."""
        session = rotating("session")
        if session != self._current:
            await self._sessions.drop(self._current)
            self._current = session
        return await self._sessions.get_or_create(session)

    async def merge(self) -> None:
        """Merge a result into the context of a session."""
        opened, name = await self._session(), self._next()
        asked = self._history.ask("merge", session=opened.session_id, name=name)
        await opened.apply_context_patch(patch=ContextPatch(task_id=name))
        self._history.answer(asked, "merge")

    async def gated(self) -> None:
        """Save a result that waits for a decision."""
        opened, name = await self._session(), self._next()
        patch = ContextPatch(task_id=name)
        await opened.apply_context_patch(patch=patch, strategy=MergeStrategy.HUMAN_GATED)

    async def decide(self) -> None:
        """Decide on a waiting result, perhaps of another process; one of several decisions counts."""
        await self._sessions.drop(self._current)  # reload the data of other processes
        opened = await self._session()
        waiting = opened.pending_patches
        if not waiting:
            return
        patch_id = self._dice.choice(sorted(waiting))
        name = waiting[patch_id].task_id
        asked = self._history.ask("decide", session=opened.session_id, patch=patch_id, name=name)
        done = await opened.apply_pending_patch(patch_id=patch_id)
        self._history.answer(asked, "decide", done=done)

    async def _of_tasks(self) -> StreamingSession:
        """Return the current session of tasks; close the one before it after its tasks."""
        name = rotating("tasks")
        if self._running is not None and self._running.session_id != name:
            await self._running.finish()
            await self._sessions.drop(self._running.session_id)
        self._running = await self._sessions.get_or_create(name)
        return self._running

    async def spawn(self) -> None:
        """Start a task of a session that all users share."""
        session, name = await self._of_tasks(), self._next()
        asked = self._history.ask("spawn", session=session.session_id, task=name)
        await session.spawn_task(self._work, task_id=name, task_type=TaskType.BACKGROUND)
        self._history.answer(asked, "spawn", result=None)

    async def task(self) -> None:
        """Run such a task and wait for its result."""
        session, name = await self._of_tasks(), self._next()
        asked = self._history.ask("spawn", session=session.session_id, task=name)
        result = await session.run_task(self._work, task_id=name)
        self._history.answer(asked, "spawn", result=result.payload)


async def _run(url: str, folder: str, seed: str) -> None:
    store = StateStore(url, timeout_seconds=10.0, artifact_retention=MANY)
    await StateUser(History(Path(folder), "state"), store, int(seed)).run()


def run(url: str, folder: str, seed: str) -> None:
    """Run until the process ends."""
    vars(process)["MAX_ATTEMPTS"] = ATTEMPTS
    asyncio.run(_run(url, folder, seed))
