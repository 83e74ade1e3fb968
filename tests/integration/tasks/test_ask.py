"""`ctx.ask`: a question in the middle of a turn."""

from __future__ import annotations

from keelbolt.tasks import TaskContext
from keelbolt.testing import WorkerHarness

calls: list[str] = []


async def order(ctx: TaskContext) -> None:
    drink = await ctx.step("read", note, ctx.user_text)
    size = await ctx.ask("Which size?", data={"sizes": ["small", "large"]})
    milk = await ctx.ask("With milk?")
    await ctx.step("brew", note, f"{size.text} {drink}")
    await ctx.complete(f"{size.text} {drink}, milk: {milk.text}")


def note(text: str) -> str:
    calls.append(text)
    return text


async def test_the_turn_continues_with_the_answer() -> None:
    calls.clear()
    async with WorkerHarness(order) as agent:
        task = await agent.send("tea")
        assert (agent.state, agent.text) == ("input_required", "Which size?")
        assert task.status.message is not None
        assert task.status.message.parts[1].data == {"sizes": ["small", "large"]}
        await agent.answer("large")
        assert (agent.state, agent.text) == ("input_required", "With milk?")
        await agent.answer("no")
        assert agent.artifacts == {"final-answer": "large tea, milk: no"}
    assert calls == ["tea", "large tea"]


async def test_the_history_ends_before_the_message_of_the_turn() -> None:
    """A repeated turn sees the same history: not its own questions, nor their answers."""
    seen: list[list[str]] = []

    async def asks(ctx: TaskContext) -> None:
        seen.append([message.text for message in ctx.history])
        await ctx.ask("Which size?")
        await ctx.request_input("Anything else?")

    async with WorkerHarness(asks) as agent:
        await agent.send("tea")
        await agent.answer("large")
        await agent.answer("no")
        await agent.answer("small")
    assert seen == [[], [], ["tea", "Which size?", "large", "Anything else?"], *seen[2:3]]


async def test_a_lost_attempt_does_not_ask_again() -> None:
    calls.clear()
    async with WorkerHarness(order) as agent:
        await agent.send("tea")
        await agent.answer("large")
        await agent.answer("no", wait=False)
        await agent.crash()
        assert agent.artifacts == {"final-answer": "large tea, milk: no"}
    assert calls == ["tea", "large tea"]


async def test_a_question_is_cancelled_like_any_other() -> None:
    async with WorkerHarness(order) as agent:
        await agent.send("tea")
        await agent.cancel()
        assert agent.state == "canceled"
