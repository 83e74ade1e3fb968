"""A context id that is accepted on the wire works everywhere."""

from __future__ import annotations

import pytest

from keelbolt.errors import InvalidTaskRequest
from keelbolt.tasks import TaskContext
from keelbolt.tasks.listing import ListTasksQuery
from keelbolt.tasks.record import MAX_CONTEXT_ID, check_context_id, is_task_id
from keelbolt.tasks.storage import KernelStorage
from tests.integration.tasks.stage import Stage, ask

CONTEXTS = [
    "plain",
    " ",
    "a\tb\nc",
    "\x01\x7f\x85",
    "\u200d",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\ufeffe\u0301 \u2028 \u202e",
    "%2F/../~?#&",
    "x" * MAX_CONTEXT_ID,
    "\U0001f600" * MAX_CONTEXT_ID,
]


async def keep(ctx: TaskContext) -> None:
    await ctx.update_context({"said": ctx.user_text})
    await ctx.complete("kept")


async def test_every_context_id_of_the_wire_works(stage: Stage) -> None:
    """By its context id a task is listed, its context data is loaded and updated, and the context is deleted."""
    engine = await stage.engine(keep)
    storage: KernelStorage[dict[str, str]] = KernelStorage(await stage.kernel())
    for context_id in CONTEXTS:
        task = await ask(engine, "hello", context_id=context_id)
        assert task.context_id == context_id
        found = await storage.list_tasks(ListTasksQuery(context_id=context_id))
        assert [one.id for one in found.tasks] == [task.id]
        assert await storage.load_context(context_id) == {"said": "hello"}
        await storage.update_context(context_id, {"said": "more"})
        assert await storage.load_context(context_id) == {"said": "more"}
    for context_id in CONTEXTS:
        assert await storage.delete_context(context_id) == 1
        assert await storage.load_context(context_id) is None


@pytest.mark.parametrize("context_id", ["", "\0", "a\0b", "\ud800", "x" * (MAX_CONTEXT_ID + 1), None, 7])
async def test_invalid_context_ids(memory: Stage, context_id: str) -> None:
    """Every method applies the same rule; an empty id on the wire counts as absent."""
    with pytest.raises(InvalidTaskRequest, match="a context id must be"):
        check_context_id(context_id)
    storage: KernelStorage[dict[str, str]] = KernelStorage(await memory.kernel())
    for call in (storage.load_context, storage.delete_context):
        with pytest.raises(InvalidTaskRequest):
            await call(context_id)
    if isinstance(context_id, str) and context_id:
        engine = await memory.engine(keep)
        with pytest.raises(InvalidTaskRequest, match="a context id must be"):
            await ask(engine, "hello", context_id=context_id)


def test_task_ids() -> None:
    """The server assigns task ids; they are short and printable."""
    assert is_task_id("0198c2f4-7d6b-7000-8000-0123456789ab")
    assert not any(map(is_task_id, ("", "a\tb", "x" * 201)))
