"""Admission: an agent's own check of a message before a task exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.server.caller import Caller
from keelbolt.tasks.manager import TaskManager


@dataclass(frozen=True, slots=True)
class Admitted:
    """``task_id``: the task that the message continues. ``metadata``: the metadata of the task that it creates."""

    task_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Admission(Protocol):
    """Checks every message that an `A2AServer` receives, for all bindings and versions.

    It also decides on the media types of the parts; the input modes of the card are not checked.
    """

    async def admit(self, request: SendMessageRequest, caller: Caller, tasks: TaskManager) -> Admitted:
        """Admit the message, or raise the error to return to the caller."""
