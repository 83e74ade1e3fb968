"""Whether a message is let in: asked before a task exists, by an agent that knows more of messages than the protocol."""

from __future__ import annotations

from typing import Protocol

from holdfast.protocol.requests import SendMessageRequest
from holdfast.server.caller import Caller
from holdfast.tasks.manager import TaskManager


class Admission(Protocol):
    """Given to an `A2AServer`, it looks at every message that is sent, whatever binding and version it came by.

    It answers for the media types of the parts too: those of the card are not checked then.
    """

    async def admit(self, request: SendMessageRequest, caller: Caller, tasks: TaskManager) -> str | None:
        """Raise what the caller shall be told; or say which task the message goes on with, if it does not itself."""
