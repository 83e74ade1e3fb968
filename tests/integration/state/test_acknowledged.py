"""An awaited save is committed. Saves with write_behind=True are committed when the program ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from keelbolt.errors import InvalidState, StateNotSaved
from keelbolt.state import StateStore
from tests.integration.state.children import start
from tests.integration.state.things import event, planned, trajectory, update


async def _kept(url: str, count: int) -> list[int]:
    """Return how many of the first items of each kind are stored."""
    wanted = set(range(count))
    async with StateStore(url) as store:
        events = {int(found.ts) for found in await store.load_history("trace")}
        updates = {found.content["step"] for found in await store.list_updates("session", limit=count + 10)}
        planner_events = {found.trajectory_step for found in await store.list_planner_events("trace")}
        traces = {int(trace.split("-")[1]) for trace in await store.list_traces("session", limit=count + 10)}
    return [len(found & wanted) for found in (events, updates, planner_events, traces)]


@pytest.mark.parametrize("ending", ["killed", "SIGTERM", "os._exit"])
def test_acknowledged_saves_survive_the_end_of_the_process(shared_url: str, ending: str) -> None:
    child = start("acknowledges", shared_url, ending)
    assert child.stdout is not None
    count = 0
    while count < 20:
        count = int(child.stdout.readline()) + 1
    if ending != "os._exit":
        child.send_signal(signal.SIGKILL if ending == "killed" else signal.SIGTERM)
    rest, _ = child.communicate(timeout=60)
    count = max([count, *(int(line) + 1 for line in rest.split("\n")[:-1])])
    assert asyncio.run(_kept(shared_url, count)) == [count] * 4


def test_write_behind_saves_survive_sigterm(shared_url: str) -> None:
    child = start("acknowledges", shared_url, "SIGTERM", "behind")
    assert child.stdout is not None
    while child.stdout.readline() != "19\n":
        pass
    time.sleep(0.3)  # Python would handle a signal that precedes the wait of an idle loop only at the next event
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGTERM
    assert asyncio.run(_kept(shared_url, 20)) == [20] * 4


def test_a_signal_handler_of_the_program_is_not_replaced(file_url: str) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    try:
        store = StateStore(file_url, write_behind=True)
        os.kill(os.getpid(), signal.SIGTERM)
        asyncio.run(store.close())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


@pytest.mark.parametrize("behind", ["", "behind"])
def test_a_forked_child_keeps_its_saves(shared_url: str, behind: str) -> None:
    child = start("forked", shared_url, behind)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err

    async def look() -> int:
        async with StateStore(shared_url) as store:
            return len(await store.load_history("trace"))

    assert asyncio.run(look()) == 1


async def test_an_unusable_storage_raises_at_the_await(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        unreachable = f"postgresql://no_user@127.0.0.1:{closed.getsockname()[1]}/none"
        for url in (unreachable, f"sqlite:///{tmp_path}/missing/state.db"):
            store = StateStore(url, timeout_seconds=5.0)
            for saving in (
                store.save_event(event()),
                store.save_events([event()]),
                store.save_update(update(1)),
                store.save_planner_event("trace", planned(1)),
                store.save_trajectory("trace", "session", trajectory()),
            ):
                with pytest.raises(StateNotSaved):
                    await saving
            await store.close()


def test_lost_write_behind_saves_raise_at_the_next_call_and_at_exit(tmp_path: Path) -> None:
    child = start("unreachable", f"sqlite:///{tmp_path}/missing/state.db")
    out, err = child.communicate(timeout=60)
    assert out == ""
    assert child.returncode == 0
    lines = [line for line in err.splitlines() if line.startswith("keelbolt: ")]
    assert len(lines) == 1, err
    assert "saved item" in lines[0]
    assert "save_event could not save" in lines[0]


async def test_several_events_are_saved_whole_or_not_at_all(file_url: str) -> None:
    async with StateStore(file_url) as store:
        events = [event(float(number)) for number in range(450)]
        events[420] = event(420.0, big="x" * (17 * 1024 * 1024))
        with pytest.raises(InvalidState, match=r"event 420 of this call: .* at 420\.0 .*no event .* was saved"):
            await store.save_events_bulk(events)
        assert await store.load_history("trace") == []
        assert await store.list_all_traces() == []
        del events[420]
        await store.save_events_bulk(events)
        assert len(await store.load_history("trace")) == 449
        traces = [event(1.0, trace=f"trace-{number}") for number in range(450)]
        await store.save_events_bulk(traces)
        assert len(await store.list_all_traces(1000)) == 451
        with pytest.raises(InvalidState, match="at most 500 traces"):
            await store.save_events_bulk([event(1.0, trace=f"more-{number}") for number in range(501)])
        await store.save_events_bulk([])
