"""Call agents: `A2AClient`, whose streams go on by themselves, and `SyncA2AClient` for programs without a loop.

The names are loaded when they are first used, httpx2 with the first request; nothing of the server, the tasks or the
storage ever is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.backoff import Reconnect
    from holdfast.client.card_fetcher import AgentCardFetcher
    from holdfast.client.client import A2AClient
    from holdfast.client.events import Event, text_of
    from holdfast.client.pages import TaskList
    from holdfast.client.sync import SyncA2AClient
    from holdfast.errors import (
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
    from holdfast.protocol.requests import PushConfig, TaskPage
    from holdfast.protocol.types import (
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
    "A2AClient": "holdfast.client.client",
    "AgentCardFetcher": "holdfast.client.card_fetcher",
    "Event": "holdfast.client.events",
    "PushConfig": "holdfast.protocol.requests",
    "Reconnect": "holdfast.client.backoff",
    "SyncA2AClient": "holdfast.client.sync",
    "TaskList": "holdfast.client.pages",
    "TaskPage": "holdfast.protocol.requests",
    "text_of": "holdfast.client.events",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.client' has no attribute {name!r}")
    home = _HOMES.get(name) or ("holdfast.errors" if name.endswith("Error") else "holdfast.protocol.types")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
