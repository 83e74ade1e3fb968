"""Durable steps: a recorded step is not executed again after a crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keelbolt.errors import InvalidTaskRequest, StepFailed
from keelbolt.kernel import Clock
from keelbolt.protocol.types import Part, Task, TaskState
from keelbolt.tasks import Done, TaskContext, TaskEngine
from tests.integration.tasks.stage import (
    Stage,
    answer,
    ask,
    at_most,
    bodies,
    look,
    message,
    one_end,
    state_of,
    states,
    until,
)


class World:
    """The external effects of steps; they survive every process."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.attempts: list[int] = []
        self.hang = asyncio.Event()
        self.hanging = False

    async def act(self, name: str) -> str:
        self.done.append(name)
        return f"result of {name}"

    async def hangs_once(self) -> str:
        """Take effect and never return: the process dies here."""
        self.done.append("hangs")
        if not self.hanging:
            self.hanging = True
            await self.hang.wait()
        return "second time"


async def settle(engine: TaskEngine, task_id: str, *wanted: TaskState) -> Task:
    async def there() -> bool:
        return await state_of(engine, task_id) in (wanted or (TaskState.completed,))

    await until(there)
    return await look(engine, task_id)


async def begun_and_dead(stage: Stage, worker: Any, world: World) -> tuple[TaskEngine, str]:
    """Kill the task's first process while its step hangs; return a second process and the task."""
    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    await until(lambda: world.hanging)
    await stage.crash(first)
    return await stage.engine(worker), sent.task.record.task_id


async def test_recorded_results_are_not_run_again(stage: Stage) -> None:
    """The process dies after two steps: the next process takes their results from the log and executes the rest."""
    world = World()

    async def worker(ctx: TaskContext) -> None:
        world.attempts.append(ctx.attempt)
        results = [await ctx.step(name, world.act, name) for name in ("book", "pay")]
        if ctx.attempt < 3:
            world.hanging = True
            await asyncio.sleep(60)
        await ctx.respond("; ".join([*results, await ctx.step("send", world.act, "send")]))

    first = await stage.engine(worker)
    sent = await first.tasks.send(message())
    engine = first
    for _ in range(2):
        await until(lambda: world.hanging)
        world.hanging = False
        await stage.crash(engine)
        engine = await stage.engine(worker)
    task = await settle(engine, sent.task.record.task_id)
    assert world.done == ["book", "pay", "send"]
    assert world.attempts == [1, 2, 3]
    assert task.status.message is not None
    assert task.status.message.text == "result of book; result of pay; result of send"
    assert [body["attempt"] for body in await bodies(engine, task.id, "attempt")] == [1, 2, 3]
    assert await one_end(engine, task.id) is TaskState.completed


@pytest.mark.parametrize("policy", [{"idempotent": True}, {"in_doubt": "retry"}])
async def test_in_doubt_retry(stage: Stage, policy: dict[str, Any]) -> None:
    """A step in doubt that may be repeated is executed again."""
    world = World()

    async def worker(ctx: TaskContext) -> None:
        await ctx.complete(await ctx.step("hangs", world.hangs_once, **policy))

    engine, task_id = await begun_and_dead(stage, worker, world)
    task = await settle(engine, task_id)
    assert world.done == ["hangs", "hangs"]
    assert task.artifacts[0].parts[0].text == "second time"


@pytest.mark.parametrize("took_effect", [True, False])
async def test_in_doubt_verify(stage: Stage, took_effect: bool) -> None:
    """The probe decides: a step that took effect gets the probe's result, any other step is executed."""
    world = World()

    async def probe() -> Done | None:
        world.done.append("probe")
        return Done("found") if took_effect else None

    async def worker(ctx: TaskContext) -> None:
        result = await ctx.step("hangs", world.hangs_once, probe=probe)
        assert await ctx.step("other", world.act, "other") == "result of other"
        await ctx.complete(result)

    engine, task_id = await begun_and_dead(stage, worker, world)
    task = await settle(engine, task_id)
    assert task.artifacts[0].parts[0].text == ("found" if took_effect else "second time")
    assert world.done == ["hangs", "probe", *([] if took_effect else ["hangs"]), "other"]


@pytest.mark.parametrize(
    ("says", "outcome", "done"),
    [
        (Part(text="retry"), "second time", 2),
        (Part(text=" 'Retry'. "), "second time", 2),
        (Part(text="done"), "None", 1),
        (Part(data={"answer": "done", "result": {"id": 7}}), "{'id': 7}", 1),
        (Part(text="failed"), "the step 'hangs' was in doubt, and the user answered 'failed'", 1),
    ],
    ids=str,
)
async def test_in_doubt_ask(memory: Stage, says: Part, outcome: str, done: int) -> None:
    """The task asks the client in text and as data; the answer decides, and the same turn continues."""
    world = World()

    async def worker(ctx: TaskContext) -> None:
        try:
            result = await ctx.step("hangs", world.hangs_once)
        except StepFailed as error:
            result = str(error)
        except Exception as error:  # the exception that unwinds the worker is internal
            result = f"caught {error!r}"
        await ctx.complete(str(result))

    engine, task_id = await begun_and_dead(memory, worker, world)
    task = await settle(engine, task_id, TaskState.input_required)
    assert task.status.message is not None
    text, data = task.status.message.parts
    assert "'hangs'" in (text.text or "")
    assert data.data == {"step": "hangs", "inDoubt": True, "answers": ["retry", "done", "failed"]}
    with pytest.raises(InvalidTaskRequest, match="retry, done, failed"):
        await engine.tasks.send(message("perhaps", task_id=task_id))
    task = await answer(engine, await engine.tasks.send(message(parts=[says], task_id=task_id)))
    assert task.artifacts[0].parts[0].text == outcome
    assert world.done == ["hangs"] * done
    assert await one_end(engine, task_id) is TaskState.completed


async def test_asked_between_processes(stage: Stage) -> None:
    """The question survives its process: one process asks, another gets the answer, a third continues."""
    world = World()

    async def worker(ctx: TaskContext) -> None:
        await ctx.complete(await ctx.step("hangs", world.hangs_once, in_doubt="ask"))

    engine, task_id = await begun_and_dead(stage, worker, world)
    await settle(engine, task_id, TaskState.input_required)
    await stage.crash(engine)
    front = await stage.engine()
    sent = await front.tasks.send(message("retry", task_id=task_id))
    await stage.engine(worker)
    assert (await answer(front, sent)).artifacts[0].parts[0].text == "second time"
    turn = ["submitted", "working"]
    assert await states(front, task_id) == [*turn, "input_required", *turn, "completed"]


async def test_a_failed_step_is_executed_again_in_the_next_attempt(stage: Stage) -> None:
    """A step that raised has no recorded result: when the turn is repeated, it is retried."""
    world = World()

    async def fails_once() -> str:
        world.done.append("try")
        if len(world.done) == 1:
            raise ValueError("not now")
        return "fine"

    async def worker(ctx: TaskContext) -> None:
        try:
            await ctx.complete(await ctx.step("s", fails_once, in_doubt="ask"))
        except ValueError:
            world.hanging = True
            await asyncio.sleep(60)

    engine, task_id = await begun_and_dead(stage, worker, world)
    assert (await settle(engine, task_id)).artifacts[0].parts[0].text == "fine"


async def test_unfinished_chunks_are_not_continued(stage: Stage) -> None:
    """After a crash the worker starts again, and so does the artifact that it was streaming."""
    world = World()

    async def worker(ctx: TaskContext) -> None:
        for number in range(3):
            await ctx.emit_text_artifact(f"{ctx.attempt}.{number}", append=True)
        await ctx.send_status("streamed")
        if ctx.attempt == 1:
            world.hanging = True
            await asyncio.sleep(60)
        await ctx.complete()

    engine, task_id = await begun_and_dead(stage, worker, world)
    task = await settle(engine, task_id)
    assert [part.text for part in task.artifacts[0].parts] == ["2.0", "2.1", "2.2"]


async def test_a_long_sleep_holds_no_slot(stage: Stage) -> None:
    """A long sleep frees its slot and survives its process: the task wakes on time in another one."""
    world = World()

    async def worker(ctx: TaskContext) -> None:
        await ctx.step("before", world.act, "before")
        await ctx.sleep(0.5)
        await ctx.step("after", world.act, "after")
        await ctx.complete()

    first = await stage.engine(worker, sleep_hold_seconds=0.05)
    sent = await first.tasks.send(message())
    runner = first.runner
    assert runner is not None
    await until(lambda: not runner.runs)
    await stage.crash(first)
    second = await stage.engine(worker, sleep_hold_seconds=0.05)
    with at_most(5.0):
        task = await answer(second, sent)
    assert task.status.state is TaskState.completed
    assert world.done == ["before", "after"]
    attempts = await bodies(second, task.id, "attempt")
    assert {body["attempt"] for body in attempts} == {1}  # sleeping does not count as an attempt
    assert len({body["worker"] for body in attempts}) == 2


class JumpingClock(Clock):
    """The clock of this machine, with a wall clock that a test sets."""

    jump_seconds = 0

    def wall(self) -> int:
        return super().wall() + self.jump_seconds * 1_000_000


@pytest.mark.parametrize("jump", [-3600, 3600], ids=["set back", "set forward"])
async def test_a_wall_clock_that_jumps_moves_no_sleep(stage: Stage, jump: int) -> None:
    """A message wakes the task during its sleep, and another process runs it: the sleep keeps its length."""
    clock, slept = JumpingClock(), []

    async def worker(ctx: TaskContext) -> None:
        if ctx.user_text == "first":
            slept.append(clock.steady())
            await ctx.sleep(1.0)
            slept.append(clock.steady())
        await ctx.respond(f"did {ctx.user_text}")

    engine = await stage.engine(worker, sleep_hold_seconds=0.05, clock=clock)
    first = await engine.tasks.send(message("first"))
    runner = engine.runner
    assert runner is not None
    await until(lambda: not runner.runs)
    clock.jump_seconds = jump
    await engine.tasks.send(message("second", task_id=first.task.record.task_id))
    with at_most(20.0):
        task = await answer(engine, first)
    assert [entry.text for entry in task.history] == ["first", "did first", "second", "did second"]
    assert slept[-1] - slept[0] >= 1_000_000


async def test_a_sleeping_task_can_be_cancelled(stage: Stage) -> None:
    """A task that sleeps for a day is cancelled at once."""

    async def worker(ctx: TaskContext) -> None:
        await ctx.sleep(86_400)
        await ctx.complete()

    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message())
    runner = engine.runner
    assert runner is not None
    await until(lambda: not runner.runs)
    with at_most(2.0):
        assert (await engine.tasks.cancel(sent.task.record.task_id)).view.state is TaskState.canceled
    assert await one_end(engine, sent.task.record.task_id) is TaskState.canceled


async def test_a_cancel_just_before_the_sleep(stage: Stage) -> None:
    """A cancel that arrives while the task is about to sleep takes effect at once."""
    gate = asyncio.Event()

    async def worker(ctx: TaskContext) -> None:
        await gate.wait()
        await ctx.sleep(86_400)
        await ctx.complete()

    engine = await stage.engine(worker, cancel_seconds=30.0)
    front = await stage.engine()
    kernel = stage.lines[engine].kernel

    async def late(partition: str, name: str, *args: Any, **more: Any) -> Any:
        if name == "task_inbox":
            await asyncio.sleep(0.1)
        return await kernel.read_log(partition, name, *args, **more)

    stage.lines[engine].read_log = late  # type: ignore[attr-defined]
    sent = await engine.tasks.send(message())
    task_id = sent.task.record.task_id
    cancel = asyncio.create_task(front.tasks.cancel(task_id, seconds=10.0))
    await until(lambda: _posted(front, task_id))
    gate.set()
    with at_most(5.0):
        assert (await cancel).view.state is TaskState.canceled


async def _posted(engine: TaskEngine, task_id: str) -> bool:
    return (await engine.kernel.log_state("~anonymous", "task_inbox", task_id)).head > 0


async def test_a_message_wakes_a_sleeper(stage: Stage) -> None:
    """A message to a sleeping task is received, and the sleep continues to its own end."""

    async def worker(ctx: TaskContext) -> None:
        if ctx.user_text == "first":
            await ctx.sleep(0.4)
        await ctx.respond(f"did {ctx.user_text}")

    engine = await stage.engine(worker, sleep_hold_seconds=0.05)
    first = await engine.tasks.send(message("first"))
    runner = engine.runner
    assert runner is not None
    await until(lambda: not runner.runs)
    await engine.tasks.send(message("second", task_id=first.task.record.task_id))
    task = await answer(engine, first)
    assert [entry.text for entry in task.history] == ["first", "did first", "second", "did second"]


async def test_a_sleeper_is_interrupted(stage: Stage) -> None:
    """With the policy interrupt, a message does not wait until a sleeping task wakes."""

    async def worker(ctx: TaskContext) -> None:
        if ctx.user_text == "first":
            await ctx.sleep(86_400)
        await ctx.respond(f"did {ctx.user_text}")

    engine = await stage.engine(worker, double_text="interrupt")
    first = await engine.tasks.send(message("first"))
    runner = engine.runner
    assert runner is not None
    await until(lambda: not runner.runs)
    second = await engine.tasks.send(message("second", task_id=first.task.record.task_id))
    with at_most(5.0):
        task = await answer(engine, second)
    assert [entry.text for entry in task.history] == ["first", "second", "did second"]


async def test_a_short_sleep_stays_in_the_process(stage: Stage) -> None:
    runs = []

    async def worker(ctx: TaskContext) -> None:
        runs.append(1)
        await ctx.sleep(0)
        await ctx.sleep(0.02)
        await ctx.complete()

    engine = await stage.engine(worker)
    assert (await ask(engine)).status.state is TaskState.completed
    assert runs == [1]
