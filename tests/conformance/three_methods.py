"""A storage of tasks as a user might write it: the three required methods over dictionaries."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from keelbolt.errors import ConcurrencyError, TaskNotFoundError, TaskTerminalStateError
from keelbolt.protocol.types import Message, Task, TaskState, TaskStatus
from keelbolt.tasks.storage import ArtifactWrite, Storage


class ThreeMethods(Storage[Any]):
    """Stores tasks in this process."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.versions: dict[str, int] = {}
        self.keys: dict[tuple[str, str], str] = {}

    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        await asyncio.sleep(0)
        if task_id not in self.tasks:
            return None
        task = self.tasks[task_id].model_copy(deep=True)
        if history_length is not None:
            task.history = task.history[-history_length:] if history_length else []
        if not include_artifacts:
            task.artifacts = []
        return task

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        await asyncio.sleep(0)
        if idempotency_key is not None and (context_id, idempotency_key) in self.keys:
            return self.tasks[self.keys[context_id, idempotency_key]].model_copy(deep=True)
        task_id = str(uuid4())
        stored = message.model_copy(update={"task_id": task_id, "context_id": context_id}, deep=True)
        task = Task(id=task_id, context_id=context_id, status=_status(TaskState.submitted, None), history=[stored])
        self.tasks[task_id], self.versions[task_id] = task, 1
        if idempotency_key is not None:
            self.keys[context_id, idempotency_key] = task_id
        return task.model_copy(deep=True)

    async def update_task(
        self,
        task_id: str,
        state: TaskState | None = None,
        *,
        status_message: Message | None = None,
        artifacts: list[ArtifactWrite] | None = None,
        messages: list[Message] | None = None,
        task_metadata: dict[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> int:
        await asyncio.sleep(0)
        if task_id not in self.tasks:
            raise TaskNotFoundError(task_id)
        task, version = self.tasks[task_id], self.versions[task_id]
        if expected_version is not None and expected_version != version:
            raise ConcurrencyError(task_id, expected=expected_version, found=version)
        if state is not None:
            if task.status.state.terminal:
                raise TaskTerminalStateError(task_id, task.status.state)
            task.status = _status(state, status_message)
        for message in messages or ():
            task.history.append(message.model_copy(deep=True))
        for write in artifacts or ():
            _write(task, write)
        if task_metadata:
            task.metadata = {**(task.metadata or {}), **task_metadata}
        self.versions[task_id] = version + 1
        return version + 1


def _status(state: TaskState, message: Message | None) -> TaskStatus:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    copied = None if message is None else message.model_copy(deep=True)
    return TaskStatus(state=state, message=copied, timestamp=now)


def _write(task: Task, write: ArtifactWrite) -> None:
    new = write.artifact.model_copy(deep=True)
    for number, artifact in enumerate(task.artifacts):
        if artifact.artifact_id == new.artifact_id:
            if write.append:
                artifact.parts += new.parts
            else:
                task.artifacts[number] = new
            return
    task.artifacts = [*task.artifacts, new]
