"""What is kept of a message that is sent."""

from __future__ import annotations

from pydantic_core import from_json

from holdfast.protocol.types import Message, Part, Role
from holdfast.storage import open_storage
from holdfast.tasks import TaskEngine
from holdfast.tasks.families import EVENTS


async def test_ids_that_are_null_are_written_once() -> None:
    """A message whose task and context are set to None is stored with the ids that it got, each of them once."""
    message = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")], task_id=None, context_id=None)
    async with open_storage("memory:") as kernel, TaskEngine(kernel) as engine:
        sent = await engine.tasks.send(message)
        page = await kernel.read_log(sent.task.partition, EVENTS, sent.task.task_id)
    stored = page.entries[0].data
    assert stored.count(b'"taskId"') == stored.count(b'"contextId"') == 1
    assert from_json(stored)["taskId"] == sent.task.task_id
