"""A graph as a worker: tokens are streamed, interrupts ask, lost attempts continue, cancels stop it."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from keelbolt.errors import InvalidValue
from keelbolt.langgraph import KeelboltSaver, langgraph_worker
from keelbolt.protocol.types import Part
from keelbolt.tasks import TaskContext
from keelbolt.testing import WorkerHarness


def chat(saver: Any, *answers: str) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage(answer) for answer in answers]))

    async def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    return builder.compile(checkpointer=saver)


async def test_tokens_are_streamed_as_one_artifact() -> None:
    worker = langgraph_worker(chat(KeelboltSaver("memory:"), "Hello there, friend"))
    async with WorkerHarness(worker) as agent:
        await agent.send("Hi")
        assert agent.state == "completed"
        assert agent.artifacts == {"agent-1": "Hello there, friend"}
        chunks = [body for kind, body in agent.events if kind == "artifact"]
        assert len(chunks) >= 3


async def test_tasks_of_a_context_share_a_thread_on_request() -> None:
    """With thread="context" the second task sees the messages of the first task; otherwise it does not."""
    for thread, expected in (("context", 4), ("task", 2)):
        async with KeelboltSaver("memory:") as saver:
            graph = chat(saver, "one", "two")
            worker = langgraph_worker(graph, thread=thread, result=lambda state: len(state["messages"]))  # type: ignore[arg-type]
            async with WorkerHarness(worker) as agent:
                await agent.send("a", context_id="c")
                task = await agent.send("b", context_id="c")
                assert task.artifacts[-1].parts[0].data == expected


class Steps(TypedDict, total=False):
    done: Annotated[list[str], operator.add]


def careful(saver: Any, ran: list[str], gate: asyncio.Event) -> Any:
    """first → ask → ask again (the same question) → slow → last"""

    async def first(state: Steps) -> dict[str, Any]:
        ran.append("first")
        return {"done": ["first"]}

    async def ask(state: Steps) -> dict[str, Any]:
        return {"done": [f"said {interrupt('Go on?')!r}"]}

    async def slow(state: Steps) -> dict[str, Any]:
        ran.append("slow")
        await gate.wait()
        return {"done": ["slow"]}

    builder = StateGraph(Steps)
    for name, node in (("first", first), ("ask", ask), ("again", ask), ("slow", slow)):
        builder.add_node(name, node)
    for one, other in ((START, "first"), ("first", "ask"), ("ask", "again"), ("again", "slow"), ("slow", END)):
        builder.add_edge(one, other)
    return builder.compile(checkpointer=saver)


async def test_interrupts_ask_and_lost_attempts_continue() -> None:
    """Each interrupt is one question, also if the text is the same; no finished node runs again after a crash."""
    ran: list[str] = []
    gate = asyncio.Event()
    async with KeelboltSaver("memory:") as saver:
        worker = langgraph_worker(careful(saver, ran, gate), given=lambda ctx: {"done": [ctx.user_text]})
        async with WorkerHarness(worker) as agent:
            await agent.send("begin")
            assert (agent.state, agent.text) == ("input_required", "Go on?")
            await agent.answer("yes")
            assert (agent.state, agent.text) == ("input_required", "Go on?")
            await agent.answer([Part(data={"sure": True})], wait=False)
            await agent.until(lambda: ran.count("slow") == 1)
            await agent.crash(wait=False)
            gate.set()
            await agent.until(lambda: agent.state == "completed")
            assert ran == ["first", "slow", "slow"]
            assert agent.task is not None
            assert agent.task.artifacts[0].parts[0].data == {
                "done": ["begin", "first", "said 'yes'", "said {'sure': True}", "slow"]
            }


async def test_a_cancel_stops_the_graph() -> None:
    ran: list[str] = []
    async with KeelboltSaver("memory:") as saver:
        graph = careful(saver, ran, asyncio.Event())
        async with WorkerHarness(langgraph_worker(graph, given=lambda _: {"done": []})) as agent:
            await agent.send("begin")
            await agent.answer("yes")
            await agent.answer("yes", wait=False)
            await agent.until(lambda: "slow" in ran)
            await agent.cancel()
            assert agent.state == "canceled"


async def test_the_graph_stops_when_its_text_can_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node runs any more when the worker has returned."""
    running: list[str] = []
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello there")]))

    async def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def slow(state: MessagesState) -> dict[str, Any]:
        running.append("slow")
        try:
            await asyncio.sleep(60)
        finally:
            running.remove("slow")
        return {}

    async def fail(*_args: Any, **_options: Any) -> None:
        raise ConnectionError

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("slow", slow)
    builder.add_edge(START, "agent")
    builder.add_edge(START, "slow")
    seen: list[list[str]] = []
    worker = langgraph_worker(builder.compile(checkpointer=KeelboltSaver("memory:")))
    handle = worker.handle

    async def watched(ctx: TaskContext) -> None:
        try:
            await handle(ctx)
        except ConnectionError:
            seen.append(list(running))
            raise

    monkeypatch.setattr(worker, "handle", watched)
    monkeypatch.setattr(TaskContext, "emit_text_artifact", fail)
    async with WorkerHarness(worker) as harness:
        await harness.send("Hi", wait=False)
        await harness.until(lambda: seen)
        assert seen[0] == []


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidValue, match="checkpointer"):
        langgraph_worker(chat(None))
    with pytest.raises(InvalidValue, match="thread"):
        langgraph_worker(chat(KeelboltSaver("memory:")), thread="user")  # type: ignore[arg-type]
