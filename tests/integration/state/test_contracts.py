"""The contracts of every method, on every engine."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from keelbolt.errors import InvalidState
from keelbolt.kernel import Delete, Kernel
from keelbolt.state import StateStore, StateUpdate, TaskStatus, UpdateType
from keelbolt.state.codec import decode
from keelbolt.state.families import SNAPSHOTS, STEERING
from tests.integration.state.things import (
    binding,
    conversation,
    event,
    planned,
    steering,
    task,
    trajectory,
    update,
)

ODD: dict[Any, Any] = {
    "nul": "a\0b",
    "surrogate": "\ud800",
    "pair": "\ud83d" + "\ude00",
    "infinite": [math.inf, -math.inf],
    "huge": 10**5000,
    "bytes": b"\0\xff",
    "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "set": {1, 2},
    "tuple": (1, ("a",)),
    1: {None: True, 2.5: "x"},
    "$keelbolt": "as it is",
}
LONG = "k" * 10_000


async def test_history_is_by_time_and_then_by_arrival(store: StateStore) -> None:
    for ts, number in [(3.0, 0), (1.0, 1), (2.0, 2), (1.0, 3)]:
        await store.save_event(event(ts, n=number))
    history = await store.load_history("trace")
    assert [(found.ts, found.payload["n"]) for found in history] == [(1.0, 1), (1.0, 3), (2.0, 2), (3.0, 0)]
    assert await store.load_history("unknown") == []


async def test_a_repeated_event_is_stored_once(store: StateStore) -> None:
    for _ in range(2):
        await store.save_event(event(a=1, b=2))
        await store.save_event(event(b=2, a=1))
    await store.save_event(event(kind="unknown kind"))
    assert [found.kind for found in await store.load_history("trace")] == ["node_start", "unknown kind"]


async def test_events_without_a_trace_are_global(store: StateStore) -> None:
    await store.save_event(event(trace=None))
    (found,) = await store.load_history("__global__")
    assert found.trace_id is None


async def test_a_bulk_save_equals_single_saves(store: StateStore) -> None:
    events = [event(float(number), trace=f"trace-{number % 3}") for number in range(1000)]
    await store.save_event(events[0])
    await store.save_events(events)
    await store.save_events_bulk([])
    found = [await store.load_history(f"trace-{number}") for number in range(3)]
    assert sorted((item for part in found for item in part), key=lambda item: item.ts) == events


@pytest.mark.parametrize("value", [pytest.param(value, id=str(key)) for key, value in ODD.items()])
async def test_unusual_payloads_survive_a_round_trip(value: Any) -> None:
    async with StateStore("memory:", types="own") as store:
        await store.save_memory_state("key", {"deep": [{"value": value}]})
        assert await store.load_memory_state("key") == {"deep": [{"value": value}]}


async def test_payloads_survive_a_round_trip(store: StateStore) -> None:
    """Payloads of every family are equal after a round trip; NaN does not equal itself and is compared separately."""
    payload = {**ODD, "nan": math.nan}
    await store.save_event(event(odd=payload))
    await store.save_planner_state("token", payload)
    await store.save_memory_state("key", payload)
    await store.save_planner_event("trace", planned(1, odd=payload))
    await store.save_task(task(result=payload))
    await store.save_update(
        StateUpdate(session_id="session", task_id="t", update_type=UpdateType.RESULT, content=payload)
    )
    found = [
        (await store.load_history("trace"))[0].payload["odd"],
        await store.load_planner_state("token"),
        await store.load_memory_state("key"),
        (await store.list_planner_events("trace"))[0].extra["odd"],
        (await store.list_tasks("session"))[0].result,
        (await store.list_updates("session"))[0].content,
    ]
    for back in found:
        assert back is not None
        assert math.isnan(back.pop("nan"))
        assert back == ODD


@pytest.mark.parametrize("odd", ["", "a/b", "%2F", "~", "\0", "\ud800", LONG], ids=lambda text: repr(text)[:12])
async def test_ids_are_any_text(odd: str) -> None:
    async with StateStore("memory:", types="own", tenant=odd) as store:
        await store.save_memory_state(odd, {"a": 1})
        assert await store.load_memory_state(odd) == {"a": 1}
        await store.save_task(task(session=odd, task_id=odd))
        await store.save_task(task(2, session=odd))
        assert [found.task_id for found in await store.list_tasks(odd)] == [odd, "task-2"]
        await store.save_trajectory(odd, odd, trajectory())
        assert await store.list_traces(odd) == [odd]
        await store.save_update(update(1, odd, odd))
        assert [found.session_id for found in await store.list_updates(odd, task_id=odd)] == [odd]
        await store.save_planner_state(odd, {})
        assert await store.load_planner_state(odd) == {}
        await store.save_remote_binding(binding(trace_id=odd, context_id=odd, router_session_id=odd))
        assert len(await store.list_bindings(router_session_id=odd)) == 1


async def test_long_ids_on_every_engine(store: StateStore) -> None:
    for key in (LONG, LONG + "x", "short"):
        await store.save_memory_state(key, {"key": key})
        await store.save_update(update(1, key, key))
    for key in (LONG, LONG + "x", "short"):
        assert await store.load_memory_state(key) == {"key": key}
        assert [found.session_id for found in await store.list_updates(key)] == [key]


async def test_a_pause_is_taken_once(store: StateStore) -> None:
    await store.save_planner_state("token", {"step": 1})
    await store.save_planner_state("token", {"step": 2})
    assert await store.load_planner_state("unknown") is None
    takers = await asyncio.gather(*(store.load_planner_state("token") for _ in range(10)))
    assert [found for found in takers if found is not None] == [{"step": 2}]


async def test_an_expired_pause_can_not_be_taken(url: str) -> None:
    async with StateStore(url, pause_seconds=0.05) as store:
        await store.save_planner_state("token", {"step": 1})
        await asyncio.sleep(0.1)
        assert await store.load_planner_state("token") is None


async def test_memory_is_a_deep_copy(store: StateStore) -> None:
    state: dict[str, Any] = {"turns": [{"text": "hello"}]}
    saving = store.save_memory_state("a:b:c", state)
    state["turns"][0]["text"] = "changed after the call"
    await saving
    first = await store.load_memory_state("a:b:c")
    assert first == {"turns": [{"text": "hello"}]}
    first["turns"].clear()
    assert await store.load_memory_state("a:b:c") == {"turns": [{"text": "hello"}]}
    assert await store.load_memory_state("unknown") is None
    await store.save_memory_state("empty", {})
    assert await store.load_memory_state("empty") == {}


async def test_tasks_are_listed_in_order_of_creation(store: StateStore) -> None:
    tasks = [task(number) for number in (3, 1, 2)]
    for one in tasks:
        await store.save_task(one)
    tasks[0].update_status(TaskStatus.COMPLETE)
    tasks[0].result = {"answer": 42}
    await store.save_task(tasks[0])
    await store.save_task(task(9, session="other"))
    assert await store.list_tasks("session") == tasks
    assert await store.list_tasks("unknown") == []


async def test_progress_does_not_rewrite_the_context(store: StateStore) -> None:
    one = task()
    for step in range(5):
        one.progress = {"step": step}
        await store.save_task(one)

    async def versions(kernel: Kernel) -> tuple[int, int]:
        records = [
            await kernel.get(store.partition, family, "session/task-1") for family in ("state_tasks", "state_snapshots")
        ]
        return tuple(record.version for record in records if record is not None)  # type: ignore[return-value]

    assert await store.host.ask(versions) == (5, 1)
    one.context_snapshot.llm_context["deep"] = "changed"
    await store.save_task(one)
    assert await store.host.ask(versions) == (6, 2)
    assert await store.list_tasks("session") == [one]


async def test_a_removed_context_is_written_again(store: StateStore) -> None:
    one = task()
    await store.save_task(one)

    async def remove(kernel: Kernel) -> None:
        await kernel.commit(store.partition, Delete(SNAPSHOTS, "session/task-1"))

    await store.host.ask(remove)
    await store.save_task(one)
    assert await store.list_tasks("session") == [one]
    await store.host.ask(remove)
    one.progress = {"n": 1}
    first = store.save_task(one)  # refused, since it depends on the context, and written again ...
    one.progress = {"n": 2}
    one.context_snapshot.query = "newer"
    await store.save_task(one)
    await first
    assert await store.list_tasks("session") == [one]  # ... but not over a newer context


async def test_cursors_of_updates(store: StateStore) -> None:
    """Cursors are exclusive, and an unknown cursor returns no updates. Without a cursor the last N updates are
    returned, with one the first N after it; the filter is applied before the limit.
    """
    for number in range(10):
        await store.save_update(update(number, f"task-{number % 2}"))
        await store.save_update(update(number, f"task-{number % 2}"))

    async def ids(**how: Any) -> list[int]:
        return [found.content["step"] for found in await store.list_updates("session", **how)]

    assert await ids() == list(range(10))
    assert await ids(limit=3) == [7, 8, 9]
    assert await ids(since_id="update-2", limit=3) == [3, 4, 5]
    assert await ids(since_id="update-9") == []
    assert await ids(since_id="unknown", limit=2) == [8, 9]
    assert await ids(task_id="task-1", limit=2) == [7, 9]
    assert await ids(task_id="task-1", since_id="update-2", limit=2) == [3, 5]
    assert await ids(task_id="task-7") == []
    assert await ids(limit=0) == []
    assert await store.list_updates("unknown") == []


async def test_steering_is_cut_checked_and_stored_once(store: StateStore) -> None:
    await store.save_steering(steering(1, text="x" * 10_000))
    await store.save_steering(steering(1, text="x" * 10_000))
    await store.save_steering(steering(2, task_id="task-2"))
    found = await store.list_steering("session")
    assert [(one.event_id, one.source) for one in found] == [("event-1", "user"), ("event-2", "user")]
    assert len(found[0].payload["text"]) == 4096
    assert [one.event_id for one in await store.list_steering("session", task_id="task-2")] == ["event-2"]
    assert [one.event_id for one in await store.list_steering("session", since_id="event-1")] == ["event-2"]
    await store.save_steering(steering(3, nothing=1))  # invalid for its type: stored, and marked
    assert (await store.list_steering("session"))[-1].payload == {"nothing": 1}
    page = await store.host.ask(lambda kernel: kernel.read_log(store.partition, STEERING, "session"))
    assert [decode(entry.data).get("invalid") is not None for entry in page.entries] == [False, False, True]


async def test_trajectories_are_of_a_trace_and_a_session(store: StateStore) -> None:
    for trace in ("a", "b", "c"):
        await store.save_trajectory(trace, "session", trajectory(trace))
    await store.save_trajectory("a", "other", trajectory("other"))
    await store.save_trajectory("a", "session", trajectory("again"))
    assert await store.list_traces("session") == ["a", "c", "b"]
    assert await store.list_traces("session", limit=2) == ["a", "c"]
    assert await store.list_traces("unknown") == []
    again, other = await store.get_trajectory("a", "session"), await store.get_trajectory("a", "other")
    assert again == trajectory("again")
    assert other == trajectory("other")
    assert await store.get_trajectory("b", "other") is None


async def test_planner_events_are_listed_in_order(store: StateStore) -> None:
    events = [planned(number, text="t") for number in range(5)]
    for one in (*events, *events):
        await store.save_planner_event("trace", one)
    assert await store.list_planner_events("trace") == events
    assert await store.list_planner_events("unknown") == []


async def test_bindings_are_of_a_trace_a_context_and_a_task(store: StateStore) -> None:
    first = binding(router_session_id="session", metadata={"a": [1]}, last_remote_task_id="r")
    await store.save_remote_binding(binding(router_session_id="session", agent_url="https://old"))
    await store.save_remote_binding(first)
    without = binding(context_id=None, router_session_id="session")
    await store.save_remote_binding(without)
    await store.save_remote_binding(binding(task_id="other"))
    assert await store.list_bindings(router_session_id="session") == [first, without]
    assert await store.list_bindings(router_session_id="unknown") == []


async def test_the_next_turn_goes_to_the_open_binding(store: StateStore) -> None:
    where: dict[str, Any] = {"router_session_id": "session", "agent_url": "https://agent", "remote_skill": "skill"}
    assert await store.find_binding(**where) is None
    for one in (conversation("t1"), conversation("t2"), conversation("t3", tenant_id="acme", user_id="ann")):
        await store.save_remote_binding(one)
    assert await store.find_binding(**where) == conversation("t2")
    assert await store.find_binding(**where, tenant_id="acme") is None
    assert await store.find_binding(**where, tenant_id="acme", user_id="ann") == conversation(
        "t3", tenant_id="acme", user_id="ann"
    )
    await store.mark_binding_terminal(trace_id="trace", context_id="context", task_id="t2")
    await store.mark_binding_terminal(trace_id="trace", context_id="context", task_id="unknown")
    assert await store.find_binding(**where) == conversation("t1")
    ended = {found.task_id: found.is_terminal for found in await store.list_bindings(router_session_id="session")}
    assert ended == {"t1": False, "t2": True, "t3": False}


async def test_older_method_names(store: StateStore) -> None:
    await store.save_task_update(update(1))
    assert len(await store.list_task_updates("session")) == 1
    await store.save_event("trace", planned(1))
    assert await store.get_events("trace") == [planned(1)]


async def test_sessions_and_traces_can_be_listed(store: StateStore) -> None:
    for number in range(3):
        await store.save_update(update(1, session=f"session-{number}"))
        await store.save_event(event(trace=f"trace-{number}"))
    await store.save_event(event(trace=None))
    await store.save_update(update(2, session="session-0"))
    assert await store.list_sessions() == ["session-2", "session-1", "session-0"]
    assert await store.list_sessions(limit=1) == ["session-2"]
    assert await store.list_all_traces() == ["__global__", "trace-2", "trace-1", "trace-0"]


async def test_tenants_are_isolated(shared_url: str) -> None:
    async with StateStore(shared_url, tenant="a") as first, StateStore(shared_url, tenant="b") as second:
        await first.save_memory_state("key", {"of": "a"})
        await second.save_memory_state("key", {"of": "b"})
        assert await first.load_memory_state("key") == {"of": "a"}


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("save_event", (None,)),
        ("save_event", (event(odd=1).payload,)),
        ("save_remote_binding", ("x",)),
        ("save_planner_state", ("token", None)),
        ("save_planner_state", (7, {})),
        ("save_memory_state", ("key", [1])),
        ("save_task", ({},)),
        ("save_update", (None,)),
        ("save_steering", (3,)),
        ("save_trajectory", ("t", "s", {})),
        ("save_planner_event", ("t", "event")),
    ],
)
async def test_wrong_types_are_named(method: str, arguments: tuple[Any, ...]) -> None:
    """Wrong types raise at the await; a caller that does not await is not interrupted."""
    async with StateStore("memory:", types="own") as store:
        saving = getattr(store, method)(*arguments)
        with pytest.raises(InvalidState, match="not "):
            await saving
        assert store.counters.saved == 0


async def test_values_that_can_not_be_stored_are_refused() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    async with StateStore("memory:", types="own") as store:
        with pytest.raises(InvalidState, match="contains itself"):
            await store.save_memory_state("key", circle)
