"""Commits follow the order of calls, and every call is saved: without an await, across loops, and at exit."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from keelbolt.data import Subject, erase
from keelbolt.errors import StateErased
from keelbolt.kernel import Operation, Receipt, open_storage
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.state import StateStore, TaskStatus
from tests.integration.state.children import run, start
from tests.integration.state.things import event, planned, task, trajectory, update


async def test_the_order_of_calls_is_kept(store: StateStore) -> None:
    """Saves keep their order, awaited or not, as tasks or not, and across families."""
    one = task()
    waiting = []
    for number in range(60):
        saving = store.save_update(update(number))
        if number % 3 == 0:
            waiting.append(asyncio.create_task(saving))
        elif number % 7 == 0:
            await saving
        one.progress = {"step": number}
        saving = store.save_task(one)
        if number % 11 == 0:
            waiting.append(asyncio.create_task(saving))
        one.progress = {"changed": "after the call"}
    assert [found.content["step"] for found in await store.list_updates("session")] == list(range(60))
    assert [found.progress for found in await store.list_tasks("session")] == [{"step": 59}]
    await asyncio.gather(*waiting)


async def test_a_refused_save_beside_an_older_one_does_not_bring_it_back() -> None:
    """Saves of one commit are retried alone if one of them is refused; meanwhile a later save was committed."""
    async with MemoryKernel() as kernel:
        store = StateStore(kernel, types="own", sweep_every=None)
        await store.save_trajectory("gone", "erased", trajectory("first"))
        await erase(kernel, Subject(kind="session", id="erased"))
        before = store.save_trajectory("other", "session", trajectory("before"))  # the next two wait for it
        older = store.save_trajectory("trace", "session", trajectory("older"))
        refused = store.save_trajectory("gone", "erased", trajectory("late"))
        await asyncio.sleep(0)  # the commit of these two is under way
        newer = store.save_trajectory("trace", "session", trajectory("newer"))
        urgent = store.save_task(task())  # does not wait for the commit under way, nor does the save before it
        for saving in (before, older, newer, urgent):
            await saving
        with pytest.raises(StateErased):
            await refused
        assert (await store.get_trajectory("trace", "session")).query == "newer"
        await store.close()


async def test_a_read_sees_what_was_called_before_it(store: StateStore) -> None:
    for number in range(5):
        store.save_event(event(float(number)))
        store.save_planner_event("trace", planned(number))
        assert len(await store.load_history("trace")) == number + 1
        assert len(await store.list_planner_events("trace")) == number + 1


async def test_pauses_and_tasks_are_committed_when_they_are_awaited(shared_url: str) -> None:
    async with StateStore(shared_url) as store, StateStore(shared_url) as other:
        await store.save_planner_state("token", {"a": 1})
        assert await other.load_planner_state("token") == {"a": 1}
        done = task()
        await store.save_task(done)
        done.update_status(TaskStatus.COMPLETE)
        await store.save_task(done)
        assert [found.status.value for found in await other.list_tasks("session")] == ["COMPLETE"]


async def test_concurrent_saves_share_commits() -> None:
    """Saves share commits regardless of the number of their records."""

    class Counting(MemoryKernel):
        commits = 0

        def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
            self.commits += 1
            return super().commit(partition, *operations)

    async with Counting() as kernel:
        store = StateStore(kernel)
        for number in range(800):
            store.save_trajectory(f"trace-{number}", f"session-{number}", trajectory())
        assert len(await store.list_all_traces(1000)) == 800
        assert kernel.commits < 10


def test_the_calls_of_each_thread_are_kept_in_order(file_url: str) -> None:
    """This holds for threads with their own loops and for a thread without a loop."""
    store = StateStore(file_url)

    def save(thread: int) -> None:
        for number in range(50):
            store.save_update(update(number, session=f"session-{thread}"))

    async def saves(thread: int) -> None:
        save(thread)

    def alone(thread: int) -> None:
        if thread == 3:
            save(thread)
        else:
            asyncio.run(saves(thread))

    threads = [threading.Thread(target=alone, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def look() -> None:
        async with store:
            for thread in range(4):
                found = await store.list_updates(f"session-{thread}")
                assert [one.content["step"] for one in found] == list(range(50))

    asyncio.run(look())


async def test_a_save_that_is_cancelled_is_saved(store: StateStore) -> None:
    waiting = asyncio.ensure_future(store.save_memory_state("key", {"a": 1}))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await store.load_memory_state("key") == {"a": 1}


async def test_a_store_on_an_open_kernel(url: str) -> None:
    async with open_storage(url) as kernel, StateStore(kernel, types="own") as store:
        store.save_event(event())
        await store.save_task(task())
        assert len(await store.load_history("trace")) == 1
        assert [found.task_id for found in await store.list_tasks("session")] == ["task-1"]
        assert (await kernel.health()).writes


def test_a_program_that_ends_at_once_loses_nothing(shared_url: str) -> None:
    run("leaves", shared_url)

    async def look() -> None:
        async with StateStore(shared_url) as store:
            assert len(await store.load_history("trace")) == 40
            assert [found.content["step"] for found in await store.list_updates("session")] == list(range(40))
            assert len(await store.list_planner_events("trace")) == 40
            assert len(await store.list_tasks("session")) == 1
            assert await store.list_traces("session") == ["trace"]
            assert await store.load_planner_state("token") == {"kept": True}

    asyncio.run(look())


def test_a_dropped_store_finishes_and_ends_its_thread(file_url: str) -> None:
    others = set(threading.enumerate())
    store = StateStore(file_url)
    store.save_event(event())
    (thread,) = (thread for thread in set(threading.enumerate()) - others if thread.name == "keelbolt-state")
    del store
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()

    async def look() -> None:
        async with StateStore(file_url) as store:
            assert len(await store.load_history("trace")) == 1

    asyncio.run(look())


def test_one_store_in_several_loops(shared_url: str) -> None:
    assert run("loops", shared_url) == "3"


def test_a_store_works_after_fork(shared_url: str) -> None:
    run("forks", shared_url)

    async def look() -> None:
        async with StateStore(shared_url) as store:
            assert await store.load_memory_state("parent") == {"n": 2}
            assert await store.load_memory_state("child") == (None if "sqlite" in shared_url else {"n": 2})

    asyncio.run(look())


def test_two_processes_take_a_pause_once(shared_url: str) -> None:
    count = 30

    async def fill() -> None:
        async with StateStore(shared_url) as store:
            await asyncio.gather(*(store.save_planner_state(f"token-{number}", {}) for number in range(count)))

    asyncio.run(fill())
    racers = [start("takes", shared_url, str(count)) for _ in range(2)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    taken = [racer.communicate("go\n", timeout=60)[0].split() for racer in racers]
    assert sorted(map(int, taken[0] + taken[1])) == list(range(count))


def test_two_processes_add_to_one_conversation(shared_url: str) -> None:
    """Every turn whose persist returned is stored."""
    count = 50
    writers = [start("remembers", shared_url, who, str(count)) for who in "ab"]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err

    async def look() -> set[str]:
        async with StateStore(shared_url) as store:
            state = await store.load_memory_state("key")
            assert state is not None
            return {turn["user_message"] for turn in state["turns"]}

    assert asyncio.run(look()) == {f"{who}-{number}" for who in "ab" for number in range(count)}


def test_exit_does_not_wait_for_an_unreachable_storage(tmp_path: Path) -> None:
    """This holds for a storage that refuses connections and for one that accepts them and does not respond."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for port in (silent.getsockname()[1], closed.getsockname()[1]):
            url = f"postgresql://no_user@127.0.0.1:{port}/none"
            assert run("gone", url, "strict") == "done"
            assert run("gone", url, "resilient", str(tmp_path / str(port))) == "done"
            lines = [line for file in (tmp_path / str(port)).iterdir() for line in file.read_text().splitlines()]
            assert len(lines) == 6
