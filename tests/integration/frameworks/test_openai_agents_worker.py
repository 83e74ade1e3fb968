"""An agent of the OpenAI Agents SDK as a worker: responses and calls are steps, approvals are questions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Model, RunContextWrapper, function_tool, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from keelbolt.openai_agents import openai_agent_worker
from keelbolt.tasks import TaskContext
from keelbolt.testing import WorkerHarness

pytestmark = pytest.mark.usefixtures("untraced")


@pytest.fixture(scope="module")
def untraced() -> None:
    set_tracing_disabled(disabled=True)


class World(Model):
    """A model that calls the tool ``pay`` and then reports the result, and a tool that can be delayed."""

    def __init__(self) -> None:
        self.requests = 0
        self.given: Any = []
        self.payments: list[int] = []
        self.hold = False
        self.pace = 0.0

    async def get_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def stream_response(self, *args: Any, **options: Any) -> Any:
        self.requests += 1
        given: Any = options.get("input", args[1] if len(args) > 1 else [])
        self.given = given
        yield ResponseCreatedEvent(type="response.created", response=response([]), sequence_number=0)
        last = given[-1] if isinstance(given, list) else {}
        if last.get("type") != "function_call_output":
            call = ResponseFunctionToolCall(
                type="function_call", name="pay", call_id=f"call-{len(given)}", arguments='{"amount": 40}'
            )
            yield ResponseCompletedEvent(type="response.completed", response=response([call]), sequence_number=1)
            return
        words = ["It ", "is ", f"{last['output']} ", f"after {len(given)} items."]
        at: Any = {"item_id": "m", "output_index": 0, "content_index": 0, "sequence_number": 0, "logprobs": []}
        for word in words:
            await asyncio.sleep(self.pace)
            yield ResponseTextDeltaEvent(type="response.output_text.delta", delta=word, **at)
        text = ResponseOutputText(type="output_text", text="".join(words), annotations=[], logprobs=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        yield ResponseCompletedEvent(type="response.completed", response=response([message]), sequence_number=1)

    def agent(self, *, approval: bool = False) -> Agent[Any]:
        @function_tool(needs_approval=approval)
        async def pay(run: RunContextWrapper[TaskContext], amount: int) -> str:
            self.payments.append(amount)
            if self.hold:
                await run.context.cancelled()
            return f"paid, {amount}"

        return Agent(name="Shop", model=self, tools=[pay])


def response(output: list[Any]) -> Response:
    fixed: Any = {"id": "r", "created_at": 0, "model": "scripted", "object": "response", "tools": []}
    return Response(output=output, tool_choice="auto", parallel_tool_calls=False, **fixed)


async def test_responses_and_calls_are_steps() -> None:
    world = World()
    async with WorkerHarness(openai_agent_worker(world.agent())) as agent:
        await agent.send("pay")
        assert agent.artifacts == {"answer": "It is paid, 40 after 3 items."}
        assert agent.steps == {
            "history": "done",
            "model": "done",
            "pay call-1": "done",
            "model#2": "done",
            "remember": "done",
        }


async def test_a_lost_attempt_repeats_only_unfinished_steps() -> None:
    """After a kill during a response, this response is requested again; the first response and the payment are not."""
    world = World()
    world.pace = 0.05
    async with WorkerHarness(openai_agent_worker(world.agent())) as agent:
        await agent.send("pay", wait=False)
        await agent.until(lambda: "is" in agent.artifacts.get("answer", ""))
        await agent.crash()
        assert agent.artifacts == {"answer": "It is paid, 40 after 3 items."}
        assert (world.payments, world.requests) == ([40], 3)


@pytest.mark.parametrize("policy", ["ask", "retry"])
async def test_a_call_in_doubt(policy: Any) -> None:
    world = World()
    world.hold = True
    async with WorkerHarness(openai_agent_worker(world.agent(), tool_in_doubt=policy)) as agent:
        await agent.send("pay", wait=False)
        await agent.until(lambda: world.payments)
        world.hold = False
        await agent.crash()
        assert agent.state == ("input_required" if policy == "ask" else "completed")
        assert world.payments == ([40] if policy == "ask" else [40, 40])


async def test_approvals_are_questions() -> None:
    """The tool runs if the user answers yes; otherwise the model gets a refusal."""
    world = World()
    async with WorkerHarness(openai_agent_worker(world.agent(approval=True))) as agent:
        await agent.send("pay")
        assert (agent.state, agent.text, world.payments) == ("input_required", "May I call pay (amount: 40)?", [])
        await agent.answer("yes", wait=False)
        await agent.crash()
        assert agent.state == "completed"
        assert (world.payments, world.requests) == ([40], 2)
        await agent.send("pay again")
        await agent.answer("too much")
        assert agent.artifacts == {"answer": "It is The user said: too much after 3 items."}
        assert world.payments == [40]


async def test_a_context_is_a_conversation() -> None:
    for conversation, items in ((True, 7), (False, 3)):
        world = World()
        async with WorkerHarness(openai_agent_worker(world.agent(), conversation=conversation)) as agent:
            await agent.send("one", context_id="c")
            await agent.send("two", context_id="c")
            assert agent.artifacts == {"answer": f"It is paid, 40 after {items} items."}


async def test_concurrent_tasks_of_a_context_both_stay_in_the_conversation() -> None:
    world = World()
    world.pace = 0.1
    async with WorkerHarness(openai_agent_worker(world.agent())) as agent:
        await agent.send("one", context_id="c", wait=False)
        await agent.until(lambda: world.payments)
        await agent.send("two", context_id="c")  # ends after the first task
        await agent.send("three", context_id="c")
        assert [item["content"] for item in world.given if item.get("role") == "user"] == ["one", "two", "three"]


async def test_a_cancel_stops_the_run() -> None:
    world = World()
    world.hold = True
    async with WorkerHarness(openai_agent_worker(world.agent())) as agent:
        await agent.send("pay", wait=False)
        await agent.until(lambda: world.payments)
        await agent.cancel()
        assert agent.state == "canceled"
