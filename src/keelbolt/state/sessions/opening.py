"""Opening a session: everything that is stored of it, read in one go, and what dead processes left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keelbolt.state.sessions.owner import Run
from keelbolt.state.sessions.patches import PendingContextPatch
from keelbolt.state.types.steering import SteeringEvent
from keelbolt.state.types.tasks import TaskType
from keelbolt.storage import Kernel

if TYPE_CHECKING:
    from keelbolt.state.sessions.controls import Controls
    from keelbolt.state.sessions.core import SessionCore
    from keelbolt.state.sessions.merging import PatchDesk


@dataclass(frozen=True, slots=True)
class Found:
    """What is stored of a session beside its tasks."""

    patches: Sequence[PendingContextPatch] = ()
    controls: Sequence[SteeringEvent] = ()
    runs: Sequence[Run] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """What the session has to go on with: the last task in front, and tasks of processes that died."""

    foreground: str | None
    orphans: Sequence[Run]


async def restore(core: SessionCore, patches: PatchDesk, controls: Controls) -> Opened:
    """Put what is stored into the parts of a session."""

    async def load(kernel: Kernel) -> Found:
        waiting, demands, runs = await asyncio.gather(
            patches.load(kernel), controls.load(kernel), core.process.runs(kernel, core.session_id)
        )
        return Found(waiting, demands, runs)

    tasks, found = await asyncio.gather(
        core.store.list_tasks(core.session_id), core.ground.attempt(load, Found(), "hydrate")
    )
    core.registry.seed(tasks)
    patches.loaded(found.patches)
    controls.loaded(found.controls)
    core.unowned = {task.task_id for task in core.registry.active()} - {run.task_id for run in found.runs}
    orphans = await core.process.take_over(core.session_id) if found.runs else ()
    front = [task.task_id for task in tasks if task.task_type == TaskType.FOREGROUND]
    return Opened(front[-1] if front else None, orphans)
