"""A session with data of every kind, and the data that callers can read."""

from __future__ import annotations

from typing import Any

from keelbolt.state import ArtifactScope, StateStore
from tests.integration.state.things import binding, conversation, event, planned, steering, task, trajectory, update

ODD: dict[str, Any] = {
    "nan": float("inf"),
    "nul": "\0",
    "big": 10**400,
    "bytes": b"\0",
    "keys": {1: (2, 3)},
    "half": "\ud800",
}


async def fill(store: StateStore) -> None:
    """Create a session with data of every kind, and one of its traces separately."""
    store.save_events(event(float(number), n=number, **ODD) for number in range(3))
    store.save_event(event(9.0, **ODD))
    for number in range(5):
        store.save_update(update(number))
        store.save_planner_event("trace", planned(number, **ODD))
    store.save_trajectory("z-older", "session", trajectory("first"))
    await store.save_trajectory("trace", "session", trajectory("second"))
    for number in (2, 1):
        await store.save_task(task(number, trace_id="trace", result=ODD))
    await store.save_steering(steering(1))
    await store.save_remote_binding(conversation("remote"))
    await store.save_remote_binding(binding(task_id="other", context_id=None))
    await store.save_memory_state("t:u:session", {"turns": [ODD]})
    await store.artifact_store.put_bytes(
        b"bytes" * 100_000, mime_type="a/b", filename="f", scope=ArtifactScope(session_id="session"), meta={"m": 1}
    )
    await store.flush()


async def everything(store: StateStore) -> list[Any]:
    """Return all data of the session that callers can read."""
    artifacts = await store.artifact_store.list(scope=ArtifactScope(session_id="session"))
    return [
        list(await store.load_history("trace")),
        list(await store.list_planner_events("trace")),
        await store.list_tasks("session"),
        await store.list_updates("session"),
        await store.list_updates("session", since_id="update-2", limit=1),
        await store.list_steering("session"),
        await store.list_traces("session"),
        await store.get_trajectory("trace", "session"),
        await store.list_bindings(router_session_id="session"),
        await store.find_binding(router_session_id="session", agent_url="https://agent", remote_skill="skill"),
        await store.load_memory_state("t:u:session"),
        artifacts,
        [await store.artifact_store.get(ref.id) for ref in artifacts],
    ]
