"""Sweeps remove only the data that the policy allows, on every engine."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from keelbolt.errors import InvalidState, InvalidValue
from keelbolt.kernel import Append, Draft, Enqueue, Kernel, Operation, Put, Scope, Trim, open_storage
from keelbolt.state import ArtifactRetentionConfig, ArtifactScope, StateRetention, StateStore, StateSwept, TaskStatus
from keelbolt.state.codec import encode
from keelbolt.state.events.streams import read_all
from keelbolt.state.families import EVENTS, FAMILIES, INBOXES, RUNS, SESSIONS, SWEEPS, TASK_ORDER, TRACES
from keelbolt.state.inspection import history, tenants
from keelbolt.state.retention import StateSweeper, _Sweep, sweep_state, trim
from tests.integration.state.things import binding, event, planned, steering, task, trajectory, update

DAY = 86400.0
LONG_AGO = datetime.now(UTC) - timedelta(days=400)


async def swept(store: StateStore, *, later: float = 0.0, **policy: Any) -> StateSwept:
    """Sweep as if this many seconds had passed."""

    async def run(kernel: Kernel) -> StateSwept:
        scope = kernel.scoped(store.partition)
        return await sweep_state(scope, StateRetention(**policy), clock=lambda: time.time() + later)

    return await store.host.ask(run)


async def fill(store: StateStore) -> None:
    for number in range(10):
        store.save_event(event(float(number), n=number))
        store.save_planner_event("trace", planned(number))
        store.save_update(update(number))
        store.save_steering(steering(number))
        await store.save_trajectory(f"trace-{number}", "session", trajectory())
        await store.flush()  # each iteration writes separate entries
        if number == 4:
            for word in ("kv:v1:t:u:session:session:ns:key", "memory"):
                await store.save_memory_state(word, {})
    await store.save_task(task(1, status=TaskStatus.COMPLETE, updated_at=LONG_AGO))
    await store.save_task(task(2, status=TaskStatus.RUNNING, updated_at=LONG_AGO))
    await store.save_task(task(3, status=TaskStatus.COMPLETE))
    await store.save_remote_binding(binding(router_session_id="session"))
    for number in range(3):
        await store.artifact_store.put_text(f"{number}", scope=ArtifactScope(session_id="session"))


async def counts(store: StateStore) -> dict[str, int]:
    return {
        "events": len(await store.load_history("trace")),
        "planner_events": len(await store.list_planner_events("trace")),
        "updates": len(await store.list_updates("session")),
        "steering": len(await store.list_steering("session")),
        "tasks": len(await store.list_tasks("session")),
        "trajectories": len(await store.list_traces("session")),
        "bindings": len(await store.list_bindings(router_session_id="session")),
        "artifacts": len(await store.artifact_store.list()),
    }


async def test_an_empty_policy_removes_nothing(store: StateStore) -> None:
    await fill(store)
    before = await counts(store)
    assert not await store.sweep(StateRetention())
    assert not await swept(store, **dict.fromkeys(("events", "updates", "trajectories", "artifacts"), DAY))
    assert await counts(store) == before


async def test_the_newest_entries_stay(store: StateStore) -> None:
    await fill(store)
    gone = await store.sweep(
        StateRetention(
            max_events=3, max_planner_events=4, max_updates=2, max_steering=1, max_trajectories=2, max_artifacts=1
        )
    )
    left = await counts(store)
    assert (left["events"], left["planner_events"], left["updates"], left["steering"]) == (3, 4, 2, 1)
    assert (left["trajectories"], left["artifacts"]) == (2, 1)
    assert [found.payload["n"] for found in await store.load_history("trace")] == [7, 8, 9]
    assert await store.list_traces("session") == ["trace-9", "trace-8"]
    assert (gone.events, gone.updates, gone.trajectories, gone.artifacts) == (7, 8, 8, 2)


async def test_events_of_one_entry_are_removed_together(store: StateStore) -> None:
    store.save_events(event(float(number)) for number in range(10))
    await store.flush()
    store.save_events(event(float(number)) for number in range(10, 20))
    await store.flush()
    await store.sweep(StateRetention(max_events=12))
    assert len(await store.load_history("trace")) == 20
    await store.sweep(StateRetention(max_events=10))
    assert len(await store.load_history("trace")) == 10


async def test_old_data_is_removed(store: StateStore) -> None:
    """Running tasks and values of tools stay; cursors and new entries still work."""
    await fill(store)
    assert (await swept(store, tasks=DAY)).tasks == 1
    assert [found.task_id for found in await store.list_tasks("session")] == ["task-2", "task-3"]
    ages = ("events", "planner_events", "updates", "steering", "trajectories", "bindings", "memory", "artifacts")
    await swept(store, later=2 * DAY, **dict.fromkeys(ages, DAY))
    left = await counts(store)
    assert left == dict.fromkeys(left, 0) | {"tasks": 2}
    assert await store.load_memory_state("memory") is None
    assert await store.load_memory_state("kv:v1:t:u:session:session:ns:key") == {}
    await store.save_update(update(11))
    assert [found.update_id for found in await store.list_updates("session", since_id="update-3")] == ["update-11"]


async def test_ended_traces_and_sessions_are_removed(store: StateStore) -> None:
    """Removed traces and sessions can be used again, also by the process that used them before."""
    await fill(store)
    gone = await swept(store, later=2 * DAY, events=DAY, planner_events=DAY, bindings=DAY, trajectories=DAY)
    assert gone.traces == 0  # its binding was removed after the traces were checked
    gone = await swept(store, later=2 * DAY, events=DAY, sessions=DAY)
    assert (gone.traces, gone.sessions) == (11, 1)
    assert await left_of(store, TRACES) == await left_of(store, SESSIONS) == 0
    assert dict.fromkeys(await counts(store), 0) == await counts(store)
    await store.save_update(update(1))
    assert len(await store.list_updates("session")) == 1


async def left_of(store: StateStore, collection: str) -> int:
    from keelbolt.kernel import Query

    found = await store.host.ask(
        lambda kernel: kernel.find(store.partition, Query(collection, order="seen"), limit=100)
    )
    return len(found.records)


async def test_an_interrupted_sweep_continues(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.state.retention.PAGE", 2)
    for number in range(6):
        await store.save_update(update(1, session=f"s{number}"))
        await store.flush()
    looked: list[str] = []

    async def failing(scope: Any, log: str, stream: str, **limits: Any) -> int:
        looked.append(stream)
        if looked.count(stream) == 1 and stream == "s3":
            raise ConnectionError
        return await trim(scope, log, stream, **limits)

    monkeypatch.setattr("keelbolt.state.retention.trim", failing)
    with pytest.raises(ConnectionError):
        await swept(store, max_updates=0)
    assert looked == ["s0", "s1", "s2", "s3"]
    assert (await swept(store, max_updates=0)).updates == 3
    assert looked[4:] == ["s1", "s2", "s3", "s4", "s5"]
    assert await store.host.ask(lambda kernel: kernel.get(store.partition, SWEEPS, SESSIONS)) is None


async def test_expired_artifacts_are_always_removed(file_url: str) -> None:
    retention = ArtifactRetentionConfig(ttl_seconds=60)
    async with StateStore(file_url, types="own", artifact_retention=retention) as store:
        await store.artifact_store.put_text("text")
        assert (await swept(store, later=61.0)).artifacts == 1


@pytest.mark.parametrize(
    "text", ["events", "events=", "events=x", "nothing=3d", "tasks=3", "events=-3", "max_events=3d"]
)
def test_invalid_policies_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        StateRetention.parse([text])


def test_policies_as_text() -> None:
    policy = StateRetention.parse(["events=30d,events=1000", "updates=12h", ""])
    assert policy == StateRetention(events=30 * DAY, max_events=1000, updates=DAY / 2)
    for wrong in ({"events": -1}, {"max_events": 1.5}, {"events": float("nan")}, {"updates": True}):
        with pytest.raises(InvalidValue):
            StateRetention(**wrong)


async def test_a_store_in_use_sweeps_by_itself(shared_url: str) -> None:
    """Expired data and data that the policy does not keep are removed."""
    retention = StateRetention(max_updates=3)
    async with StateStore(shared_url, sweep_every=0.2, pause_seconds=0.1, retention=retention) as store:
        await store.save_planner_state("token", {})
        for number in range(10):
            await store.save_update(update(number))
        async with asyncio.timeout(60):
            while len(await store.list_updates("session")) > 3:
                await asyncio.sleep(0.1)
                await store.save_memory_state("key", {})


async def test_one_process_sweeps_in_each_period(file_url: str) -> None:
    async with StateStore(file_url) as store:
        sweepers = [StateSweeper(store.partition, None, 60.0) for _ in range(3)]
        done = [await store.host.ask(sweeper.sweep) for sweeper in sweepers]
        assert [swept is not None for swept in done] == [True, False, False]


@pytest.mark.parametrize("every", [0, -1, "1", True])
def test_sweep_every_is_checked(every: Any) -> None:
    with pytest.raises(InvalidState, match="sweep_every"):
        StateStore("memory:", sweep_every=every)


async def test_a_removed_session_leaves_no_run(store: StateStore) -> None:
    """The work item of its run is removed with it, and the controls that other processes sent to it."""
    await store.save_task(task(1))

    async def run(kernel: Kernel) -> None:
        scope = kernel.scoped(store.partition)
        started = Put(RUNS, "session/task-1", encode({}), {"session": "session", "arrived": "1"})
        sent = Append(INBOXES, "session/task-1", (Draft("one", b"{}"),))
        await scope.commit(started, Enqueue(RUNS, "session/task-1"), sent)

    async def left(kernel: Kernel) -> tuple[Any, int]:
        scope = kernel.scoped(store.partition)
        return await scope.work(RUNS, "session/task-1"), (await scope.log_state(INBOXES, "session/task-1")).head

    await store.host.ask(run)
    assert (await swept(store, later=2 * DAY, sessions=DAY)).sessions == 1
    assert await store.host.ask(left) == (None, 0)


async def test_artifacts_of_a_session_that_is_used_again_stay() -> None:
    """A sweep that has listed the session as unused does not remove its artifacts."""
    policy = StateRetention(sessions=DAY)
    retention = ArtifactRetentionConfig(ttl_seconds=0)
    async with open_storage("memory:") as kernel, StateStore(kernel, artifact_retention=retention) as store:
        await store.save_update(update(1))
        await store.artifact_store.put_text("kept", scope=ArtifactScope(session_id="session"))
        scope = kernel.scoped(store.partition)
        listed = await scope.get(SESSIONS, "session")
        assert listed is not None
        used = {"seen": int((time.time() + 2 * DAY) * 1e6)}
        await scope.commit(Put(SESSIONS, "session", listed.body, used))
        sweep = _Sweep(scope, policy, lambda: time.time() + 2 * DAY, dry=False)
        await sweep._session(listed)
        assert len(await store.artifact_store.list()) == 1
        assert not sweep.swept


class BusyScope(Scope, frozen=True):
    """A scope in which another writer commits once, after the first read of a log."""

    operations: list[Operation]

    async def read_log(self, *names: Any, **limits: Any) -> Any:
        page = await super().read_log(*names, **limits)
        await self._write()
        return page

    async def log_state(self, log: str, stream: str) -> Any:
        state = await super().log_state(log, stream)
        if log == TASK_ORDER:
            await self._write()
        return state

    async def _write(self) -> None:
        if self.operations:
            await self.commit(self.operations.pop())


async def test_a_log_that_is_trimmed_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keelbolt.state.events.streams.PAGE", 2)
    async with open_storage("memory:", declare=FAMILIES) as kernel:
        scope = BusyScope(kernel, "~state/default", [Trim(EVENTS, "trace", 4)])
        for number in range(6):
            await scope.commit(Append(EVENTS, "trace", (Draft("one", b"%d" % number),)))
        assert [entry.seq for entry in await read_all(scope, EVENTS, "trace")] == [5, 6]


async def test_an_order_of_tasks_that_is_trimmed_during_a_sweep() -> None:
    async with open_storage("memory:") as kernel, StateStore(kernel) as store:
        await store.save_task(task(1, status=TaskStatus.COMPLETE, updated_at=LONG_AGO))
        await store.save_task(task(2, status=TaskStatus.COMPLETE, updated_at=LONG_AGO))
        scope = BusyScope(kernel, store.partition, [Trim(TASK_ORDER, "session", 1)])
        assert (await sweep_state(scope, StateRetention(tasks=DAY))).tasks == 2


async def test_a_followed_history_misses_no_event() -> None:
    """An event that arrives while an empty history is read is followed."""
    async with open_storage("memory:") as kernel, StateStore(kernel) as store:
        scope = kernel.scoped(store.partition)
        await store.save_event(event(1.0, trace="other"))
        (entry,) = (await scope.read_log(EVENTS, "other")).entries
        busy = BusyScope(kernel, store.partition, [Append(EVENTS, "trace", (Draft(entry.kind, entry.data),))])
        lines = history(busy, "trace", follow=True)
        async with asyncio.timeout(10):
            assert "node_start" in await anext(lines)
        await lines.aclose()


async def test_tenants_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page begins after the last tenant of the previous one, also if its stored name is escaped."""
    monkeypatch.setattr("keelbolt.state.inspection.TENANTS", 1)
    named = {"acme", "acme/ada", "acme-x", "é", "x" * 300, "100%"}
    found: list[str] = []
    async with open_storage("memory:") as kernel:
        for tenant in named:
            async with StateStore(kernel, tenant=tenant) as store:
                await store.save_update(update(1))
        while page := await tenants(kernel, after=found[-1] if found else ""):
            found += page
            assert len(found) <= len(named)
    assert len(set(found)) == len(named)
