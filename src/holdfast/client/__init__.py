"""Call agents: `A2AClient`, whose streams go on by themselves, and `SyncA2AClient` for programs without a loop.

Nothing of the server, the tasks or the storage is loaded here; httpx2 is, with the first request.
"""

from __future__ import annotations

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
