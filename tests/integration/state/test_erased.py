"""Sessions that are erased while a process uses them, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from keelbolt.data import Subject, erase
from keelbolt.errors import LeaseLost, StateErased
from keelbolt.kernel import Kernel
from keelbolt.state import StateStore
from keelbolt.state.sessions import StreamingSession
from tests.integration.data.filling import rows_with
from tests.integration.state.session_parts import forever, saves
from tests.integration.state.things import task

ERASED = Subject(kind="session", id="erased", tenant="default")


async def rows(store: StateStore) -> list[str]:
    found: list[str] = await store.host.ask(lambda kernel: rows_with(kernel, "canary", "erased"))
    return found


async def erase_it(store: StateStore) -> None:
    async def work(kernel: Kernel) -> None:
        await erase(kernel, ERASED)

    await store.host.ask(work)


async def test_late_saves_are_refused(store: StateStore) -> None:
    """Every save of a process that used the session raises StateErased until it loads the session's tasks again."""
    for save in saves(store):
        await save()
    assert await rows(store)
    await erase_it(store)
    for _ in range(2):
        ends = await asyncio.gather(*(save() for save in saves(store)), return_exceptions=True)
        assert [type(end) for end in ends] == [StateErased] * len(ends)
    assert await rows(store) == []
    assert await store.list_tasks("erased") == []
    task, update, *_ = saves(store)
    await task()
    await update()
    assert len(await store.list_tasks("erased")) == 1


async def test_late_saves_are_refused_if_the_process_uses_many_sessions(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process remembers a limited number of sessions; it forgets those that it has not used for the longest time."""
    monkeypatch.setattr("keelbolt.state.store_context.KNOWN", 4)
    _, update, *_ = saves(store)
    for number in range(6):
        await update()
        await store.save_task(task(1, f"session-{number}"))
    await erase_it(store)
    with pytest.raises(StateErased):
        await update()


async def test_late_saves_do_not_reach_a_new_session_with_the_same_id(shared_url: str) -> None:
    """A process that first uses the session after the erasure can write; a process that used it before can't."""
    async with (
        StateStore(shared_url, types="own") as before,
        StateStore(shared_url, types="own", exit_seconds=4.0) as after,
    ):
        _, update, *_ = saves(before)
        await update()
        await erase_it(after)
        for _ in range(2):
            await saves(after)[1]()
            with pytest.raises(StateErased):
                await update()
        assert len(await after.list_updates("erased")) == 2


async def test_an_open_session_does_not_restore_erased_data(store: StateStore) -> None:
    """The first write stops the tasks of the session, and its context is not written again."""
    async with StreamingSession("erased", state_store=store) as session:
        await session.update_context(llm_context={"text": "canary"})
        await session.spawn_task(forever, task_id="t", description="canary")
        await store.flush()
        await erase_it(store)
        with pytest.raises(LeaseLost):
            await session._parts.tasks.change("t", progress={"text": "canary"})
        with pytest.raises(StateErased):
            await session.update_context(llm_context={"text": "canary"})
    assert await rows(store) == []


async def test_a_session_with_only_a_context_is_erased(store: StateStore) -> None:
    """Also when it was opened again after an erasure, by a process that had used it before."""
    for _ in range(2):
        async with StreamingSession("erased", state_store=store) as session:
            await session.update_context(llm_context={"text": "canary"})
        assert await rows(store)
        await erase_it(store)
        assert await rows(store) == []


async def test_a_save_that_no_caller_awaits_is_dropped(store: StateStore) -> None:
    """Later calls for other data do not raise the error of the dropped save."""
    task, update, *_ = saves(store)
    await task()
    await erase_it(store)
    update()
    await store.save_memory_state("other", {"a": 1})
    await store.flush()
    assert await rows(store) == []
