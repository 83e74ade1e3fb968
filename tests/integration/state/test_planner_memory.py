"""Keelbolt's memory in penguiflow's planner: its summary is stored, and sessions are isolated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from penguiflow.catalog import build_catalog, tool
from penguiflow.node import Node
from penguiflow.planner import ReactPlanner
from penguiflow.registry import ModelRegistry
from pydantic import BaseModel

from keelbolt.state import StateStore
from keelbolt.state.memory import MemoryBudget, MemoryHealth, MemoryKey, ShortTermMemory, ShortTermMemoryConfig


class Words(BaseModel):
    text: str


@tool(desc="echo")  # type: ignore[untyped-decorator]
async def echo(args: Words, _ctx: Any) -> Words:
    return args


class Model:
    """A model that answers at once and records its prompts."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def complete(self, *, messages: Any, **_more: Any) -> tuple[str, float]:
        self.prompts.append(json.dumps(messages))
        await asyncio.sleep(0)
        return json.dumps({"thought": "", "next_node": "final_response", "args": {"raw_answer": "answer"}}), 0.0


async def summarise(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take longer than the rest of a run, as a real model does."""
    await asyncio.sleep(0.002)
    return {"summary": " ".join([request["previous_summary"], *(turn["user"] for turn in request["turns"])]).strip()}


def memory() -> ShortTermMemory:
    budget = MemoryBudget(full_zone_turns=1)
    return ShortTermMemory(ShortTermMemoryConfig(strategy="rolling_summary", budget=budget), summarizer=summarise)


def planner(store: StateStore, kept: ShortTermMemory, model: Model | None = None) -> ReactPlanner:
    registry = ModelRegistry()
    registry.register("echo", Words, Words)
    catalog = build_catalog([Node(echo, name="echo")], registry)
    return ReactPlanner(llm_client=model or Model(), catalog=catalog, state_store=store, short_term_memory=kept)


def context(session: str, number: int) -> dict[str, Any]:
    return {"tenant_id": "t", "user_id": "u", "session_id": session, "trace_id": f"{session}-{number}"}


async def test_a_summary_is_stored_over_five_runs(url: str) -> None:
    """Each run sees the summary so far; no turn is summarized twice."""
    model, kept = Model(), memory()
    async with StateStore(url) as store:
        agent = planner(store, kept, model)
        for number in range(5):
            await agent.run(f"question-{number}", tool_context=context("s", number))
        await kept.flush()
        state = await store.load_memory_state(MemoryKey("t", "u", "s").composite())
    assert state is not None
    assert state["summary"].split() == [f"question-{number}" for number in range(4)]
    assert [turn["user_message"] for turn in state["turns"]] == ["question-4"]
    assert (state["pending"], state["health"]) == ([], "healthy")
    assert all(f"question-{number}" in model.prompts[-1] for number in range(5))


async def test_each_run_on_another_worker(url: str) -> None:
    """Each run has its own planner and memory, and starts from the state that the previous run stored."""
    async with StateStore(url) as store:
        for number in range(5):
            kept = memory()
            await planner(store, kept).run(f"question-{number}", tool_context=context("s", number))
            await kept.flush()
        state = await store.load_memory_state("t:u:s")
    assert state is not None
    assert state["summary"].split() == [f"question-{number}" for number in range(4)]


def test_each_run_in_a_loop_of_its_own(file_url: str) -> None:
    """A loop that ends during a summary ends the summary; the next run creates it."""
    store, kept = StateStore(file_url), memory()
    agent = planner(store, kept)
    for number in range(4):
        asyncio.run(agent.run(f"question-{number}", tool_context=context("s", number)))

    async def end() -> dict[str, Any] | None:
        await kept.hydrate(store, "t:u:s")
        await kept.flush()
        state = await store.load_memory_state("t:u:s")
        await store.close()
        return state

    state = asyncio.run(end())
    assert state is not None
    assert state["summary"].split() == [f"question-{number}" for number in range(3)]


async def test_concurrent_sessions_of_one_planner(file_url: str) -> None:
    model, kept = Model(), memory()
    async with StateStore(file_url) as store:
        agent = planner(store, kept, model)

        async def talk(session: str) -> None:
            for number in range(3):
                await agent.run(f"{session}-{number}", tool_context=context(session, number))

        await asyncio.gather(*(talk(session) for session in ("red", "blue")))
        await kept.flush()
        states = {session: await store.load_memory_state(f"t:u:{session}") for session in ("red", "blue")}
    assert {session: state["summary"] for session, state in states.items() if state} == {
        "red": "red-0 red-1",
        "blue": "blue-0 blue-1",
    }
    assert not any("red-" in prompt and "blue-" in prompt for prompt in model.prompts)
    assert kept.of("t:u:red").health is MemoryHealth.HEALTHY
