"""Searching tasks by the text of requests and responses, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.operations.task_lists import Summaries, TaskFilter
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskContext
from keelbolt.tasks.engine import TaskEngine
from keelbolt.tasks.families import TEXTS
from keelbolt.tasks.listing import ListTasksQuery, folded
from keelbolt.tasks.sweep import erase_task, trim_log
from tests.integration.tasks.stage import Stage, message

ASKED = [
    "Bake a cake in ZÜRICH",
    "Wie spät ist es in Zurich?",
    "北京的天气怎么样",
    "한국의 날씨",
    "Plan: 100% cotton_shirts",
    "x",
]


async def worker(ctx: TaskContext) -> None:
    if ctx.user_text == "hold":
        await asyncio.sleep(60)
    await ctx.emit_data_artifact({"city": "Genève", "apiKey": "s3cr3t"})
    await ctx.complete(f"The answer is {len(ctx.user_text)} crumbs")


async def found(engine: TaskEngine, words: str, **more: object) -> list[str]:
    """Return the ids of the tasks that a search finds, newest first."""
    query = ListTasksQuery.model_validate({"page_size": 50, **more})
    page = await Summaries(engine.store).search(engine.tasks.scope(ANONYMOUS), query, TaskFilter(words))
    assert not page.next_page_token
    return [record.task_id for record in page.records]


async def asked(engine: TaskEngine, texts: Sequence[str]) -> list[str]:
    ids = []
    for text in texts:
        sent = await engine.tasks.send(message(text))
        ids.append((await engine.tasks.settled(sent)).task_id)
    return ids


async def test_words_of_questions_and_answers(stage: Stage) -> None:
    engine = await stage.engine(worker)
    cake, time, weather, korean, plan, x = await asked(engine, ASKED)
    for _ in range(2):  # first from the logs, then from the stored index
        assert await found(engine, "zurich") == [time, cake]
        assert await found(engine, "ZÜRICH bake") == [cake]
        assert await found(engine, "天气") == [weather]
        assert await found(engine, "날씨") == [korean]
        assert await found(engine, "100% cotton_") == [plan]
        assert await found(engine, "crumbs cotton") == [plan]
        assert set(await found(engine, "geneve")) == {cake, time, weather, korean, plan, x}
        assert await found(engine, "s3cr3t") == []
        assert await found(engine, "nothing-like-this") == []
        assert await found(engine, cake[-12:].upper()) == [cake]
        assert await found(engine, "zurich", status=TaskState.failed) == []
        await engine.kernel.flush()
    assert await engine.tasks.scope(ANONYMOUS).get(TEXTS, cake) is not None


async def test_a_running_task_is_found_and_not_indexed(stage: Stage) -> None:
    engine = await stage.engine(worker)
    sent = await engine.tasks.send(message("hold"))
    task_id = sent.task.record.task_id
    assert await found(engine, "hold") == [task_id]
    await engine.kernel.flush()
    assert await engine.tasks.scope(ANONYMOUS).get(TEXTS, task_id) is None


async def test_an_erased_task_is_not_found_and_its_text_is_removed(stage: Stage) -> None:
    engine = await stage.engine(worker)
    task_id, other = await asked(engine, ["gone canary", "stays canary"])
    scope = engine.tasks.scope(ANONYMOUS)
    assert await found(engine, "canary") == [other, task_id]
    await engine.kernel.flush()
    assert await erase_task(engine.store, scope, task_id)
    assert await found(engine, "canary") == [other]
    assert await scope.get(TEXTS, task_id) is None


async def test_a_search_during_an_erasure_leaves_nothing(stage: Stage) -> None:
    """Text that was read before the erasure is not written after it."""
    engine = await stage.engine(worker)
    scope = engine.tasks.scope(ANONYMOUS)
    ids = await asked(engine, [f"canary {number}" for number in range(5)])
    await asyncio.gather(found(engine, "canary"), *(erase_task(engine.store, scope, task_id) for task_id in ids))
    await engine.kernel.flush()
    assert [record for record in await scope.get_many(TEXTS, ids) if record is not None] == []


async def test_a_trimmed_log(stage: Stage) -> None:
    engine = await stage.engine(worker)
    (task_id,) = await asked(engine, ["whale song"])
    assert await trim_log(engine.store, engine.tasks.scope(ANONYMOUS), task_id)
    assert await found(engine, "whale crumbs") == [task_id]


@pytest.mark.parametrize(
    ("text", "compared"), [("ÀÉ", "ae"), ("Straße", "strasse"), ("ﬁne", "fine"), ("北京", "北京"), ("ABC", "abc")]
)
def test_how_text_is_compared(text: str, compared: str) -> None:
    assert folded(text) == compared
