"""Storage outages: a strict store raises; a resilient store continues and loses no writes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from keelbolt.errors import (
    InvalidState,
    StateConflict,
    StateNotLoaded,
    StateNotSaved,
    StateTimeout,
    StorageUnreachable,
    TooLarge,
    UnknownScheme,
)
from keelbolt.kernel import Operation, Receipt
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.state import StateStore
from keelbolt.state.engine import writer
from keelbolt.state.engine.spool import MemorySpool
from keelbolt.state.engine.writes import StateWrite
from keelbolt.state.families import PAUSES
from tests.integration.state.things import binding, event, steering, task, trajectory, update


class Flaky(MemoryKernel):
    """A storage that fails and recovers on command. ``late``: commits return when this event is set."""

    away = False
    silent = False
    late: asyncio.Event | None = None

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        if self.late is not None:
            return asyncio.ensure_future(self._commit_late(super().commit(partition, *operations), self.late))
        if self.silent:
            return asyncio.get_running_loop().create_future()
        if self.away:
            raise StorageUnreachable
        return super().commit(partition, *operations)

    async def _commit_late(self, committed: Awaitable[Receipt], late: asyncio.Event) -> Receipt:
        receipt = await committed
        await late.wait()
        return receipt

    async def read_log(self, *args: Any, **kwargs: Any) -> Any:
        if self.silent:
            await asyncio.get_running_loop().create_future()
        if self.away:
            raise StorageUnreachable
        return await super().read_log(*args, **kwargs)

    async def get_many(self, *args: Any, **kwargs: Any) -> Any:
        if self.away:
            raise StorageUnreachable
        return await super().get_many(*args, **kwargs)


@pytest.fixture
async def kernel() -> Any:
    async with Flaky() as kernel:
        yield kernel


def failures(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [
        (record.event, record.method, record.trace_id, record.exception.split("(")[0])  # type: ignore[attr-defined]
        for record in caplog.records
        if record.message.startswith("statestore_")
    ]


async def test_strict_raises(kernel: Flaky, caplog: pytest.LogCaptureFixture) -> None:
    store = StateStore(kernel, policy="strict")
    await store.save_event(event())
    await store.flush()
    kernel.away = True
    with pytest.raises(StateNotSaved, match="save_planner_state could not save") as refusal:
        await store.save_planner_state("token", {})
    assert refusal.value.retryable
    assert isinstance(refusal.value.__cause__, StorageUnreachable)
    with pytest.raises(StateNotLoaded, match="load_history could not load"):
        await store.load_history("trace")
    with pytest.raises(StateNotSaved, match="save_event could not save"):
        await store.save_event(event(2.0))
    await store.flush()  # an error that was raised is not raised again
    assert failures(caplog) == [
        ("statestore_save_failed", "save_planner_state", None, "StorageUnreachable"),
        ("statestore_load_failed", "load_history", "trace", "StorageUnreachable"),
        ("statestore_save_failed", "save_event", "trace", "StorageUnreachable"),
    ]
    assert store.counters.lost == 2
    assert store.counters.load_failures == 1
    kernel.away = False
    await store.save_event(event(3.0))
    assert [found.ts for found in await store.load_history("trace")] == [1.0, 3.0]


async def test_strict_times_out(kernel: Flaky) -> None:
    store = StateStore(kernel, timeout_seconds=0.05)
    await store.save_memory_state("key", {})
    kernel.silent = True
    with pytest.raises(StateNotSaved) as refusal:
        await store.save_planner_state("token", {})
    assert isinstance(refusal.value.__cause__, StateTimeout)
    with pytest.raises(StateNotLoaded):
        await store.load_history("trace")


@pytest.mark.parametrize("gone", ["timed out", "cancelled"])
async def test_a_pause_taken_after_a_timeout_or_cancel_is_restored(kernel: Flaky, gone: str) -> None:
    store = StateStore(kernel, timeout_seconds=0.05 if gone == "timed out" else 10)
    await store.save_planner_state("token", {"kept": True})
    kernel.late = answers = asyncio.Event()
    if gone == "timed out":
        with pytest.raises(StateNotLoaded):
            await store.load_planner_state("token")
    else:
        taking = asyncio.create_task(store.load_planner_state("token"))
        while await kernel.get(store.partition, PAUSES, "token") is not None:  # noqa: ASYNC110  (it is the storage that goes on)
            await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
    kernel.late = None
    answers.set()
    await store.flush()
    assert await store.load_planner_state("token") == {"kept": True}
    assert await store.load_planner_state("token") is None


async def test_successful_loads_close_the_breaker(kernel: Flaky) -> None:
    store = StateStore(kernel, policy="resilient")
    await store.save_memory_state("key", {"n": 1})
    kernel.away = True
    for _ in range(3):
        with pytest.raises(StateNotLoaded):
            await store.load_memory_state("key")
    assert (await store.health()).breaker == "open"
    kernel.away = False
    async with asyncio.timeout(30):
        found = None
        while found is None:
            await asyncio.sleep(0.02)
            with contextlib.suppress(StateNotLoaded):  # until the breaker admits one
                found = await store.load_memory_state("key")
    assert (await store.health()).breaker == "closed"


async def test_mark_binding_terminal_raises_in_an_outage(kernel: Flaky, caplog: pytest.LogCaptureFixture) -> None:
    store = StateStore(kernel)
    await store.save_remote_binding(binding())
    kernel.away = True
    with pytest.raises(StateNotSaved, match="mark_binding_terminal"):
        await store.mark_binding_terminal(trace_id="trace", context_id="context", task_id="task")
    assert failures(caplog) == [
        ("statestore_save_failed", "mark_binding_terminal", "trace", "StorageUnreachable"),
    ]


async def test_a_trace_whose_first_write_was_lost_can_be_listed(kernel: Flaky) -> None:
    store = StateStore(kernel)
    await store.save_memory_state("key", {})
    kernel.away = True
    store.save_event(event())
    with pytest.raises(StateNotSaved):
        await store.flush()
    kernel.away = False
    store.save_event(event(2.0))
    assert await store.list_all_traces() == ["trace"]


def _turn(number: int) -> dict[str, str]:
    return {"user_message": f"question {number}", "assistant_response": f"answer {number}"}


@pytest.mark.parametrize("policy", ["strict", "resilient"])
@pytest.mark.parametrize("whose", ["ours", "penguiflow's"])
async def test_an_outage_erases_no_conversation(kernel: Flaky, policy: Any, whose: str) -> None:
    """After five turns, an outage, one turn and a recovery, at least the first five turns are stored."""
    module = import_module("keelbolt.state.memory" if whose == "ours" else "penguiflow.planner.memory")
    kind = module.ShortTermMemory if whose == "ours" else module.DefaultShortTermMemory
    config = module.ShortTermMemoryConfig(
        strategy="truncation", budget=module.MemoryBudget(full_zone_turns=10, total_max_tokens=8000)
    )
    store = StateStore(kernel, policy=policy, timeout_seconds=5.0)

    async def run(number: int, memory: Any) -> None:
        """Act as a planner: errors of hydrate and persist are logged, and the turn continues."""
        with contextlib.suppress(StateNotLoaded):
            await memory.hydrate(store, "key")
        await memory.add_turn(module.ConversationTurn(**_turn(number)))
        with contextlib.suppress(StateNotLoaded, StateNotSaved):
            await memory.persist(store, "key")

    for number in range(5):
        await run(number, kind(config=config))
    kernel.away = True
    during = kind(config=config)
    await run(5, during)
    kernel.away = False
    async with asyncio.timeout(30):
        while (await store.health()).breaker != "closed":
            await asyncio.sleep(0.02)
            with contextlib.suppress(StateNotLoaded):
                await store.load_memory_state("other")
    await run(6, during)
    state = await store.load_memory_state("key")
    assert state is not None
    questions = [turn["user_message"] for turn in state["turns"]]
    assert questions[:5] == [f"question {number}" for number in range(5)]
    assert "question 6" in questions
    assert ("question 5" in questions) == (whose == "ours")  # penguiflow's memory drops its turn when it hydrates
    await store.close()


async def test_a_memory_does_not_overwrite_one_that_could_not_be_read(kernel: Flaky) -> None:
    store = StateStore(kernel, policy="strict")
    await store.save_memory_state("key", {"n": 1})
    kernel.away = True
    with pytest.raises(StateNotLoaded):
        await store.load_memory_state("key")
    kernel.away = False
    with pytest.raises(StateNotSaved, match="could not load"):
        await store.save_memory_state("key", {})
    assert await store.load_memory_state("key") == {"n": 1}
    await store.save_memory_state("key", {"n": 2})
    assert await store.load_memory_state("key") == {"n": 2}


async def test_a_memory_is_saved_with_the_version_that_was_read(kernel: Flaky) -> None:
    store = StateStore(kernel)
    assert await store.load_memory_version("key") == (None, 0)
    await store.save_memory_state("key", {"n": 1}, if_version=0)
    with pytest.raises(StateConflict):
        await store.save_memory_state("key", {"n": 2}, if_version=0)
    state, version = await store.load_memory_version("key")
    await store.save_memory_state("key", {"n": 3}, if_version=version)
    with pytest.raises(StateConflict):
        await store.save_memory_state("key", {"n": 4}, if_version=version)
    assert (state, await store.load_memory_state("key")) == ({"n": 1}, {"n": 3})
    with pytest.raises(InvalidState, match="if_version"):
        await store.save_memory_state("key", {}, if_version=-1)


@pytest.mark.parametrize("in_files", [False, True])
async def test_a_save_with_a_version_does_not_wait_in_the_spool(kernel: Flaky, tmp_path: Path, in_files: bool) -> None:
    """Its check needs the storage: an acknowledged save could still be refused when the spool is replayed."""
    store = StateStore(kernel, policy="resilient", spool=tmp_path if in_files else None)
    await store.save_memory_state("key", {"n": 1}, if_version=0)
    kernel.away = True
    for other in (False, True):  # also while other saves wait in the spool
        if other:
            await store.save_event(event())
        for version in (0, 1):
            with pytest.raises(StateNotSaved) as failure:
                await store.save_memory_state("key", {"n": 2}, if_version=version)
            assert failure.value.retryable
    kernel.away = False
    await store.close()
    assert await StateStore(kernel).load_memory_version("key") == ({"n": 1}, 1)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "3600", True])
def test_pause_seconds_is_checked(seconds: Any) -> None:
    with pytest.raises(InvalidState, match="pause_seconds must be more than 0"):
        StateStore("memory:", pause_seconds=seconds)


async def test_resilient_continues_and_replays_in_order(kernel: Flaky, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "keelbolt.state")
    store = StateStore(kernel, policy="resilient", types="own")
    one = task()
    await store.save_task(one)
    await store.save_update(update(0))
    await store.flush()
    kernel.away = True
    for number in range(1, 10):
        await store.save_update(update(number))
        one.progress = {"step": number}
        await store.save_task(one)
        await store.save_event(event(float(number)))
        await store.save_planner_state("token", {"step": number})
    await store.save_steering(steering(1))
    await store.save_trajectory("trace", "session", trajectory())
    for load in (store.load_history, store.list_tasks, store.load_planner_state, store.list_traces):
        with pytest.raises(StateNotLoaded):
            await load("trace")
    health = await store.health()
    assert (health.policy, health.in_spool, health.breaker) == ("resilient", 38, "open")
    assert {entry[:2] for entry in failures(caplog)} >= {
        ("statestore_save_failed", "save_task"),
        ("statestore_load_failed", "load_history"),
    }
    kernel.away = False
    await store.save_update(update(10))  # the storage is back, and earlier writes wait
    await _until_empty(store)
    assert [found.content["step"] for found in await store.list_updates("session")] == list(range(11))
    assert [found.progress for found in await store.list_tasks("session")] == [{"step": 9}]
    assert await store.load_planner_state("token") == {"step": 9}
    assert len(await store.load_history("trace")) == 9
    assert store.counters.lost == 0
    assert store.counters.replayed == 39
    await store.close()


async def test_resilient_does_not_wait_for_a_silent_storage(kernel: Flaky) -> None:
    store = StateStore(kernel, policy="resilient", timeout_seconds=0.05)
    await store.save_memory_state("key", {"a": 1})
    kernel.silent = True
    await store.save_planner_state("token", {"kept": True})
    with pytest.raises(StateNotLoaded):
        await store.load_history("trace")
    kernel.silent = False
    await _until_empty(store)
    assert await store.load_planner_state("token") == {"kept": True}
    await store.close()


async def test_a_replay_does_not_undo_later_saves(kernel: Flaky) -> None:
    """The first of two saves hangs and the second is stored; the replay of the first is outdated."""
    store = StateStore(kernel, policy="resilient", timeout_seconds=0.05)
    await store.save_memory_state("other", {})
    kernel.silent = True
    first = store.save_memory_state("key", {"n": 1})
    also = store.save_memory_state("other", {"n": 1})
    kernel.silent = False
    await store.save_memory_state("key", {"n": 2})
    await first
    await also
    await _until_empty(store)
    assert await store.load_memory_state("key") == {"n": 2}
    assert await store.load_memory_state("other") == {"n": 1}
    await store.close()


async def test_a_pause_that_a_full_spool_refuses_raises(kernel: Flaky, tmp_path: Path) -> None:
    """A save that the spool refuses is lost; for a pause or a task the caller gets an error."""
    spool = tmp_path / "spool"
    store = StateStore(kernel, policy="resilient", spool=spool)
    await store.save_event(event())
    await store.flush()
    kernel.away = True
    spool.rmdir()
    await store.save_remote_binding(binding())
    with pytest.raises(StateNotSaved):
        await store.save_planner_state("token", {})
    with pytest.raises(StateNotSaved):
        await store.save_task(task())
    assert store.counters.lost == 3
    kernel.away = False
    await store.close()


async def test_a_spool_survives_its_process(kernel: Flaky, tmp_path: Path) -> None:
    store = StateStore(kernel, policy="resilient", spool=tmp_path, types="own")
    await store.save_task(task())
    kernel.away = True
    await store.save_task(task(2))
    await store.save_event(event(odd=b"\0"))
    await store.save_planner_state("token", {"a": 1})
    store.desk.host.writer.give_up()  # type: ignore[union-attr]
    (file,) = tmp_path.iterdir()
    with file.open("ab") as half:
        half.write(b'{"partition": "half a li')
    kernel.away = False
    async with StateStore(kernel, policy="resilient", spool=tmp_path, types="own") as later:
        await later.flush()
        assert [found.task_id for found in await later.list_tasks("session")] == ["task-1", "task-2"]
        assert [found.payload for found in await later.load_history("trace")] == [{"odd": b"\0"}]
        assert await later.load_planner_state("token") == {"a": 1}
    assert list(tmp_path.iterdir()) == []


async def test_a_replay_does_not_undo_saves_of_another_process(kernel: Flaky, tmp_path: Path) -> None:
    away = StateStore(kernel, policy="resilient", spool=tmp_path)
    await away.save_task(task())
    kernel.away = True
    older = task(progress={"n": 1})
    older.context_snapshot.query = "older"
    await away.save_task(older)
    await away.save_memory_state("key", {"n": 1})
    await away.save_trajectory("trace", "session", trajectory("older"))
    await away.save_memory_state("other", {"n": 1})
    kernel.away = False
    elsewhere = StateStore(kernel, types="own")
    await elsewhere.save_task(task(progress={"n": 2}))
    await elsewhere.save_memory_state("key", {"n": 2})
    await elsewhere.save_trajectory("trace", "session", trajectory("newer"))
    await _until_empty(away)
    assert await elsewhere.load_memory_state("key") == {"n": 2}
    assert await elsewhere.load_memory_state("other") == {"n": 1}
    assert (await elsewhere.get_trajectory("trace", "session")).query == "newer"  # type: ignore[union-attr]
    (found,) = await elsewhere.list_tasks("session")
    assert (found.progress, found.context_snapshot.query) == ({"n": 2}, None)
    await away.close()


async def test_a_write_stored_after_its_timeout_is_not_replayed(kernel: Flaky) -> None:
    """Otherwise the replay would restore a pause that timed out, was stored and was taken."""
    store = StateStore(kernel, policy="resilient", timeout_seconds=0.05)
    await store.save_memory_state("key", {})
    kernel.late = answers = asyncio.Event()
    saving = asyncio.ensure_future(store.save_planner_state("token", {"kept": True}))
    kernel.late, kernel.away = None, True
    await saving
    assert (await store.health()).in_spool == 1
    answers.set()
    kernel.away = False
    other = StateStore(kernel)
    assert await other.load_planner_state("token") == {"kept": True}
    await _until_empty(store)
    assert await other.load_planner_state("token") is None


async def test_a_pause_expires_in_the_spool(kernel: Flaky) -> None:
    now = [1000.0]
    store = StateStore(kernel, policy="resilient", pause_seconds=60)
    recovery = store.desk.host.writer.recovery  # type: ignore[union-attr]
    recovery._clock = lambda: now[0]
    await store.save_memory_state("key", {})
    kernel.away = True
    await store.save_planner_state("old", {})
    now[0] += 61
    await store.save_planner_state("new", {"kept": True})
    kernel.away = False
    await _until_empty(store)
    assert await store.load_planner_state("old") is None
    assert await store.load_planner_state("new") == {"kept": True}


def test_a_spool_needs_a_directory_and_the_resilient_policy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidState, match="as the spool directory"):
        StateStore("memory:", policy="resilient", spool=tmp_path / "file")
    with pytest.raises(InvalidState, match="a spool requires policy='resilient'"):
        StateStore("memory:", spool=tmp_path)


@pytest.mark.parametrize("policy", ["strict", "resilient"])
async def test_invalid_values_raise_under_both_policies(kernel: Flaky, policy: Any) -> None:
    store = StateStore(kernel, policy=policy)
    with pytest.raises(StateNotSaved) as refusal:
        await store.save_memory_state("key", {"big": "x" * (17 * 1024 * 1024)})
    assert isinstance(refusal.value.__cause__, TooLarge)
    assert not refusal.value.retryable
    with pytest.raises(InvalidState, match=r"the event 'node_start' of trace 'trace' at 1\.0 has"):
        await store.save_event(event(big="x" * (17 * 1024 * 1024)))
    large = trajectory("x" * (17 * 1024 * 1024))
    with pytest.raises(StateNotSaved):
        await store.save_trajectory("trace", "session", large)
    await store.save_event(event(2.0))
    assert [found.ts for found in await store.load_history("trace")] == [2.0]
    await store.close()


def test_there_are_two_policies() -> None:
    with pytest.raises(InvalidState, match="policy must be 'strict' or 'resilient', not 'brave'"):
        StateStore("memory:", policy="brave")  # type: ignore[arg-type]
    with pytest.raises(UnknownScheme):
        StateStore("nowhere://")


async def test_a_closed_store_raises(url: str) -> None:
    store = StateStore(url)
    await store.save_event(event())
    await store.close()
    await store.close()
    with pytest.raises(StateNotSaved, match="closed"):
        await store.save_event(event())
    for load in (store.load_history, store.load_planner_state):
        with pytest.raises(StateNotLoaded, match="closed"):
            await load("trace")


async def test_a_storage_that_can_not_be_opened(tmp_path: Path) -> None:
    """The store opens the storage as soon as that is possible."""
    folder = tmp_path / "later"
    strict = StateStore(f"sqlite:///{folder}/state.db")
    with pytest.raises(StateNotSaved):
        await strict.save_planner_state("token", {})
    assert not (await strict.health()).writes
    resilient = StateStore(f"sqlite:///{folder}/state.db", policy="resilient")
    await resilient.save_planner_state("token", {"kept": True})
    folder.mkdir()
    await _until_empty(resilient)
    assert await strict.load_planner_state("token") == {"kept": True}
    await strict.close()
    await resilient.close()


async def _until_empty(store: StateStore) -> None:
    async with asyncio.timeout(30):
        while (await store.health()).in_spool:  # noqa: ASYNC110  (it is another loop that empties it)
            await asyncio.sleep(0.02)


class TinySpool(MemorySpool):
    def __init__(self) -> None:
        super().__init__(limit=1)


async def test_lost_saves_do_not_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the spool is full, the process remembers the errors of lost saves, but not their content."""
    monkeypatch.setattr(writer, "MemorySpool", TinySpool)
    store = StateStore(f"sqlite:///{tmp_path}/missing/state.db", policy="resilient")
    for number in range(3):
        store.save_event(event(float(number), trace="lost"))  # no caller awaits it
    await store.flush()
    assert store.counters.lost == 3
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, StateWrite) and each.trace_id == "lost"]
    await store.close()
