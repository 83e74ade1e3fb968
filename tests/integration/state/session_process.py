"""A process with a session whose tasks never end; the test kills or stops it.

python session_process.py URL own|penguiflow|stopped|writer
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import penguiflow.sessions as theirs

from keelbolt.state import StateStore
from keelbolt.state import sessions as ours
from tests.integration.state.session_parts import SHORT, saves


async def own(store: StateStore) -> None:
    session = ours.StreamingSession("s", state_store=store, limits=SHORT)
    await session.hydrate()
    await session.update_context(llm_context={"a": 1}, tool_context={"b": 2})
    await work(session, ours, store)
    session.update_context(llm_context={"a": 2})  # not awaited: still in progress
    await store.flush()


async def penguiflow(store: StateStore) -> None:
    owned = ours.OwnedTasks(store, lease_seconds=SHORT.lease_seconds)
    session = await theirs.SessionManager(state_store=owned).get_or_create("s")
    session.update_context(llm_context={"a": 1})
    await work(session, theirs, store)


async def work(session: Any, kind: Any, store: StateStore) -> None:
    """Run four tasks: one is complete, one waits for an approval, two run."""
    running = asyncio.Semaphore(0)

    async def done(runtime: Any) -> Any:
        runtime.emit_update(store.types.UpdateType.PROGRESS, {"half": True})
        patch = kind.ContextPatch(task_id=runtime.state.task_id, digest=["done"])
        return kind.TaskResult(payload={"p": 1}, context_patch=patch)

    async def endless(_runtime: Any) -> None:
        running.release()
        await asyncio.Event().wait()

    background = store.types.TaskType.BACKGROUND
    await session.run_task(done, task_id="done", task_type=background)
    gated = kind.MergeStrategy.HUMAN_GATED
    await session.run_task(done, task_id="gated", task_type=background, merge_strategy=gated)
    for task_id in ("front", "back"):
        chosen = background if task_id == "back" else store.types.TaskType.FOREGROUND
        await session.spawn_task(endless, task_id=task_id, task_type=chosen)
        await running.acquire()
    await store.flush()


async def stopped(store: StateStore) -> None:
    """Run a task that writes in every possible way after its process was stopped for a while."""
    session = ours.StreamingSession("s", state_store=store, limits=SHORT)
    await session.hydrate()
    running = asyncio.Event()

    async def pipeline(runtime: Any) -> Any:
        running.set()
        await until_stopped(time.monotonic())
        runtime.emit_update(store.types.UpdateType.THINKING, {"late": True})
        patch = ours.ContextPatch(task_id=runtime.state.task_id, digest=["late"])
        return ours.TaskResult(payload="late", context_patch=patch)

    await session.spawn_task(pipeline, task_id="t")
    (handle,) = session._runner.running()
    await running.wait()
    await store.flush()
    print("ready", flush=True)
    await asyncio.wait([handle])
    await store.flush()
    print(type(handle.exception()).__name__, flush=True)


async def writer(store: StateStore) -> None:
    """Save to a session, and once more after it was erased."""
    for save in saves(store):
        await save()
    await store.flush()
    now = time.monotonic()  # the stop may come right after the print
    print("ready", flush=True)
    await until_stopped(now)
    ends = await asyncio.gather(*(save() for save in saves(store)), return_exceptions=True)
    print(*sorted({type(end).__name__ for end in ends}), flush=True)


async def until_stopped(before: float) -> None:
    """Wait until this process was stopped for a while after this time (monotonic seconds)."""
    while time.monotonic() - before < SHORT.lease_seconds:
        before = time.monotonic()
        await asyncio.sleep(0.02)


KINDS: dict[str, Callable[[StateStore], Awaitable[None]]] = {
    "own": own,
    "penguiflow": penguiflow,
    "stopped": stopped,
    "writer": writer,
}


async def main(url: str, kind: str) -> None:
    store = StateStore(url, types="penguiflow" if kind == "penguiflow" else "own")
    await KINDS[kind](store)
    if kind in ("own", "penguiflow"):
        print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
