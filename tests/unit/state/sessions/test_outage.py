"""Sessions of a resilient store during an outage: they continue, and the storage gets all writes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keelbolt.errors import StateStoreError, StorageUnreachable
from keelbolt.state import StateStore
from keelbolt.state.sessions import ContextPatch, MergeStrategy, StreamingSession, TaskResult, TaskRuntime
from keelbolt.state.types import TaskStatus


async def pipeline(runtime: TaskRuntime) -> TaskResult:
    return TaskResult(payload=1, context_patch=ContextPatch(task_id=runtime.state.task_id))


@pytest.fixture
def away(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the storage unavailable for the sessions' own reads and writes."""
    host = type(store.host.host)

    def refuse(*_args: Any) -> Any:
        raise StorageUnreachable

    def leave() -> None:
        monkeypatch.setattr(host, "_ask", refuse)
        monkeypatch.setattr(host, "begin", refused)

    def refused(*_args: Any, **_options: Any) -> Any:
        from concurrent.futures import Future

        future: Future[Any] = Future()
        future.set_exception(StorageUnreachable())
        return future

    return leave


async def test_a_resilient_session_continues(away: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates and merges work at once and are stored before the next change; operations that need the store raise."""
    async with StateStore("memory:", types="own", policy="resilient") as store:
        session = StreamingSession("s", state_store=store)
        await session.hydrate()
        away()
        await session.update_context(llm_context={"a": 1})
        await session.run_task(pipeline, task_id="t")
        assert (session.context_version, list(session.get_background_results())) == (1, ["t"])
        with pytest.raises(StorageUnreachable):
            await session.apply_context_patch(patch=ContextPatch(task_id="x"), strategy=MergeStrategy.HUMAN_GATED)
        monkeypatch.undo()
        await session.apply_context_patch(patch=ContextPatch(task_id="u"))
        await session.close()
        async with StreamingSession("s", state_store=store) as again:
            assert (again.context_version, again.get_context()[0]) == (1, {"a": 1})
            assert list(again.get_background_results()) == ["t", "u"]
            assert [task.status for task in await again.list_tasks()] == [TaskStatus.COMPLETE]


async def test_a_strict_session_raises(
    session: StreamingSession, away: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the storage, every change raises and has no effect."""
    away()
    with pytest.raises(StorageUnreachable):
        await session.update_context(llm_context={"a": 1})
    with pytest.raises((StorageUnreachable, StateStoreError)):
        await session.run_task(pipeline)
    monkeypatch.undo()
