"""A process with a session whose tasks never end; the test kills it.

python session_process.py URL own|penguiflow
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import penguiflow.sessions as theirs

from keelbolt.state import StateStore
from keelbolt.state import sessions as ours
from tests.integration.state.session_parts import SHORT


async def own(store: StateStore) -> None:
    session = ours.StreamingSession("s", state_store=store, limits=SHORT)
    await session.hydrate()
    await session.update_context(llm_context={"a": 1}, tool_context={"b": 2})
    await work(session, ours, store)
    session.update_context(llm_context={"a": 2})  # not awaited: it is on its way
    await store.flush()


async def penguiflow(store: StateStore) -> None:
    owned = ours.OwnedTasks(store, lease_seconds=SHORT.lease_seconds)
    session = await theirs.SessionManager(state_store=owned).get_or_create("s")
    session.update_context(llm_context={"a": 1})
    await work(session, theirs, store)


async def work(session: Any, kind: Any, store: StateStore) -> None:
    """One task is done, one waits for an approval, two run."""
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


async def main(url: str, kind: str) -> None:
    store = StateStore(url, types="own" if kind == "own" else "penguiflow")
    await (own(store) if kind == "own" else penguiflow(store))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
