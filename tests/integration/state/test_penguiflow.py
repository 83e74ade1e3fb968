"""The real penguiflow on Keelbolt's store."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import penguiflow
import penguiflow.state
import pytest
from penguiflow import Headers, Message, Node, NodePolicy
from penguiflow.planner import PlannerEvent, PlannerFinish, PlannerPause, Trajectory
from penguiflow.sessions import StreamingSession
from penguiflow.state.in_memory import InMemoryStateStore

from keelbolt.state import StateStore
from keelbolt.state import types as own
from tests.integration.state.agents import CONTEXT, planner
from tests.integration.state.children import ROOT, run, start
from tests.integration.state.things import task


async def failing_flow(store: Any) -> tuple[str, list[Any]]:
    """Run a flow whose second node fails twice and then gives up; return its trace and history."""

    async def first(message: Any, _ctx: Any) -> Any:
        return message

    async def second(_message: Any, _ctx: Any) -> Any:
        raise RuntimeError("no")

    policy = NodePolicy(validate="none", max_retries=2, backoff_base=0.001)
    ends = [Node(first, name="first", policy=NodePolicy(validate="none")), Node(second, name="second", policy=policy)]
    flow = penguiflow.create(ends[0].to(ends[1]), ends[1].to(), state_store=store, emit_errors_to_rookery=True)
    flow.run()
    message = Message(payload="x", headers=Headers(tenant="t"))
    await flow.emit(message)
    await flow.fetch()
    history = list(await flow.load_history(message.trace_id))
    await flow.stop()
    return message.trace_id, history


async def test_a_flow_with_errors_and_retries(url: str) -> None:
    _, expected = await failing_flow(InMemoryStateStore())
    async with StateStore(url) as store:
        trace, history = await failing_flow(store)
        assert [(found.kind, found.node_name) for found in history] == [
            (found.kind, found.node_name) for found in expected
        ]
        assert {type(found) for found in history} == {penguiflow.state.StoredEvent}
        assert {found.trace_id for found in history} == {trace}
        stopped = await store.load_history("__global__")
        assert {(found.kind, found.trace_id) for found in stopped} == {("node_cancelled", None)}


@pytest.mark.parametrize("how", ["write-behind", "flushed"])
def test_a_planner_in_a_loop_that_ends_at_once_keeps_every_event(url: str, how: str) -> None:
    """PenguiFlow never awaits the tasks of its saves, and asyncio.run cancels them: flush() waits for them."""
    theirs, ours = InMemoryStateStore(), StateStore(url, write_behind=how == "write-behind")

    async def planned(store: Any) -> Any:
        result = await planner(store, "echo", "echo").run("q", tool_context=dict(CONTEXT))
        if store is ours and how == "flushed":
            await ours.flush()
        return result

    for store in (theirs, ours):
        assert isinstance(asyncio.run(planned(store)), PlannerFinish)

    async def look(store: Any) -> tuple[list[Any], Any, list[str]]:
        events = await store.list_planner_events("trace")
        return events, await store.get_trajectory("trace", "session"), await store.list_traces("session")

    expected, found = asyncio.run(look(theirs)), asyncio.run(look(ours))
    assert len(found[0]) == 12
    assert [event.event_type for event in found[0]] == [event.event_type for event in expected[0]]
    assert {type(event) for event in found[0]} == {PlannerEvent}
    assert isinstance(found[1], Trajectory)
    assert len(found[1].steps) == len(expected[1].steps)
    assert found[2] == expected[2] == ["trace"]
    asyncio.run(ours.close())


def test_another_process_resumes_a_pause_once(shared_url: str) -> None:
    token = run("pauses", shared_url).strip()
    racers = [start("resumes", shared_url, token) for _ in range(2)]
    outputs = sorted(racer.communicate(timeout=60)[0].strip() for racer in racers)
    assert outputs == ["finished", "too late"]


async def test_own_classes_are_returned_on_request(file_url: str) -> None:
    """Each store accepts the classes of the other."""
    async with StateStore(file_url) as theirs, StateStore(file_url, types="own") as ours:
        await theirs.save_task(task())
        await ours.save_event(own.StoredEvent("trace", 1.0, "kind", None, None, {}))
        await ours.save_event(penguiflow.state.StoredEvent("trace", 2.0, "kind", None, None, {}))
        await theirs.flush()
        await ours.flush()
        (found,) = await theirs.list_tasks("session")
        assert type(found) is penguiflow.state.TaskState
        assert type(found.status) is penguiflow.state.TaskStatus
        assert type(found.context_snapshot) is penguiflow.state.TaskContextSnapshot
        assert [type(event) for event in await theirs.load_history("trace")] == [penguiflow.state.StoredEvent] * 2
        assert [type(event) for event in await ours.load_history("trace")] == [own.StoredEvent] * 2
        (again,) = await ours.list_tasks("session")
        assert type(again) is own.TaskState


async def test_a_session_with_a_background_task(url: str) -> None:
    """Another session object finds its task, updates and steering."""

    async def pipeline(runtime: Any) -> Any:
        for step in range(3):
            runtime.emit_update(penguiflow.state.UpdateType.PROGRESS, {"step": step})
        return penguiflow.sessions.TaskResult(payload={"done": True})

    async with StateStore(url) as store:
        session = StreamingSession("session", state_store=store)
        await session.run_task(pipeline, query="q")
        await StreamingSession("session", state_store=store).hydrate()
        (found,) = await store.list_tasks("session")
        assert found.status is penguiflow.state.TaskStatus.COMPLETE
        updates = await store.list_updates("session")
        steps = [one.content["step"] for one in updates if one.update_type is penguiflow.state.UpdateType.PROGRESS]
        assert steps == [0, 1, 2]


def test_penguiflows_admin_command_reads_the_store(file_url: str) -> None:
    async def save() -> str:
        async with StateStore(file_url) as store:
            return (await failing_flow(store))[0]

    trace = asyncio.run(save())
    factory = ("--state-store", "keelbolt.state:create_store")
    history = _admin(file_url, "history", *factory, trace)
    kinds = [json.loads(line)["event"] for line in history.splitlines()]
    assert kinds.count("node_error") == 3
    assert kinds[-1] == "node_failed"
    replay = _admin(file_url, "replay", *factory, trace, "--tail", "2").splitlines()
    assert replay[0] == f"# replay trace={trace} events=2"
    assert _admin(file_url, "replay", *factory, "nothing").strip() == "# trace nothing has no stored events"


def _admin(url: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "penguiflow.admin", *arguments],
        cwd=ROOT,
        env={**os.environ, "KEELBOLT_STATE_URL": url},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_a_planner_that_pauses_returns_a_pause() -> None:
    """A pause is returned and resumed in one process, with the script of the race above."""
    store = StateStore("memory:")
    paused = asyncio.run(planner(store, "ask").run("q", tool_context=dict(CONTEXT)))
    assert isinstance(paused, PlannerPause)
    resumed = asyncio.run(planner(store).resume(paused.resume_token, user_input="yes"))
    assert isinstance(resumed, PlannerFinish)
    asyncio.run(store.close())
