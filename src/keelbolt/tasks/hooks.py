"""Lifecycle hooks: called after a change is committed. Their errors are logged and have no other effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from keelbolt.protocol.types import TaskState

logger = logging.getLogger("keelbolt.tasks")

Hook = Callable[[str, TaskState], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LifecycleHooks:
    """Hooks get the task's id and new state. They run in the process that wrote the state, if it has a worker."""

    on_state_change: Hook | None = None
    on_working: Hook | None = None
    on_turn_end: Hook | None = None
    on_terminal: Hook | None = None
    _telling: dict[str, asyncio.Future[None]] = field(default_factory=dict, init=False, repr=False, compare=False)

    async def tell(self, task_id: str, state: TaskState) -> None:
        """Call the hooks, after earlier calls for this task have finished, so that calls stay in order."""
        before = self._telling.get(task_id)
        finished = self._telling[task_id] = asyncio.get_running_loop().create_future()
        try:
            if before is not None:
                await asyncio.wait([before])
            await self._tell(task_id, state)
        finally:
            finished.set_result(None)
            if self._telling.get(task_id) is finished:
                del self._telling[task_id]

    async def _tell(self, task_id: str, state: TaskState) -> None:
        await self._call(self.on_state_change, task_id, state)
        if state is TaskState.working:
            await self._call(self.on_working, task_id, state)
        if state.terminal or state.paused:
            await self._call(self.on_turn_end, task_id, state)
        if state.terminal:
            await self._call(self.on_terminal, task_id, state)

    async def _call(self, hook: Hook | None, task_id: str, state: TaskState) -> None:
        if hook is None:
            return
        try:
            await hook(task_id, state)
        except Exception:
            logger.exception("a lifecycle hook failed for task %s (%s)", task_id, state.name)
