"""The plain skills of the agent that `make run` serves behave as its card describes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from examples.demo.guide import Guide, card
from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role, Task
from keelbolt.tasks import TaskEngine, TaskState


class Talk:
    """Sends messages to the agent and waits until each task is settled."""

    def __init__(self, engine: TaskEngine) -> None:
        self.engine = engine
        self.count = 0

    async def say(self, text: str, **ids: Any) -> Task:
        self.count += 1
        message = Message(message_id=f"m{self.count}", role=Role.user, parts=[Part(text=text)], **ids)
        async with asyncio.timeout(20):
            task = await self.engine.tasks.settled(await self.engine.tasks.send(message))
            return await self.engine.store.task(task)


async def test_the_example_agent_counts_books_remembers_and_waits() -> None:
    async with open_storage("memory:") as kernel, TaskEngine(kernel, Guide()) as engine:
        talk = Talk(engine)
        counted = await talk.say("count to 3")
        assert [part.text for part in counted.artifacts[0].parts] == ["1 ", "2 ", "3 "]

        asked = await talk.say("book a table")
        assert asked.status.state is TaskState.input_required
        booked = await talk.say("eight", task_id=asked.id)
        assert booked.status.state is TaskState.completed
        assert booked.artifacts[0].parts[0].data["time"] == "eight"

        for answer, state in (("approve", TaskState.completed), ("no", TaskState.rejected)):
            asked = await talk.say("deploy the site")
            assert asked.status.state is TaskState.input_required
            assert (await talk.say(answer, task_id=asked.id)).status.state is state

        worked = await talk.say("work through 2 parcels")
        assert worked.artifacts[0].parts[0].text == "2 parcels, each packed once, by one process."

        for word in ("blue", "green"):
            await talk.say(f"remember {word}", context_id="c")
        known = await talk.say("what do you remember?", context_id="c")
        assert known.status.message is not None
        assert known.status.message.text == "I remember: blue, green."

        waited = await talk.say("wait 2")
        assert waited.status.message is not None
        assert "2 seconds are over" in waited.status.message.text


@pytest.mark.parametrize("skill", card.skills, ids=lambda skill: skill.id)
def test_every_skill_has_an_example(skill: Any) -> None:
    assert skill.examples
