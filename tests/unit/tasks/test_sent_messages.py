"""The stored form of a sent message."""

from __future__ import annotations

from pydantic_core import from_json

from keelbolt.kernel import open_storage
from keelbolt.protocol.types import Message, Part, Role
from keelbolt.tasks import TaskEngine
from keelbolt.tasks.families import EVENTS, SENDS
from keelbolt.tasks.settings import TaskSettings


async def test_ids_that_are_null_are_written_once() -> None:
    """A message whose task and context are None is stored with its assigned ids, each once."""
    message = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")], task_id=None, context_id=None)
    async with open_storage("memory:") as kernel, TaskEngine(kernel) as engine:
        sent = await engine.tasks.send(message)
        page = await sent.task.scope.read_log(EVENTS, sent.task.task_id)
    stored = page.entries[0].data
    assert stored.count(b'"taskId"') == stored.count(b'"contextId"') == 1
    assert from_json(stored)["taskId"] == sent.task.task_id


async def test_without_stored_ids_a_repeat_is_a_new_task() -> None:
    """With repeated_send="new" the same message creates another task, and no key is stored."""
    message = Message(message_id="1", role=Role.user, parts=[Part(text="Hello")])
    settings = TaskSettings.of({}, repeated_send="new")
    async with open_storage("memory:") as kernel, TaskEngine(kernel, settings=settings) as engine:
        first, second = await engine.tasks.send(message), await engine.tasks.send(message)
        assert first.task.task_id != second.task.task_id
        assert await first.task.scope.get(SENDS, "1") is None
