"""Opens a session: reads all its stored data at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keelbolt.kernel import Scope
from keelbolt.state.sessions.context import PendingContextPatch
from keelbolt.state.sessions.process import SessionRun, list_runs
from keelbolt.state.types.steering import SteeringEvent
from keelbolt.state.types.tasks import TaskType

if TYPE_CHECKING:
    from keelbolt.state.sessions.controls import Controls
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.live_context import PatchManager


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The stored data of a session, except its tasks."""

    patches: Sequence[PendingContextPatch] = ()
    controls: Sequence[SteeringEvent] = ()
    runs: Sequence[SessionRun] = ()


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The last foreground task, and the tasks that a process runs or that lost their process."""

    foreground: str | None
    runs: Sequence[SessionRun]


async def restore(core: SessionCore, patches: PatchManager, controls: Controls) -> OpenedSession:
    """Load the stored data into the parts of a session."""

    async def load(scope: Scope) -> StoredSession:
        waiting, demands, runs = await asyncio.gather(
            patches.load(scope), controls.load(scope), list_runs(scope, core.session_id)
        )
        return StoredSession(waiting, demands, runs)

    tasks, found = await asyncio.gather(
        core.store.list_tasks(core.session_id), core.ground.attempt(load, StoredSession(), "hydrate")
    )
    core.registry.seed(tasks)
    patches.loaded(found.patches)
    controls.loaded(found.controls)
    core.unowned = {task.task_id for task in core.registry.active()} - {run.task_id for run in found.runs}
    front = [task.task_id for task in tasks if task.task_type == TaskType.FOREGROUND]
    return OpenedSession(front[-1] if front else None, found.runs)
