"""A pydantic-ai agent as a worker: its requests and calls are steps, approvals are questions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, RunContext
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from keelbolt.pydantic_ai import KeelboltDurability, pydantic_ai_worker
from keelbolt.tasks import TaskContext
from keelbolt.testing import WorkerHarness


class World:
    """A model that calls the tool ``pay`` and then reports the result, and a tool that can be delayed."""

    def __init__(self) -> None:
        self.requests = 0
        self.payments: list[int] = []
        self.hold = False

    async def stream(self, messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
        self.requests += 1
        last = messages[-1].parts[-1]
        if last.part_kind != "tool-return":
            yield {0: DeltaToolCall("pay", '{"amount": 40}', tool_call_id=f"call-{len(messages)}")}
            return
        for word in ("It ", "is ", f"{last.content} ", f"after {len(messages)} messages."):
            yield word

    def agent(self, *, approval: bool = False, **options: Any) -> Agent[TaskContext, Any]:
        output: Any = [str, DeferredToolRequests] if approval else str
        agent: Agent[TaskContext, Any] = Agent(
            FunctionModel(stream_function=self.stream),
            name="shop",
            deps_type=TaskContext,
            output_type=output,
            capabilities=[KeelboltDurability(**options)],
        )

        @agent.tool(requires_approval=approval)
        async def pay(run: RunContext[TaskContext], amount: int) -> str:
            self.payments.append(amount)
            if self.hold:
                await run.deps.cancelled()
            return f"paid, {amount}"

        return agent


async def test_requests_and_calls_are_steps() -> None:
    """A lost attempt repeats no finished model request or tool call."""
    world = World()
    async with WorkerHarness(pydantic_ai_worker(world.agent())) as agent:
        await agent.send("pay")
        assert agent.artifacts == {"answer": "It is paid, 40 after 3 messages."}
        assert (world.requests, world.payments) == (2, [40])
        assert [state for name, state in agent.steps.items() if "pay" in name or "model" in name] == ["done"] * 3


async def words(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
    for word in ("It ", "is ", "secret."):
        yield word


async def final(_messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    yield "Let me see. "
    yield {1: DeltaToolCall(info.output_tools[0].name, '{"city": "Bonn"}', tool_call_id="1")}


def capital(city: str) -> str:
    return f"The capital was {city}."


@pytest.mark.parametrize("durable", [True, False])
async def test_the_output_of_functions_and_validators_is_the_answer(durable: bool) -> None:
    """The text of the model is streamed, but the answer is the output of the run."""
    capabilities: Any = [KeelboltDurability()] if durable else []
    checked = Agent(FunctionModel(stream_function=words), name="one", capabilities=capabilities)

    @checked.output_validator
    def redact(text: str) -> str:
        return text.replace("secret", "[removed]")

    made = Agent(FunctionModel(stream_function=final), name="two", output_type=capital, capabilities=capabilities)
    for agent, wanted in ((checked, "It is [removed]."), (made, "The capital was Bonn.")):
        async with WorkerHarness(pydantic_ai_worker(agent)) as harness:
            await harness.send("go")
            assert harness.artifacts == {"answer": wanted}


@pytest.mark.parametrize("policy", ["ask", "retry"])
async def test_a_call_in_doubt(policy: Any) -> None:
    """If the process of a tool call died, the user is asked, or the call is repeated on request."""
    world = World()
    world.hold = True
    async with WorkerHarness(pydantic_ai_worker(world.agent(tool_in_doubt=policy))) as agent:
        await agent.send("pay", wait=False)
        await agent.until(lambda: world.payments)
        world.hold = False
        await agent.crash()
        if policy == "ask":
            assert agent.state == "input_required"
            assert world.payments == [40]
        else:
            assert agent.artifacts == {"answer": "It is paid, 40 after 3 messages."}
            assert world.payments == [40, 40]
        assert world.requests == (1 if policy == "ask" else 2)


async def test_approvals_are_questions() -> None:
    """The tool runs if the user answers yes; otherwise the model gets a refusal."""
    world = World()
    async with WorkerHarness(pydantic_ai_worker(world.agent(approval=True))) as agent:
        await agent.send("pay")
        assert (agent.state, agent.text, world.payments) == ("input_required", "May I call pay (amount: 40)?", [])
        await agent.answer("yes", wait=False)
        await agent.crash()
        assert agent.state == "completed"
        assert (world.payments, world.requests) == ([40], 2)
        await agent.send("pay again")
        await agent.answer("too much")
        assert agent.artifacts == {"answer": "It is The user said: too much after 3 messages."}
        assert world.payments == [40]


async def test_a_context_is_a_conversation() -> None:
    for conversation, messages in ((True, 7), (False, 3)):
        world = World()
        async with WorkerHarness(pydantic_ai_worker(world.agent(), conversation=conversation)) as agent:
            await agent.send("one", context_id="c")
            await agent.send("two", context_id="c")
            assert agent.artifacts == {"answer": f"It is paid, 40 after {messages} messages."}


class Answer(BaseModel):
    total: int


async def test_structured_output_and_retries_without_durability() -> None:
    """An agent without the capability runs too; its output is JSON."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        tool = "price" if len(messages) < 5 else info.output_tools[0].name
        yield {0: DeltaToolCall(tool, '{"total": 3}' if tool != "price" else "{}", tool_call_id=f"c{len(messages)}")}

    plain = Agent(FunctionModel(stream_function=stream), output_type=Answer)
    tries: list[int] = []

    @plain.tool_plain(retries=2)
    def price() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ModelRetry("again")
        return 3

    async with WorkerHarness(pydantic_ai_worker(plain)) as agent:
        task = await agent.send("how much?")
        assert agent.state == "completed", agent.text
        assert task.artifacts[0].parts[0].data == {"total": 3}
