"""Stops the coroutines of modules that outlive their turn."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

HEED_SECONDS = 2.0


class Running:
    """The asyncio tasks that run for one turn.

    When a module's time is over, apcore stops waiting but lets it run, beside the process that takes its task over.
    Here its cancel token is set, it has two seconds to end, and then it is cancelled. (A thread can't be cancelled.)
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._own = asyncio.current_task()
        self._tasks: set[asyncio.Task[Any]] = set()

    def note(self) -> None:
        """Register the current asyncio task, unless it is the turn's own or runs in another thread's loop."""
        task = asyncio.current_task()
        if task is not None and task is not self._own and asyncio.get_running_loop() is self._loop:
            self._tasks.add(task)

    def stop(self) -> None:
        """Cancel the tasks that still run HEED_SECONDS after the turn ended."""
        for task in self._tasks:
            if not task.done():
                self._loop.call_later(HEED_SECONDS, task.cancel)


running_var: ContextVar[Running | None] = ContextVar("apcore_running", default=None)
