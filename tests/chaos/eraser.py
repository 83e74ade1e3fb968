"""Erases tasks that ended, beside everything else that goes on."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from keelbolt.auth.principal import Principal
from keelbolt.data import Subject, erase
from keelbolt.errors import KeelboltError, SubjectNotFound
from keelbolt.protocol.types import TaskState
from keelbolt.storage import open_storage
from keelbolt.tasks import TaskEngine
from keelbolt.tasks.queries import ListTasksQuery
from tests.chaos.agent import OWNERS
from tests.chaos.history import History

PAUSE_SECONDS = 0.5


async def _erase_one(engine: TaskEngine, history: History, dice: random.Random) -> None:
    owner = dice.choice(OWNERS)
    query = ListTasksQuery(status=TaskState.completed, page_size=20)
    page = await engine.tasks.list(query, Principal(owner))
    if not page.tasks:
        return
    task: Any = dice.choice(page.tasks)
    task_id = from_json(task)["id"] if isinstance(task, bytes) else task.id
    asked = history.ask("erase", task=task_id)
    try:
        await erase(engine.kernel, Subject(kind="task", id=task_id, owner=owner))
    except SubjectNotFound:  # another eraser was faster
        return
    history.answer(asked, "erase", task=task_id)


async def _run(url: str, folder: str, seed: str) -> None:
    history, dice = History(Path(folder), "eraser"), random.Random(int(seed))
    while True:
        try:
            async with open_storage(url) as kernel, TaskEngine(kernel, None) as engine:
                while True:
                    await _erase_one(engine, history, dice)
                    await asyncio.sleep(dice.uniform(0, 2 * PAUSE_SECONDS))
        except KeelboltError:
            await asyncio.sleep(PAUSE_SECONDS)


def run(url: str, folder: str, seed: str) -> None:
    """Work until the process ends."""
    asyncio.run(_run(url, folder, seed))
