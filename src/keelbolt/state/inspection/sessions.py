"""Shows one session with a summary of the data that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from keelbolt.data.display import SOME, first_of, log_page, when
from keelbolt.kernel import Query, Record, Scope
from keelbolt.state.codec import decode
from keelbolt.state.families import (
    ARTIFACTS,
    BINDINGS,
    CONTEXTS,
    CONTROLS,
    PATCHES,
    RUNS,
    SESSIONS,
    SNAPSHOTS,
    STEERING,
    TASK_ORDER,
    TASKS,
    TRAJECTORIES,
    UPDATES,
)
from keelbolt.state.inspection.artifacts import described
from keelbolt.state.inspection.shown import original, reference, shown, shown_items


class SessionInspection:
    """The sessions of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def show(self, session: str) -> dict[str, Any] | None:
        """Return the session, or None. ``more`` names the lists that are limited to their last items."""
        ref = reference(session)
        noted, context, tasks, updates, steering = await asyncio.gather(
            self._scope.get(SESSIONS, ref),
            self._scope.get(CONTEXTS, ref),
            self._tasks(ref),
            self.updates(ref, limit=SOME),
            self.steering(ref, limit=SOME),
        )
        traces, bindings, artifacts, patches, controls = await asyncio.gather(
            self._of(TRAJECTORIES, ref, "saved", _trace),
            self._of(BINDINGS, ref, "saved", _body),
            self._of(ARTIFACTS, ref, "rank", described),
            self._of(PATCHES, ref, "arrived", _body),
            self._of(CONTROLS, ref, "arrived", _body),
        )
        lists: dict[str, tuple[list[Any], bool]] = {
            "tasks": tasks,
            "updates": (updates["entries"], updates["more"]),
            "steering": (steering["entries"], steering["more"]),
            "traces": traces,
            "bindings": bindings,
            "artifacts": artifacts,
            "patches": patches,
            "controls": controls,
        }
        if noted is None and context is None and not any(found for found, _ in lists.values()):
            return None
        return {
            "id": decode(noted.body) if noted is not None else original(ref),
            "ref": ref,
            "seen": when(noted.fields.get("seen")) if noted is not None else None,
            "context": shown(context.body) if context is not None else None,
            **{name: found for name, (found, _) in lists.items()},
            "more": [name for name, (_, more) in lists.items() if more],
        }

    async def task(self, session: str, task: str) -> dict[str, Any] | None:
        """Return one task with the context with which it was started, or None."""
        key = f"{reference(session)}/{reference(task)}"
        found, context = await asyncio.gather(self._scope.get(TASKS, key), self._scope.get(SNAPSHOTS, key))
        if found is None:
            return None
        return {**shown(found.body), "context_snapshot": shown(context.body) if context is not None else None}

    async def updates(self, session: str, *, after: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the updates after this seq; without one, the last updates."""
        return await self._log(UPDATES, session, after, limit)

    async def steering(self, session: str, *, after: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the steering events after this seq; without one, the last events."""
        return await self._log(STEERING, session, after, limit)

    async def _log(self, log: str, session: str, after: int | None, limit: int) -> dict[str, Any]:
        return await log_page(self._scope, log, reference(session), shown_items, after=after, limit=limit, last=True)

    async def _tasks(self, ref: str) -> tuple[list[dict[str, Any]], bool]:
        """Return the last tasks, the oldest of them first, each with the process that runs it."""
        came = await self._scope.read_log(TASK_ORDER, ref, limit=SOME, backward=True)
        keys = [f"{ref}/{entry.data.decode()}" for entry in reversed(came.entries)]
        tasks, runs = await asyncio.gather(self._scope.get_many(TASKS, keys), self._scope.get_many(RUNS, keys))
        running = [run.key for run in runs if run is not None]
        work = await asyncio.gather(*(self._scope.work(RUNS, key) for key in running))
        holders = {key: item.holder for key, item in zip(running, work, strict=True) if item is not None}
        found = [
            {**shown(task.body), "ref": task.key.rpartition("/")[2], "holder": holders.get(task.key)}
            for task in tasks
            if task is not None
        ]
        return found, came.head - came.floor > SOME

    async def _of(self, collection: str, ref: str, order: str, show: Callable[[Record], Any]) -> tuple[list[Any], bool]:
        query = Query(collection, {"session": ref}, order=order, newest_first=True)
        return await first_of(self._scope, query, show)


def _trace(record: Record) -> dict[str, Any]:
    ref = record.key.partition("/")[0]
    trace = original(ref) if not ref.startswith("~") else decode(record.body)["trace_id"]
    return {"id": trace, "ref": ref, "saved": when(record.fields.get("saved")), "size": len(record.body)}


def _body(record: Record) -> Any:
    return shown(record.body)
