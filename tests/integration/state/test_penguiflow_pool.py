"""The real penguiflow: stateless workers, and an answer streamed in hundreds of chunks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from penguiflow.planner import PlannerFinish
from penguiflow.planner.llm import _LiteLLMJSONClient
from penguiflow.state.in_memory import InMemoryStateStore

from keelbolt.state import StateStore
from tests.integration.state.agents import CONTEXT, Script, planner
from tests.integration.state.children import start

JOBS = 24


def test_four_stateless_workers_share_one_store(shared_url: str) -> None:
    """Each job runs once, as a new flow in the process that claims it, and each trace has its own history."""

    async def ask(store: StateStore) -> None:
        for number in range(JOBS):
            await store.save_planner_state(f"job-{number}", {"text": f"job {number} "})
        await store.close()

    asyncio.run(ask(StateStore(shared_url)))
    workers = [start("works", shared_url, str(JOBS)) for _ in range(4)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    done: list[int] = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
        done += map(int, out.split())
    assert sorted(done) == list(range(JOBS))

    async def check(store: StateStore) -> None:
        for number in range(JOBS):
            assert await store.load_memory_state(f"answer-{number}") == {"answer": f"JOB {number} JOB {number} "}
            history = await store.load_history(f"trace-{number}")
            kinds = [(event.node_name, event.kind) for event in history]
            assert kinds == [(name, kind) for name in ("upper", "twice") for kind in ("node_start", "node_success")]
        assert sorted(await store.list_all_traces(limit=100)) == sorted(
            ["__global__", *(f"trace-{number}" for number in range(JOBS))]
        )
        await store.close()

    asyncio.run(check(StateStore(shared_url)))


class Streaming(Script, _LiteLLMJSONClient):  # type: ignore[misc]  # penguiflow streams from its own clients only
    """A model that answers in chunks."""

    async def complete(self, **request: Any) -> tuple[str, float]:
        text, cost = await super().complete(**request)
        chunk = request.get("on_stream_chunk")
        if chunk is not None:
            for start_ in range(0, len(text), 4):
                chunk(text[start_ : start_ + 4], False)
            chunk("", True)
        return text, cost

    def answer(self) -> dict[str, Any]:
        return {"thought": "", "next_node": "final_response", "args": {"answer": "word " * 400}}


@pytest.mark.parametrize("kind", ["own loop", "one loop"])
def test_each_chunk_of_a_streamed_answer_is_stored(url: str, kind: str) -> None:
    """The 500 planner events of one run are stored in order, whether the loop ends at once or continues."""
    theirs, ours = InMemoryStateStore(), StateStore(url, write_behind=kind == "own loop")
    kept = []
    for store in (theirs, ours):
        agent = planner(
            store, "echo", client=Streaming("echo"), stream_final_response=True, event_callback=print_nothing
        )

        async def run(store: Any = store, agent: Any = agent) -> list[Any]:
            result = await agent.run("q", tool_context=dict(CONTEXT))
            assert isinstance(result, PlannerFinish)
            if kind == "one loop":
                await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))  # the saves in the background
            return list(await store.list_planner_events("trace"))

        asyncio.run(run())
        kept.append(asyncio.run(everything(store)))
    assert len(kept[1][0]) > 500
    assert kept[0] == kept[1]
    asyncio.run(ours.close())


def print_nothing(_event: Any) -> None:
    """A callback for chunks that ignores them."""


async def everything(store: Any) -> tuple[list[tuple[str, str]], Any]:
    events = [
        (event.event_type, json.dumps(dict(event.extra).get("text")))
        for event in await store.list_planner_events("trace")
    ]
    trajectory = await store.get_trajectory("trace", "session")
    return events, [step.action.next_node for step in trajectory.steps]
