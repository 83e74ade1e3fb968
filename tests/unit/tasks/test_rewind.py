"""A turn that runs again: its writes are undone, those of earlier turns stay, and its inputs are replayed."""

from __future__ import annotations

import asyncio
from typing import Any

from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role, Task
from keelbolt.tasks import SteeringRequest, TaskContext, TaskEngine, TaskSettings

SETTINGS = TaskSettings.of({}, sleep_hold_seconds=0.0)


async def send_text(engine: TaskEngine, text: str, **ids: Any) -> Task:
    message = Message(message_id=text, role=Role.user, parts=[Part(text=text)], **ids)
    async with asyncio.timeout(20):
        return await engine.store.task(await engine.tasks.settled(await engine.tasks.send(message)))


def texts(task: Task, artifact_id: str) -> list[str | None]:
    [artifact] = [artifact for artifact in task.artifacts if artifact.artifact_id == artifact_id]
    return [part.text for part in artifact.parts]


async def test_a_repeated_run_keeps_what_earlier_turns_wrote() -> None:
    """The first append of a repeated run starts from the state before the turn, not from nothing."""

    async def log(ctx: TaskContext) -> None:
        await ctx.emit_artifact(artifact_id="log", text=ctx.user_text, name="The log", append=True)
        await ctx.emit_text_artifact("more", artifact_id="log", append=True)
        if ctx.history:
            await ctx.sleep(0.05)
            await ctx.complete()
        else:
            await ctx.request_input("and?")

    async with open_storage("memory:") as kernel, TaskEngine(kernel, log, settings=SETTINGS) as engine:
        first = await send_text(engine, "one")
        task = await send_text(engine, "two", task_id=first.id)
        assert texts(task, "log") == ["one", "more", "two", "more"]
        assert task.artifacts[0].name == "The log"


async def test_a_repeated_run_of_a_long_stream_keeps_its_segments() -> None:
    """The turn's start stays valid when tails become segments."""

    async def stream(ctx: TaskContext) -> None:
        for number in range(400):
            await ctx.emit_text_artifact(f"{ctx.user_text} {number} " + "x" * 200, append=True)
        if ctx.history:
            await ctx.sleep(0.05)
            await ctx.complete()
        else:
            await ctx.request_input("and?")

    async with open_storage("memory:") as kernel, TaskEngine(kernel, stream, settings=SETTINGS) as engine:
        first = await send_text(engine, "one")
        task = await send_text(engine, "two", task_id=first.id)
        words = [(text or "").split()[:2] for text in texts(task, "answer")]
        assert words == [[turn, str(number)] for turn in ("one", "two") for number in range(400)]


async def test_large_results_of_steps_are_stored_beside_the_snapshot() -> None:
    """Large results of steps don't grow the snapshot, and a repeated run still has them."""
    done: list[int] = []

    def large(number: int) -> str:
        done.append(number)
        return f"{number} " * 20_000

    async def work(ctx: TaskContext) -> None:
        results = [await ctx.step("large", large, number) for number in range(100)]
        await ctx.sleep(0.05)
        await ctx.complete_json([result.split()[0] for result in results])

    async with open_storage("memory:") as kernel, TaskEngine(kernel, work, settings=SETTINGS) as engine:
        task = await send_text(engine, "go")
        assert task.artifacts[0].parts[0].data == [str(number) for number in range(100)]
        assert done == list(range(100))
        snapshot = await kernel.get("~anonymous", "task_snapshots", task.id)
        assert snapshot is None or len(snapshot.body) < 100_000


async def test_steering_is_replayed_to_a_repeated_run() -> None:
    received: list[list[SteeringRequest]] = []
    listening = asyncio.Event()

    async def listen(ctx: TaskContext) -> None:
        received.append([])
        listening.set()
        async for event in ctx.inbox:
            received[-1].append(event)
            if len(received[-1]) == 2:
                break
        await ctx.sleep(0.05)
        await ctx.complete()

    async with open_storage("memory:") as kernel, TaskEngine(kernel, listen, settings=SETTINGS) as engine:
        message = Message(message_id="1", role=Role.user, parts=[Part(text="go")])
        async with asyncio.timeout(20):
            sent = await engine.tasks.send(message)
            await listening.wait()
            for reason in ("a", "b"):
                await engine.tasks.steer(sent.task.record.task_id, "inject", reason=reason)
            await engine.tasks.settled(sent)
        assert len(received) >= 2
        assert all([event.reason for event in run] == ["a", "b"] for run in received)
