"""The contract of a custom task store for an apcore agent: any object with these ten methods.

Tasks are plain dictionaries here: ``id``, ``contextId``, ``status`` (``state``, ``message`` as text, ``timestamp``),
``artifacts``, ``history`` (the previous statuses) and ``metadata``; `task_object` describes the other keys. A storage
URL (``storage="sqlite:///agent.db"``) stores more and survives more failures: the limitations of a task store are
logged at start.
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
