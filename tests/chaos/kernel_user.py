"""A user of the kernel: writes commits of several parts, checks the store, and erases tasks that ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from keelbolt.auth.principal import Principal
from keelbolt.data import Subject, erase
from keelbolt.errors import KeelboltError, SubjectNotFound
from keelbolt.kernel import Append, Collection, Draft, Put, open_storage
from keelbolt.protocol.types import TaskState
from keelbolt.tasks import TaskEngine
from keelbolt.tasks.listing import ListTasksQuery
from tests.chaos.agent import OWNERS
from tests.chaos.history import History, pace, rotating

PARTITION = "chaos"
FAMILIES = (Collection("pair"),)
PAUSE_SECONDS = 0.2
_numbers = itertools.count()


class KernelUser:
    """Works on keys that all users share."""

    def __init__(self, engine: TaskEngine, history: History, seed: int) -> None:
        self._engine = engine
        self._kernel = engine.kernel
        self._history = history
        self._dice = random.Random(seed)

    async def run(self) -> None:
        """Run until the storage fails."""
        kinds = {self.erase: 4, self.pair: 6, self.group: 6, self.look: 1}
        while True:
            await self._dice.choices(list(kinds), list(kinds.values()))[0]()
            await asyncio.sleep(pace() * self._dice.uniform(0, 2 * PAUSE_SECONDS))

    def _next(self) -> str:
        return f"{self._history.id}-{next(_numbers)}"

    async def pair(self) -> None:
        """Write a record and an entry in one commit: version n of the record goes with entry n."""
        key, name = rotating("pair"), self._next()
        asked = self._history.ask("pair", pair=key, name=name)
        entry = Append("pair", key, (Draft("a", name.encode()),))
        await self._kernel.commit(PARTITION, Put("pair", key, name.encode()), entry)
        self._history.answer(asked, "pair")

    async def group(self) -> None:
        """Append an entry to each of two streams, in one commit."""
        key, name = rotating("group"), self._next()
        asked = self._history.ask("group", group=key, name=name)
        entries = (Draft("a", name.encode()),)
        await self._kernel.commit(PARTITION, Append("left", key, entries), Append("right", key, entries))
        self._history.answer(asked, "group")

    async def look(self) -> None:
        """Check the whole store, while other processes use it."""
        asked = self._history.ask("look")
        problems = [str(problem) async for problem in self._kernel.check()]
        self._history.answer(asked, "look", problems=problems)

    async def erase(self) -> None:
        """Erase a task that has ended."""
        owner = self._dice.choice(OWNERS)
        query = ListTasksQuery(status=TaskState.completed, page_size=20)
        page = await self._engine.tasks.list(query, Principal(owner))
        if not page.tasks:
            return
        task: Any = self._dice.choice(page.tasks)
        task_id = from_json(task)["id"] if isinstance(task, bytes) else task.id
        asked = self._history.ask("erase", task=task_id)
        with contextlib.suppress(SubjectNotFound):  # another process did it first, so it is gone as well
            await erase(self._kernel, Subject(kind="task", id=task_id, owner=owner))
        self._history.answer(asked, "erase", task=task_id)


async def _run(url: str, folder: str, seed: str) -> None:
    history = History(Path(folder), "kernel")
    while True:
        try:
            async with open_storage(url, declare=FAMILIES) as kernel, TaskEngine(kernel, None) as engine:
                await KernelUser(engine, history, int(seed)).run()
        except KeelboltError:
            await asyncio.sleep(PAUSE_SECONDS)


def run(url: str, folder: str, seed: str) -> None:
    """Run until the process ends."""
    asyncio.run(_run(url, folder, seed))
