"""Holdfast keeps what AI agents must not lose.

    from holdfast import A2AServer, AgentCardConfig, TaskContext, Worker

The names below are loaded when they are first used: `import holdfast` itself loads no engine, no server and no command
line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.errors import (
        ConcurrencyError,
        ContentTypeNotSupportedError,
        ContextMismatchError,
        HoldfastError,
        InvalidAgentResponseError,
        TaskNotAcceptingMessagesError,
        TaskNotCancelableError,
        TaskNotFoundError,
        TaskTerminalStateError,
        UnsupportedOperationError,
    )
    from holdfast.protocol.card import (
        AgentCardConfig,
        CapabilitiesConfig,
        ExtensionConfig,
        ProviderConfig,
        SignatureConfig,
        SkillConfig,
    )
    from holdfast.protocol.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
    from holdfast.server import A2AServer
    from holdfast.server.settings import ServerSettings
    from holdfast.storage import open_storage
    from holdfast.tasks import (
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
    from holdfast.tasks.storage import (
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
    "HoldfastError",
    "InMemoryStorage",
    "InvalidAgentResponseError",
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
    "holdfast.errors": (
        "ConcurrencyError",
        "ContentTypeNotSupportedError",
        "ContextMismatchError",
        "HoldfastError",
        "InvalidAgentResponseError",
        "TaskNotAcceptingMessagesError",
        "TaskNotCancelableError",
        "TaskNotFoundError",
        "TaskTerminalStateError",
        "UnsupportedOperationError",
    ),
    "holdfast.protocol.card": (
        "AgentCardConfig",
        "CapabilitiesConfig",
        "ExtensionConfig",
        "ProviderConfig",
        "SignatureConfig",
        "SkillConfig",
    ),
    "holdfast.protocol.types": (
        "Artifact",
        "Message",
        "Part",
        "Role",
        "Task",
        "TaskState",
        "TaskStatus",
    ),
    "holdfast.server": ("A2AServer",),
    "holdfast.server.settings": ("ServerSettings",),
    "holdfast.storage": ("open_storage",),
    "holdfast.tasks": (
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
    "holdfast.tasks.storage": (
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
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
