"""The task engine on a `TaskStore`: adapts its ten methods to the `Storage` that the engine writes to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from keelbolt.apcore.task_store import TaskStore
from keelbolt.errors import (
    ConcurrencyError,
    InvalidTaskRequest,
    TaskNotFoundError,
    TaskTerminalStateError,
)
from keelbolt.protocol.types import Artifact, Message, Role, Task, TaskState, TaskStatus, WireModel
from keelbolt.tasks.listing import ListTasksQuery, ListTasksResult, moment
from keelbolt.tasks.mirrored import OWNER, partition_of
from keelbolt.tasks.record import is_task_id
from keelbolt.tasks.storage import ArtifactWrite, Storage
from keelbolt.tasks.storage.kernel import json_of

PAGE = 200


class TaskStoreStorage(Storage[Any]):
    """Stores tasks in a `TaskStore`.

    A store has no versions and no transactions, so writes to one task are serialized here, and only one process may
    write to a store. A status change alone uses ``update_status``, every other write ``save``.
    """

    def __init__(self, store: TaskStore) -> None:
        self.store = store
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    # ----------------------------------------------------------------------------------------------------------- read

    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        found = await self.store.get(task_id) if is_task_id(task_id) else None
        if found is None:
            return None
        return _cut(task_of(found), history_length, include_artifacts=include_artifacts)

    async def get_version(self, task_id: str) -> int | None:
        found = await self.store.get(task_id) if is_task_id(task_id) else None
        return None if found is None else version_of(found)

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        """Return a page of tasks. The order of a store is undefined, so all tasks are read and the page is cut here."""
        return self._page([task_of(found) async for found in self._kept(query.context_id)], query)

    async def list_owned(self, query: ListTasksQuery, partition: str) -> ListTasksResult:
        """Return a page of the tasks of one owner."""
        kept = [task_of(found) async for found in self._kept(query.context_id)]
        owned = self._page([task for task in kept if partition_of(task) == partition], query)
        for task in owned.tasks:
            if task.metadata is not None and task.metadata.pop(OWNER, None) is not None and not task.metadata:
                task.metadata = None
        return owned

    def _page(self, kept: list[Task], query: ListTasksQuery) -> ListTasksResult:
        after = moment(query.status_timestamp_after) if query.status_timestamp_after is not None else None
        tasks = [task for task in kept if _matches(task, query, after)]
        tasks.sort(key=_place, reverse=True)
        rest = tasks
        if query.page_token:
            place = _read_token(query.page_token, query)
            rest = [task for task in tasks if _place(task) < place]
        page = rest[: query.page_size]
        token = _token(page[-1], query) if len(rest) > len(page) else ""
        shown = [_cut(task, query.history_length, include_artifacts=query.include_artifacts) for task in page]
        return ListTasksResult(tasks=shown, next_page_token=token, page_size=query.page_size, total_size=len(tasks))

    async def _kept(self, context_id: str | None) -> AsyncIterator[Object]:
        cursor: str | None = None
        while True:
            page = await self.store.list(context_id, cursor, PAGE)
            for found in page["tasks"]:
                yield found
            cursor = page.get("nextCursor")
            if cursor is None:
                return

    # ---------------------------------------------------------------------------------------------------------- write

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        json_of(message, "the message")
        if idempotency_key is None:
            return await self._create(context_id, message, None)
        async with self._lock(f"key/{len(context_id)}:{context_id}{idempotency_key}"):
            async for found in self._kept(context_id):
                if found.get("idempotencyKey") == idempotency_key:
                    return task_of(found)
            return await self._create(context_id, message, idempotency_key)

    async def _create(self, context_id: str, message: Message, key: str | None) -> Task:
        task_id = str(uuid4())
        said = message.model_copy(update={"task_id": task_id, "context_id": context_id})
        status = _status(TaskState.submitted, None)
        kept = task_object(Task(id=task_id, context_id=context_id, status=status, history=[said]), 1, [])
        if key is not None:
            kept["idempotencyKey"] = key
        await self.store.save(kept)
        await self._remember(context_id, kept["messages"])
        return task_of(kept)

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
        for value in (status_message, *(messages or ()), *(write.artifact for write in artifacts or ()), task_metadata):
            if value is not None:
                json_of(value, "the update")
        async with self._lock(task_id):
            found = await self.store.get(task_id) if is_task_id(task_id) else None
            if found is None:
                raise TaskNotFoundError(str(task_id))
            version = version_of(found)
            if expected_version is not None and expected_version != version:
                raise ConcurrencyError(task_id, expected=expected_version, found=version)
            before = TaskState(found["status"]["state"])
            if state is not None and before.terminal:
                raise TaskTerminalStateError(task_id, before)
            status = {**found["status"], "version": version + 1}
            if state is not None:
                status = status_object(_status(TaskState(state), status_message), version + 1)
            if state is not None and not (artifacts or messages or task_metadata):
                await self._update_status(task_id, status)
            else:
                if state is not None:
                    found["history"] = [*(found.get("history") or ()), found["status"]]
                found["status"] = status
                _write(found, artifacts or (), messages or (), task_metadata)
                await self.store.save(found)
            if messages:
                await self._remember(found["contextId"], [message_object(message) for message in messages])
            return version + 1

    async def _update_status(self, task_id: str, status: Object) -> None:
        try:
            await self.store.update_status(task_id, status)
        except KeyError:
            raise TaskNotFoundError(task_id) from None

    async def _remember(self, context_id: str, messages: list[Object]) -> None:
        """Append messages to the context's conversation, which spans its tasks."""
        async with self._lock(f"context/{context_id}"):
            said = await self.store.get_context(context_id) or []
            await self.store.save_context(context_id, [*said, *messages])

    # --------------------------------------------------------------------------------------------------- push configs

    async def keep_push_config(self, task_id: str, config_id: str, config: Any) -> None:
        """Store a push config; None removes it.

        A store has one dictionary per task: it holds all configs and the URL of the first.
        """
        async with self._lock(task_id):
            configs = await self.load_push_configs(task_id)
            configs.pop(config_id, None)
            if config is not None:
                configs[config_id] = config
            if not configs:
                await self.store.delete_push_config(task_id)
                return
            url = next(iter(configs.values())).get("config", {}).get("url")
            kept = {"taskId": task_id, "url": url, "status": "active", "configs": configs}
            await self.store.save_push_config(task_id, kept)

    async def load_push_configs(self, task_id: str) -> dict[str, Any]:
        found = await self.store.get_push_config(task_id) or {}
        return dict(found.get("configs") or {})

    # ------------------------------------------------------------------------------------------------------- deleting

    async def delete_task(self, task_id: str) -> bool:
        if not is_task_id(task_id):
            return False
        async with self._lock(task_id):
            await self.store.delete_push_config(task_id)
            return await self.store.delete(task_id)

    async def delete_context(self, context_id: str) -> int:
        ids = [found["id"] async for found in self._kept(context_id)]
        return sum([await self.delete_task(task_id) for task_id in ids])

    async def health_check(self) -> dict[str, Any]:
        """Check the store by reading a task that does not exist."""
        try:
            await self.store.get("00000000-0000-0000-0000-000000000000")
        except Exception as error:  # noqa: BLE001 - a custom store may raise anything
            return {"status": "unavailable", "detail": f"{type(error).__name__}: {error}"}
        return {"status": "ok"}


def _status(state: TaskState, message: Message | None) -> TaskStatus:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return TaskStatus(state=state, timestamp=now, **({"message": message} if message is not None else {}))


def _write(found: Object, artifacts: Any, messages: Any, metadata: dict[str, Any] | None) -> None:
    kept: list[Object] = found.setdefault("artifacts", [])
    for write in artifacts:
        place = next((one for one in kept if one.get("artifactId") == write.artifact.artifact_id), None)
        new = artifact_object(write.artifact, place["index"] if place is not None else len(kept))
        if place is None:
            kept.append(new)
        elif write.append:
            place.update({**new, "parts": [*place["parts"], *new["parts"]]})
        else:
            place.clear()
            place.update(new)
    found.setdefault("messages", []).extend(message_object(message) for message in messages)
    if metadata:
        found["metadata"] = {**(found.get("metadata") or {}), **metadata}


def _cut(task: Task, history_length: int | None, *, include_artifacts: bool) -> Task:
    if history_length is not None:
        task.history = task.history[-history_length:] if history_length else []
    if not include_artifacts:
        task.artifacts = []
    return task


def _matches(task: Task, query: ListTasksQuery, after: int | None) -> bool:
    if query.status is not None and task.status.state is not query.status:
        return False
    return after is None or _place(task)[0] >= after


def _place(task: Task) -> tuple[int, str]:
    """Return the sort key of a task in a list: the time of its status, then its id."""
    changed = 0
    with suppress(InvalidTaskRequest):
        changed = moment(task.status.timestamp or "")
    return changed, task.id


def _token(task: Task, query: ListTasksQuery) -> str:
    changed, task_id = _place(task)
    return f"{_mark(query)}.{changed}.{task_id}"


def _read_token(token: str, query: ListTasksQuery) -> tuple[int, str]:
    mark, _, place = token.partition(".")
    changed, _, task_id = place.partition(".")
    if mark != _mark(query) or not (changed.isascii() and changed.isdigit() and task_id):
        raise InvalidTaskRequest("the page token is not one of this list")
    return int(changed), task_id


def _mark(query: ListTasksQuery) -> str:
    """Return a digest of the query, which binds a page token to its list."""
    asked = repr((query.context_id, query.status, query.status_timestamp_after))
    return sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:12]


# ------------------------------------------------------------------------------------------------ dictionaries of tasks


Object = dict[str, Any]

_FILE = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
_OTHER = {"filename": "name"}


def task_object(task: Task, version: int, before: list[Object]) -> Object:
    """Return the dictionary of a task; ``before`` are its previous statuses.

    {"id": "…", "contextId": "…",
     "status": {"state": "input_required", "message": "text or None", "timestamp": "…",
                "version": 7, "said": {the whole message of the agent}},
     "artifacts": [{"artifactId": "…", "index": 0, "parts": [{"type": "data", "data": {…}, "mediaType": "…"}]}],
     "history": [the statuses before],
     "messages": [{"messageId": "…", "role": "user", "parts": […]}],
     "metadata": {…}}
    """
    found: Object = {
        "id": task.id,
        "contextId": task.context_id,
        "status": status_object(task.status, version),
        "artifacts": [artifact_object(artifact, index) for index, artifact in enumerate(task.artifacts)],
        "history": before,
        "messages": [message_object(message) for message in task.history],
    }
    if task.metadata is not None:
        found["metadata"] = task.metadata
    return found


def task_of(found: Object) -> Task:
    """Return the task of a dictionary."""
    return Task(
        id=found["id"],
        context_id=found["contextId"],
        status=status_of(found["status"]),
        artifacts=[_artifact(artifact) for artifact in found.get("artifacts") or ()],
        history=[_message(message) for message in found.get("messages") or ()],
        **({"metadata": found["metadata"]} if found.get("metadata") is not None else {}),
    )


def status_object(status: TaskStatus, version: int) -> Object:
    message = status.message
    found: Object = {"state": status.state.name, "message": message.text if message is not None else None}
    found |= {"timestamp": status.timestamp, "version": version}
    if message is not None:
        found["said"] = message_object(message)
    return found


def status_of(found: Object) -> TaskStatus:
    given: Object = {"state": TaskState(found["state"]), "timestamp": found.get("timestamp")}
    if found.get("said") is not None:
        given["message"] = _message(found["said"])
    return TaskStatus(**given)


def version_of(found: Object) -> int:
    """Return the version of a stored task; 1 if another program stored it without a version."""
    version = found["status"].get("version")
    return version if isinstance(version, int) else 1


def artifact_object(artifact: Artifact, index: int) -> Object:
    found = _dumped(artifact)
    return {**found, "index": index, "parts": [_part_object(part) for part in found["parts"]]}


def message_object(message: Message) -> Object:
    found = _dumped(message)
    return {**found, "role": message.role.name, "parts": [_part_object(part) for part in found["parts"]]}


def _dumped(model: WireModel) -> Object:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _artifact(found: Object) -> Artifact:
    index = found.get("index", 0)
    parts = [_part(part) for part in found["parts"]]
    return Artifact.model_validate({"artifactId": f"artifact-{index}", **found, "parts": parts})


def _message(found: Object) -> Message:
    parts = [_part(part) for part in found["parts"]]
    return Message.model_validate({**found, "role": Role(found["role"]), "parts": parts})


def _part_object(part: Object) -> Object:
    if "text" in part or "data" in part:
        return {"type": "text" if "text" in part else "data"} | _renamed(part, _OTHER)
    return {"type": "file"} | _renamed(part, _FILE)


def _part(found: Object) -> Object:
    names = _FILE if found.get("type") == "file" else _OTHER
    part = _renamed(found, {outside: inside for inside, outside in names.items()})
    part.pop("type", None)
    return part


def _renamed(part: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in part.items()}
