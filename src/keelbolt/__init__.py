"""Keelbolt keeps what AI agents must not lose.

    from keelbolt import A2AServer, AgentCardConfig, TaskContext, Worker

The names below are loaded when they are first used: `import keelbolt` itself loads no engine, no server and no command
line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keelbolt.client import A2AClient
    from keelbolt.errors import (
        ConcurrencyError,
        ContentTypeNotSupportedError,
        ContextMismatchError,
        InvalidAgentResponseError,
        KeelboltError,
        TaskNotAcceptingMessagesError,
        TaskNotCancelableError,
        TaskNotFoundError,
        TaskTerminalStateError,
        UnsupportedOperationError,
    )
    from keelbolt.kernel import open_storage
    from keelbolt.protocol.card import (
        AgentCardConfig,
        CapabilitiesConfig,
        ExtensionConfig,
        ProviderConfig,
        SignatureConfig,
        SkillConfig,
    )
    from keelbolt.protocol.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
    from keelbolt.server import A2AServer
    from keelbolt.server.settings import ServerSettings
    from keelbolt.tasks import (
        Dependency,
        Done,
        FileInfo,
        LifecycleHooks,
        TaskContext,
        TaskEngine,
        TaskManager,
        TaskSettings,
        Worker,
    )
    from keelbolt.tasks.storage import (
        ArtifactWrite,
        InMemoryStorage,
        ListTasksQuery,
        ListTasksResult,
        PostgreSQLStorage,
        RedisStorage,
        SQLiteStorage,
        Storage,
    )

__version__ = "0.1.0"

__all__ = [
    "A2AClient",
    "A2AServer",
    "AgentCardConfig",
    "Artifact",
    "ArtifactWrite",
    "CapabilitiesConfig",
    "ConcurrencyError",
    "ContentTypeNotSupportedError",
    "ContextMismatchError",
    "Dependency",
    "Done",
    "ExtensionConfig",
    "FileInfo",
    "InMemoryStorage",
    "InvalidAgentResponseError",
    "KeelboltError",
    "LifecycleHooks",
    "ListTasksQuery",
    "ListTasksResult",
    "Message",
    "Part",
    "PostgreSQLStorage",
    "ProviderConfig",
    "RedisStorage",
    "Role",
    "SQLiteStorage",
    "ServerSettings",
    "SignatureConfig",
    "SkillConfig",
    "Storage",
    "Task",
    "TaskContext",
    "TaskEngine",
    "TaskManager",
    "TaskNotAcceptingMessagesError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskSettings",
    "TaskState",
    "TaskStatus",
    "TaskTerminalStateError",
    "UnsupportedOperationError",
    "Worker",
    "open_storage",
]

_NAMES = {
    "keelbolt.client": ("A2AClient",),
    "keelbolt.errors": (
        "ConcurrencyError",
        "ContentTypeNotSupportedError",
        "ContextMismatchError",
        "KeelboltError",
        "InvalidAgentResponseError",
        "TaskNotAcceptingMessagesError",
        "TaskNotCancelableError",
        "TaskNotFoundError",
        "TaskTerminalStateError",
        "UnsupportedOperationError",
    ),
    "keelbolt.protocol.card": (
        "AgentCardConfig",
        "CapabilitiesConfig",
        "ExtensionConfig",
        "ProviderConfig",
        "SignatureConfig",
        "SkillConfig",
    ),
    "keelbolt.protocol.types": (
        "Artifact",
        "Message",
        "Part",
        "Role",
        "Task",
        "TaskState",
        "TaskStatus",
    ),
    "keelbolt.server": ("A2AServer",),
    "keelbolt.server.settings": ("ServerSettings",),
    "keelbolt.kernel": ("open_storage",),
    "keelbolt.tasks": (
        "Dependency",
        "Done",
        "FileInfo",
        "LifecycleHooks",
        "TaskContext",
        "TaskEngine",
        "TaskManager",
        "TaskSettings",
        "Worker",
    ),
    "keelbolt.tasks.storage": (
        "ArtifactWrite",
        "InMemoryStorage",
        "ListTasksQuery",
        "ListTasksResult",
        "PostgreSQLStorage",
        "RedisStorage",
        "SQLiteStorage",
        "Storage",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'keelbolt' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
