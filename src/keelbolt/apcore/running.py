"""The coroutines of modules that run for a turn: none of them outlives it for long.

apcore leaves a module to itself when its time is over, and so it would go on beside the process that takes its task
over. Here it is told by its cancel token, has two seconds to heed it, and is cancelled then. (A thread can't be.)
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

HEED_SECONDS = 2.0


class Running:
    """What runs for one turn."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._own = asyncio.current_task()
        self._tasks: set[asyncio.Task[Any]] = set()

    def note(self) -> None:
        """The task that asks runs for this turn; not the turn's own, and none of a loop in another thread."""
        task = asyncio.current_task()
        if task is not None and task is not self._own and asyncio.get_running_loop() is self._loop:
            self._tasks.add(task)

    def stop(self) -> None:
        """The turn is over: whatever still runs is cancelled soon."""
        for task in self._tasks:
            if not task.done():
                self._loop.call_later(HEED_SECONDS, task.cancel)


running_var: ContextVar[Running | None] = ContextVar("apcore_running", default=None)
