"""The public names of `import keelbolt`, and the modules that it must not load."""

from __future__ import annotations

import json
import subprocess
import sys

import keelbolt

EXPORTED = [
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
    "KeelboltError",
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


def test_the_public_names_are_pinned() -> None:
    assert sorted(keelbolt.__all__) == sorted(EXPORTED)
    for name in keelbolt.__all__:
        assert getattr(keelbolt, name) is not None


def test_import_loads_no_engine_server_or_command_line() -> None:
    program = "import json, sys, keelbolt; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(answer.stdout))

    allowed = {"keelbolt", "keelbolt.errors"}
    assert {name for name in loaded if name.partition(".")[0] == "keelbolt"} <= allowed
    assert not loaded & {"sqlite3", "asyncpg", "redis", "starlette", "uvicorn", "pydantic", "httpx2", "click", "rich"}
