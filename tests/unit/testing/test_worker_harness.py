"""`WorkerHarness` behaves like a server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from examples.payment_agent import Bank, Payer
from examples.research_agent import Researcher
from keelbolt.errors import KeelboltError
from keelbolt.protocol.types import Part
from keelbolt.tasks import Dependency, TaskContext
from keelbolt.testing import WorkerHarness

Start = Callable[..., Awaitable[WorkerHarness]]


async def test_a_turn_and_its_answer(worker_harness: Start) -> None:
    async def worker(ctx: TaskContext) -> None:
        if ctx.state is None:
            await ctx.request_input("What time?", state={"what": ctx.user_text})
            return
        await ctx.complete(f"{ctx.state['what']} at {ctx.user_text}")

    agent = await worker_harness(worker)
    await agent.send("A table")
    assert (agent.state, agent.text, agent.task_state) == ("input_required", "What time?", {"what": "A table"})
    await agent.answer("eight")
    assert (agent.state, agent.artifacts) == ("completed", {"final-answer": "A table at eight"})
    kinds = [kind for kind, _ in agent.events]
    assert (kinds[0], kinds[-1], kinds.count("attempt"), kinds.count("state")) == ("message", "status", 2, 1)


async def test_a_crash_loses_the_attempt_and_no_finished_step(worker_harness: Start) -> None:
    calls: list[str] = []
    attempts: list[int] = []
    hanging = asyncio.Event()
    writes: list[str] = []

    async def act(name: str) -> str:
        calls.append(name)
        return name

    async def worker(ctx: TaskContext) -> None:
        attempts.append(ctx.attempt)
        await ctx.step("one", act, "one")
        if ctx.attempt == 1:
            hanging.set()
            try:
                await asyncio.sleep(60)
            finally:
                try:
                    await ctx.send_status("from a dead process")
                except KeelboltError as error:
                    writes.append(type(error).__name__)
        await ctx.step("two", act, "two")
        await ctx.complete("done")

    agent = await worker_harness(worker)
    await agent.send("go", wait=False)
    await agent.until(hanging.is_set)
    assert agent.steps == {"one": "done"}
    await agent.crash()
    assert (agent.state, calls, attempts) == ("completed", ["one", "two"], [1, 2])
    assert agent.steps == {"one": "done", "two": "done"}
    assert len(writes) == 1
    assert not [body for kind, body in agent.events if kind == "status" and "dead" in str(body)]


async def test_the_test_controls_the_time(worker_harness: Start) -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.sleep(0.5)
        await ctx.sleep(7 * 86_400)
        await ctx.complete("a week later")

    agent = await worker_harness(worker)
    await agent.send("go")
    assert agent.state == "working"
    await agent.advance(1)
    assert agent.state == "working"
    await agent.advance(6 * 86_400)
    assert agent.state == "working"
    await agent.advance(86_400)
    assert (agent.state, agent.artifacts) == ("completed", {"final-answer": "a week later"})


async def test_a_cancel_waits_for_the_cleanup(worker_harness: Start) -> None:
    undone: list[bool] = []
    begun = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            async with ctx.shielded():
                await asyncio.sleep(0.05)
                undone.append(ctx.is_cancelled)

    agent = await worker_harness(worker)
    await agent.send("go", wait=False)
    await agent.until(begun.is_set)
    await agent.cancel(reason="enough")
    assert (agent.state, undone) == ("canceled", [True])


async def test_dependencies_parts_and_settings(worker_harness: Start) -> None:
    class Model(Dependency):
        name = ""

        async def startup(self) -> None:
            self.name = "parrot"

    async def worker(ctx: TaskContext) -> None:
        await ctx.complete(f"{ctx.deps[Model].name}: {ctx.data_parts} {ctx.metadata}")

    agent = await worker_harness(worker, dependencies={Model: Model()}, cancel_seconds=0.1)
    await agent.send([Part(data={"a": 1})], metadata={"b": 2})
    assert agent.artifacts == {"final-answer": "parrot: [{'a': 1}] {'b': 2}"}


async def test_wrong_use_is_an_error_with_advice() -> None:
    async def worker(ctx: TaskContext) -> None:
        await asyncio.sleep(60)

    agent = WorkerHarness(worker, seconds=0.2)
    with pytest.raises(KeelboltError, match="async with"):
        await agent.send("go")
    async with agent:
        with pytest.raises(KeelboltError, match="call `send` first"):
            await agent.answer("yes")
        with pytest.raises(TimeoutError):
            await agent.send("go")


# --------------------------------------------------------------------------------------------------------- examples


async def test_the_payment_agent_asks_and_pays_nothing_without_a_yes(worker_harness: Start, tmp_path: Path) -> None:
    bank = Bank(tmp_path / "books")
    agent = await worker_harness(Payer(bank, "verify"))
    await agent.send("40")
    assert (agent.state, agent.text) == ("input_required", "Pay 40?")
    await agent.answer("no")
    assert (agent.state, bank.payments()) == ("rejected", [])


async def test_the_research_agent_reads_no_page_twice(worker_harness: Start) -> None:
    agent = await worker_harness(Researcher())
    await agent.send("knots")
    assert agent.text == "A short or a long report about knots?"
    await agent.answer("long", wait=False)
    await agent.until(lambda: agent.steps.get("read their uses") == "started")
    await agent.crash()
    assert agent.state == "completed"
    assert agent.artifacts["report"].count("could fill a book.") == 3
    begun = [body["step"] for kind, body in agent.events if kind == "step" and body["state"] == "started"]
    assert begun.count("read their history") == 1
    reports = [body["status"]["message"]["parts"][0]["text"] for kind, body in agent.events if _is_report(kind, body)]
    assert reports.count("reading about their history") == 1


def _is_report(kind: str, body: dict[str, dict[str, object]]) -> bool:
    return kind == "status" and "message" in body["status"]


async def test_cancel_waits_for_the_cleanup_of_a_worker_that_sleeps() -> None:
    undone: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        booked = await ctx.step("book", lambda: "flight")
        try:
            await ctx.sleep(86400)
        finally:
            if ctx.is_cancelled:
                undone.append(booked)

    async with WorkerHarness(worker) as agent:
        await agent.send("Book it")
        assert agent.state == "working"
        await agent.cancel()
        assert agent.state == "canceled"
        assert undone == ["flight"]


async def test_until_returns_with_current_properties(worker_harness: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition becomes true after the harness has read the task."""
    go, began, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def effect() -> None:
        began.set()
        await end.wait()

    async def work(ctx: TaskContext) -> str:
        await go.wait()
        await ctx.step("charge", effect)
        return "done"

    agent = await worker_harness(work)
    await agent.send("go", wait=False)
    look = agent._look

    async def slow_look() -> None:
        await look()
        go.set()
        await began.wait()

    with monkeypatch.context() as patched:
        patched.setattr(agent, "_look", slow_look)
        await agent.until(began.is_set)
    assert agent.steps == {"charge": "started"}
    end.set()
    await agent.until(lambda: agent.state == "completed")
