"""The same program on penguiflow's sessions and on Keelbolt's: the same updates, in the same order."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import penguiflow.sessions as theirs
from penguiflow.state.in_memory import InMemoryStateStore
from penguiflow.steering import SteeringEvent, SteeringEventType

from keelbolt.state import StateStore
from keelbolt.state import sessions as ours

VARYING = ("patch_id", "event_id", "completed_at", "resume_token")


def plain(value: Any) -> Any:
    """Return the update without values that differ between runs."""
    if isinstance(value, dict):
        return {key: "*" if key in VARYING and item else plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


async def played(kind: Any, session: Any, store: Any) -> list[Any]:
    """Return the updates of a session with tasks, controls and patches."""

    async def answer(runtime: Any) -> Any:
        runtime.emit_update(theirs.UpdateType.PROGRESS, {"percent": 50}, step_index=1, total_steps=2)
        snapshot = runtime.context_snapshot
        patch = kind.ContextPatch(
            task_id=runtime.state.task_id,
            digest=["one", "two"],
            source_context_version=snapshot.context_version,
            source_context_hash=snapshot.context_hash,
        )
        return kind.TaskResult(payload={"seen": snapshot.llm_context}, context_patch=patch, digest=["d"])

    async def broken(_runtime: Any) -> None:
        raise ValueError("broken")

    running = asyncio.Semaphore(0)

    async def endless(_runtime: Any) -> None:
        running.release()
        await asyncio.Event().wait()

    def event(what: SteeringEventType, task_id: str, source: str = "user", **payload: Any) -> SteeringEvent:
        return SteeringEvent(session_id="s", task_id=task_id, event_type=what, payload=payload, source=source)

    background = theirs.TaskType.BACKGROUND
    strategies = kind.MergeStrategy
    session.update_context(llm_context={"a": 1})
    await session.run_task(answer, task_id="front", query="?")
    await session.run_task(answer, task_id="back", task_type=background)
    await session.run_task(answer, task_id="gated", task_type=background, merge_strategy=strategies.HUMAN_GATED)
    session.update_context(llm_context={"a": 2})
    (patch_id,) = session.pending_patches
    assert await session.steer(event(SteeringEventType.APPROVE, "gated", patch_id=patch_id))
    with contextlib.suppress(ValueError):
        await session.run_task(broken, task_id="broken", task_type=background)
    await session.spawn_task(endless, task_id="parent", priority=1)
    await running.acquire()
    await session.spawn_task(endless, task_id="child", parent_task_id="parent")
    await running.acquire()
    assert await session.steer(event(SteeringEventType.PAUSE, "parent"))
    assert await session.steer(event(SteeringEventType.RESUME, "parent"))
    assert await session.steer(event(SteeringEventType.PRIORITIZE, "parent", priority=5))
    assert not await session.steer(event(SteeringEventType.CANCEL, "parent", source="agent", reason="tired"))
    assert await session.steer(event(SteeringEventType.INJECT_CONTEXT, "child", text="hello"))
    await asyncio.sleep(0)
    updates = [(each.task_id, each.update_type.value, plain(each.content)) for each in await store.list_updates("s")]
    found = [session.context_version, session.context_hash, sorted(session.get_background_results()), *updates]
    await session.close()
    return found


async def test_both_sessions_report_the_same_updates() -> None:
    memory = InMemoryStateStore()
    expected = await played(theirs, theirs.StreamingSession("s", state_store=memory), memory)
    async with StateStore("memory:") as store:
        assert await played(ours, ours.StreamingSession("s", state_store=store), store) == expected
