"""Where an apcore agent's tasks may be kept: any object with these ten methods.

Tasks are plain dictionaries here: ``id``, ``contextId``, ``status`` (``state``, ``message`` as text, ``timestamp``),
``artifacts``, ``history`` (the statuses before) and ``metadata``; `keelbolt.apcore.task_shapes` says what else is in
them. A storage URL (``storage="sqlite:///agent.db"``) keeps more, and survives more: what a task store
can't do is told in the log at the start.
"""

from __future__ import annotations

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

Messages = list[Any]  # in a class with a method `list`, that name is the method


@runtime_checkable
class TaskStore(Protocol):
    """Keeps tasks, who is to be told about them, and the messages of contexts."""

    async def save(self, task: dict[str, Any]) -> None:
        """Keep a task, in the place of one with the same id."""

    async def get(self, task_id: str) -> dict[str, Any] | None:
        """The task, or None."""

    async def list(self, context_id: str | None = None, cursor: str | None = None, limit: int = 50) -> dict[str, Any]:
        """A page of tasks: ``{"tasks": […], "nextCursor": str or None}``."""

    async def delete(self, task_id: str) -> bool:
        """Delete the task; answers whether there was one."""

    async def update_status(self, task_id: str, status: dict[str, Any]) -> dict[str, Any]:
        """Give the task this status; answers the task. KeyError if there is none."""

    async def save_push_config(self, task_id: str, config: dict[str, Any]) -> None:
        """Keep who is to be told about the task."""

    async def get_push_config(self, task_id: str) -> dict[str, Any] | None:
        """Who is to be told about the task, or None."""

    async def delete_push_config(self, task_id: str) -> bool:
        """Forget who is to be told; answers whether there was somebody."""

    async def save_context(self, context_id: str, messages: Messages) -> None:
        """Keep the messages of a context, in the place of those before."""

    async def get_context(self, context_id: str) -> Messages | None:
        """The messages of a context, or None."""
