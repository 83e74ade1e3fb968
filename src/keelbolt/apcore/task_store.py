"""The contract of a custom task store for an apcore agent: any object with these ten methods.

Tasks are plain dictionaries here: ``id``, ``contextId``, ``status`` (``state``, ``message`` as text, ``timestamp``),
``artifacts``, ``history`` (the previous statuses) and ``metadata``; `task_object` describes the other keys. A storage
URL (``storage="sqlite:///agent.db"``) stores more and survives more failures: the limitations of a task store are
logged at start.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, runtime_checkable

METHODS = (
    "save",
    "get",
    "list",
    "delete",
    "update_status",
    "save_push_config",
    "get_push_config",
    "delete_push_config",
    "save_context",
    "get_context",
)

Messages = list[Any]  # inside a class with a method `list`, that name is the method


@runtime_checkable
class TaskStore(Protocol):
    """Stores tasks, their push configs, and the messages of contexts."""

    async def save(self, task: dict[str, Any]) -> None:
        """Store a task; replace the one with the same id."""

    async def get(self, task_id: str) -> dict[str, Any] | None:
        """Return the task, or None."""

    async def list(self, context_id: str | None = None, cursor: str | None = None, limit: int = 50) -> dict[str, Any]:
        """Return a page of tasks: ``{"tasks": […], "nextCursor": str or None}``."""

    async def delete(self, task_id: str) -> bool:
        """Delete the task; return whether it existed."""

    async def update_status(self, task_id: str, status: dict[str, Any]) -> dict[str, Any]:
        """Set the status of the task and return the task. Raise KeyError if there is none."""

    async def save_push_config(self, task_id: str, config: dict[str, Any]) -> None:
        """Store the push config of the task."""

    async def get_push_config(self, task_id: str) -> dict[str, Any] | None:
        """Return the push config of the task, or None."""

    async def delete_push_config(self, task_id: str) -> bool:
        """Delete the push config; return whether it existed."""

    async def save_context(self, context_id: str, messages: Messages) -> None:
        """Store the messages of a context; replace the previous ones."""

    async def get_context(self, context_id: str) -> Messages | None:
        """Return the messages of a context, or None."""


# ------------------------------------------------------------------------------------------------------------ in memory


ENDED = ("completed", "failed", "canceled", "rejected")
MAX_LIMIT = 200


@dataclass(slots=True)
class _Kept:
    task: dict[str, Any]
    number: int  # in creation order
    created_at: float

    @property
    def ended(self) -> bool:
        return self.task["status"]["state"] in ENDED


class InMemoryTaskStore:
    """Stores up to ``max_capacity`` tasks in the memory of this process.

    When it is full, ended tasks older than ``ttl_seconds`` are evicted; if there are none, the oldest ended task; if
    there is none, the oldest task. A task's push config is evicted with it, and a context's messages with its last
    task. A context keeps its last ``max_context_messages`` messages.
    """

    def __init__(
        self,
        *,
        max_capacity: int = 10_000,
        ttl_seconds: float = 3600.0,
        max_context_messages: int = 100,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_capacity < 1 or max_context_messages < 1 or not ttl_seconds >= 0:
            raise ValueError("max_capacity and max_context_messages must be at least 1, and ttl_seconds at least 0")
        self.max_capacity = max_capacity
        self.ttl_seconds = ttl_seconds
        self.max_context_messages = max_context_messages
        self._clock = clock
        self._numbers = count(1)
        self._tasks: dict[str, _Kept] = {}
        self._in_context: dict[str, dict[str, None]] = {}  # context → its tasks, in creation order
        self._contexts: dict[str, Messages] = {}
        self._push_configs: dict[str, dict[str, Any]] = {}
        self._lock = asyncio.Lock()

    # ---------------------------------------------------------------------------------------------------------- tasks

    async def save(self, task: dict[str, Any]) -> None:
        task = copy.deepcopy(task)
        async with self._lock:
            known = self._tasks.get(task["id"])
            if known is not None:
                known.task = task
                return
            if len(self._tasks) >= self.max_capacity:
                self._make_room()
            self._tasks[task["id"]] = _Kept(task, next(self._numbers), self._clock())
            self._in_context.setdefault(task["contextId"], {})[task["id"]] = None

    async def get(self, task_id: str) -> dict[str, Any] | None:
        async with self._lock:
            kept = self._tasks.get(task_id)
            return copy.deepcopy(kept.task) if kept is not None else None

    async def list(self, context_id: str | None = None, cursor: str | None = None, limit: int = 50) -> dict[str, Any]:
        """Return tasks, newest first, at most 200 per page. Raise ValueError for an invalid cursor."""
        below = _number(cursor)
        limit = max(1, min(limit, MAX_LIMIT))
        async with self._lock:
            page: Messages = []
            last = 0
            for kept in self._newest(context_id):
                if below is not None and kept.number >= below:
                    continue
                if len(page) == limit:
                    return {"tasks": page, "nextCursor": str(last)}
                page.append(copy.deepcopy(kept.task))
                last = kept.number
            return {"tasks": page, "nextCursor": None}

    async def delete(self, task_id: str) -> bool:
        async with self._lock:
            return self._forget(task_id)

    async def update_status(self, task_id: str, status: dict[str, Any]) -> dict[str, Any]:
        """Set the status and append the previous one to the history. Raise KeyError if there is no such task."""
        async with self._lock:
            task = self._tasks[task_id].task
            task["history"] = [*(task.get("history") or ()), task["status"]]
            task["status"] = copy.deepcopy(status)
            return copy.deepcopy(task)

    # --------------------------------------------------------------------------------------- push configs and contexts

    async def save_push_config(self, task_id: str, config: dict[str, Any]) -> None:
        async with self._lock:
            self._push_configs[task_id] = copy.deepcopy(config)

    async def get_push_config(self, task_id: str) -> dict[str, Any] | None:
        async with self._lock:
            return copy.deepcopy(self._push_configs.get(task_id))

    async def delete_push_config(self, task_id: str) -> bool:
        async with self._lock:
            return self._push_configs.pop(task_id, None) is not None

    async def save_context(self, context_id: str, messages: Messages) -> None:
        async with self._lock:
            self._contexts[context_id] = copy.deepcopy(messages[-self.max_context_messages :])

    async def get_context(self, context_id: str) -> Messages | None:
        async with self._lock:
            return copy.deepcopy(self._contexts.get(context_id))

    # ------------------------------------------------------------------------------------------------------- eviction

    def _newest(self, context_id: str | None) -> Iterator[_Kept]:
        ids = self._tasks if context_id is None else self._in_context.get(context_id, {})
        return (self._tasks[task_id] for task_id in reversed(ids))

    def _make_room(self) -> None:
        expired = self._clock() - self.ttl_seconds
        old = [task_id for task_id, kept in self._tasks.items() if kept.created_at < expired]
        gone = [task_id for task_id in old if self._tasks[task_id].ended]
        if not gone:
            gone = [next((each for each, kept in self._tasks.items() if kept.ended), next(iter(self._tasks)))]
        for task_id in gone:
            self._forget(task_id)

    def _forget(self, task_id: str) -> bool:
        kept = self._tasks.pop(task_id, None)
        if kept is None:
            return False
        self._push_configs.pop(task_id, None)
        context_id = kept.task["contextId"]
        siblings = self._in_context.get(context_id, {})
        siblings.pop(task_id, None)
        if not siblings:
            self._in_context.pop(context_id, None)
            self._contexts.pop(context_id, None)
        return True


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()):
        raise ValueError("the cursor is not one of this store")
    return int(cursor)
