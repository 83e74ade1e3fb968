"""Whether a message is let in: asked before a task exists, by an agent that knows more than the protocol does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from keelbolt.protocol.requests import SendMessageRequest
from keelbolt.server.caller import Caller
from keelbolt.tasks.manager import TaskManager


@dataclass(frozen=True, slots=True)
class Admitted:
    """``task_id`` is the task that the message goes on with, ``metadata`` are those of the task that it makes."""

    task_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Admission(Protocol):
    """Given to an `A2AServer`, it looks at every message that is sent, whatever binding and version it came by.

    It answers for the media types of the parts too: those of the card are not checked then.
    """

    async def admit(self, request: SendMessageRequest, caller: Caller, tasks: TaskManager) -> Admitted:
        """Let the message in, or raise what the caller shall be told."""
