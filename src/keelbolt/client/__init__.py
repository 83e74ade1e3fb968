"""Clients of A2A agents: `A2AClient`, whose streams reconnect by themselves, and `SyncA2AClient` without asyncio.

Names are imported at first use, httpx2 with the first request. The client never imports the server, the tasks or the
storage.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keelbolt.client.card_fetcher import AgentCardFetcher
    from keelbolt.client.client import A2AClient
    from keelbolt.client.events import Event, TaskList, text_of
    from keelbolt.client.streams import Reconnect
    from keelbolt.client.sync import SyncA2AClient
    from keelbolt.errors import (
        A2AClientError,
        A2AConnectionError,
        A2ADiscoveryError,
        A2AResponseError,
        A2AServerError,
        A2ATimeoutError,
        CardSignatureError,
        TaskNotCancelableError,
        TaskNotFoundError,
    )
    from keelbolt.protocol.requests import PushConfig, TaskPage
    from keelbolt.protocol.types import (
        Artifact,
        Message,
        Part,
        Role,
        Task,
        TaskArtifactUpdateEvent,
        TaskState,
        TaskStatus,
        TaskStatusUpdateEvent,
    )

__all__ = [
    "A2AClient",
    "A2AClientError",
    "A2AConnectionError",
    "A2ADiscoveryError",
    "A2AResponseError",
    "A2AServerError",
    "A2ATimeoutError",
    "AgentCardFetcher",
    "Artifact",
    "CardSignatureError",
    "Event",
    "Message",
    "Part",
    "PushConfig",
    "Reconnect",
    "Role",
    "SyncA2AClient",
    "Task",
    "TaskArtifactUpdateEvent",
    "TaskList",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskPage",
    "TaskState",
    "TaskStatus",
    "TaskStatusUpdateEvent",
    "text_of",
]

_HOMES = {
    "A2AClient": "keelbolt.client.client",
    "AgentCardFetcher": "keelbolt.client.card_fetcher",
    "Event": "keelbolt.client.events",
    "PushConfig": "keelbolt.protocol.requests",
    "Reconnect": "keelbolt.client.streams",
    "SyncA2AClient": "keelbolt.client.sync",
    "TaskList": "keelbolt.client.events",
    "TaskPage": "keelbolt.protocol.requests",
    "text_of": "keelbolt.client.events",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'keelbolt.client' has no attribute {name!r}")
    home = _HOMES.get(name) or ("keelbolt.errors" if name.endswith("Error") else "keelbolt.protocol.types")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
