"""`ctx.ask`: a question in the middle of a turn, whose answer is returned by the call."""

from __future__ import annotations

import asyncio

from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from tests.integration.tasks.stage import Stage, ask, state_of, until


async def test_the_answer_returns_to_the_question_and_recorded_steps_are_not_repeated(stage: Stage) -> None:
    booked: list[str] = []

    async def book() -> str:
        booked.append("room")
        return "room 7"

    async def worker(ctx: TaskContext) -> None:
        room = await ctx.step("book", book)
        colour = await ctx.ask("Which colour?", data={"choices": ["red", "blue"]})
        size = await ctx.ask("Which size?")
        await ctx.complete(f"{ctx.user_text}: {room}, {colour.text}, {size.text}")

    engine = await stage.engine(worker)
    task = await ask(engine, "go")
    assert task.status.state is TaskState.input_required
    assert task.status.message is not None
    assert [part.text or part.data for part in task.status.message.parts] == [
        "Which colour?",
        {"choices": ["red", "blue"]},
    ]
    task = await ask(engine, "blue", task_id=task.id)
    assert task.status.state is TaskState.input_required
    assert task.status.message is not None
    assert task.status.message.text == "Which size?"
    done = await ask(engine, "large", task_id=task.id)
    assert done.artifacts[0].parts[0].text == "go: room 7, blue, large"
    assert booked == ["room"]


async def test_a_repeated_question_is_asked_twice(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        answers = [(await ctx.ask("Next?")).text for _ in range(2)]
        await ctx.complete(" ".join(answers))

    engine = await stage.engine(worker)
    task = await ask(engine, "go")
    task = await ask(engine, "one", task_id=task.id)
    assert task.status.state is TaskState.input_required
    assert (await ask(engine, "two", task_id=task.id)).artifacts[0].parts[0].text == "one two"


async def test_a_changed_question_is_asked_again(stage: Stage) -> None:
    """An answer counts only for the question that the user saw."""
    files = 5

    async def worker(ctx: TaskContext) -> None:
        answer = await ctx.ask(f"Delete {files} files?")
        await ctx.complete(f"{files} {answer.text}")

    engine = await stage.engine(worker)
    task = await ask(engine, "go")
    files = 7
    task = await ask(engine, "yes", task_id=task.id)
    assert task.status.state is TaskState.input_required
    assert task.status.message is not None
    assert task.status.message.text == "Delete 7 files?"
    assert (await ask(engine, "sure", task_id=task.id)).artifacts[0].parts[0].text == "7 sure"


async def test_a_step_that_asks_is_not_in_doubt_but_a_concurrent_one_is(stage: Stage) -> None:
    begun = asyncio.Event()
    paid: list[str] = []

    async def worker(ctx: TaskContext) -> None:
        async def confirm() -> str:
            await begun.wait()
            return (await ctx.ask("Sure?")).text

        async def pay() -> str:
            begun.set()
            await asyncio.sleep(60)
            paid.append("paid")
            return "paid"

        paying = asyncio.create_task(ctx.step("pay", pay))
        sure = await ctx.step("confirm", confirm)
        await ctx.complete(f"{sure} {await paying}")

    engine = await stage.engine(worker)
    task = await ask(engine, "go")
    assert task.status.message is not None
    assert task.status.message.text == "Sure?"
    task = await ask(engine, "yes", task_id=task.id)
    assert task.status.state is TaskState.input_required
    assert task.status.message is not None
    assert "'pay'" in task.status.message.text
    assert paid == []


async def test_another_process_gets_the_answer(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.complete((await ctx.ask("Well?")).text)

    first = await stage.engine(worker)
    task = await ask(first, "go")
    await stage.crash(first)
    second = await stage.engine(worker)
    assert (await ask(second, "fine", task_id=task.id)).artifacts[0].parts[0].text == "fine"


async def test_a_cancel_while_the_question_is_open_ends_the_task(stage: Stage) -> None:
    async def worker(ctx: TaskContext) -> None:
        await ctx.ask("Well?")

    engine = await stage.engine(worker)
    task = await ask(engine, "go")
    await engine.tasks.cancel(task.id)

    async def gone() -> bool:
        return await state_of(engine, task.id) is TaskState.canceled

    await until(gone)
