"""Translates commits of the engine to calls of `Storage`, and stored tasks and push configs back. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

from pydantic_core import from_json, to_json

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.kernel import Append, Complete, Delete, Draft, Entry, Insert, Operation, Put, Release, Replace
from keelbolt.kernel.commits import Check, address
from keelbolt.kernel.records import Absent, Version
from keelbolt.kernel.work import Bury, Fence, Retry
from keelbolt.protocol.types import Artifact, Message, Task, TaskState, encode
from keelbolt.tasks.families import CONTEXTS, EVENTS, INBOX, PUSH_CONFIGS, PUSH_CURSORS, QUEUE, TASKS
from keelbolt.tasks.listing import ListTasksQuery, ListTasksResult
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote, read_note
from keelbolt.tasks.pushes import push_ids, push_key
from keelbolt.tasks.storage.contract import ArtifactWrite
from keelbolt.tasks.storage.kernel import artifact_note

OWNER = "keelbolt.owner"  # owner of a stored task, in its metadata, because a Storage has no owners


@runtime_checkable
class ListsOwned(Protocol):
    """A storage that can list the tasks of one owner, by their metadata."""

    async def list_owned(self, query: ListTasksQuery, partition: str) -> ListTasksResult:
        """Return a page as `Storage.list_tasks` does, with tasks of this partition only; see `partition_of`."""


def partition_of(task: Task) -> str:
    """Return the partition of a stored task's owner."""
    owner: str = (task.metadata or {}).get(OWNER, ANONYMOUS.partition)
    return owner


def owned_key(partition: str, key: str) -> str:
    """Return the key for data of this owner in a storage without owners: unique for each owner and key.

    Keys of anonymous callers stay as they are, unless they look like those of an owner.
    """
    if partition == ANONYMOUS.partition and not key.startswith(OWNER):
        return key
    return f"{OWNER}/{quote(partition, safe='')}/{key}"


@dataclass(slots=True)
class TaskUpdate:
    """The arguments of one call of `Storage.update_task`."""

    state: TaskState | None = None
    status_message: Message | None = None
    artifacts: list[ArtifactWrite] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.state is not None or self.artifacts or self.messages or self.metadata)

    def take(self, note: Note) -> None:
        match note:
            case MessageNote():
                self.messages.append(Message.model_validate_json(note.data))
            case StatusNote():
                said = from_json(note.status).get("message")
                self.state = note.state
                self.status_message = Message.model_validate(said) if said is not None else None
                if note.said is not None:
                    self.messages.append(Message.model_validate_json(note.said))
            case ArtifactNote():
                artifact = Artifact.model_validate_json(b'{%b,"parts":[%b]}' % (note.about, note.parts))
                self.artifacts.append(ArtifactWrite(artifact, append=note.append))
            case OtherNote():
                if note.kind == "metadata":
                    self.metadata.update(note.body)


def written(operations: Sequence[Operation]) -> TaskUpdate:
    """Return the changes that this commit makes to its task."""
    change = TaskUpdate()
    for operation in operations:
        if isinstance(operation, Append) and operation.log == EVENTS:
            for draft in operation.entries:
                change.take(_note(draft))
    return change


def created(change: TaskUpdate, message_id: str) -> TaskUpdate:
    """Remove the changes that `Storage.create_task` has already stored: the message, and the state submitted."""
    change.messages = [message for message in change.messages if message.message_id != message_id]
    if change.state is TaskState.submitted:
        change.state = None
    return change


def deleted(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, Delete) and operation.collection == TASKS for operation in operations)


def inserted(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, Insert) and operation.collection == TASKS for operation in operations)


def context_written(operations: Sequence[Operation]) -> tuple[str, Any] | None:
    """Return the context that this commit writes, and its new value."""
    for operation in operations:
        if isinstance(operation, Put | Insert | Replace) and operation.collection == CONTEXTS:
            return operation.key, from_json(operation.body)
    return None


def subject_of(operations: Sequence[Operation]) -> str | None:
    """Return the task or context that a commit changes; a context also if the commit checks the fence of a task."""
    places = [address(operation) for operation in operations]
    if context := next((name for family, name in places if family == CONTEXTS), None):
        return f"{CONTEXTS}/{context}"
    return next((name for family, name in places if family in (TASKS, EVENTS, INBOX, QUEUE)), None)


def checks_of(operations: Sequence[Operation]) -> list[Operation]:
    """Return the checks of a commit, without its writes."""
    checks: list[Operation] = []
    for operation in operations:
        match operation:
            case Insert():
                checks.append(Absent(operation.collection, operation.key))
            case Replace():
                checks.append(Version(operation.collection, operation.key, operation.version))
            case Delete(version=int(version)):
                checks.append(Version(operation.collection, operation.key, version))
            case Complete() | Release() | Retry() | Bury():
                checks.append(Fence(operation.queue, operation.key, operation.fence))
            case _:
                if isinstance(operation, Check):
                    checks.append(operation)
    return checks


def difference(known: Task | None, stored: Task) -> list[Note]:
    """Return the notes that lead from the known task to the stored one."""
    notes: list[Note] = [
        MessageNote(encode(message)) for message in stored.history[len(known.history) if known else 0 :]
    ]
    have = {artifact.artifact_id: artifact for artifact in known.artifacts} if known else {}
    notes += [
        artifact_note(artifact, append=False)
        for artifact in stored.artifacts
        if have.get(artifact.artifact_id) != artifact
    ]
    metadata = {name: value for name, value in (stored.metadata or {}).items() if name != OWNER}
    if metadata and metadata != (known.metadata if known else None):
        notes.append(OtherNote("metadata", metadata))
    if known is None or (known.status.state, known.status.message) != (stored.status.state, stored.status.message):
        notes.append(StatusNote(stored.status.state, encode(stored.status)))
    return notes


def _note(draft: Draft) -> Note:
    return read_note(Entry(0, draft.kind, draft.data, 0))


# ------------------------------------------------------------------------------------------------------ mirrored pushes


@runtime_checkable
class KeepsPushConfigs(Protocol):
    """A storage that also keeps the push configs of tasks."""

    async def keep_push_config(self, task_id: str, config_id: str, config: Any) -> None:
        """Store this config (JSON), replacing the one with the same id; None deletes it."""

    async def load_push_configs(self, task_id: str) -> Mapping[str, Any]:
        """Return the configs of a task, by id."""


def pushes_written(operations: Sequence[Operation]) -> Iterator[tuple[str, str, Any]]:
    """Yield the configs that a commit writes: task id, config id, and the config (None: it is deleted)."""
    for operation in operations:
        if isinstance(operation, Put | Insert | Replace | Delete) and operation.collection == PUSH_CONFIGS:
            body = None if isinstance(operation, Delete) else from_json(operation.body)
            yield *push_ids(operation.key), body


def pushes_adopted(task_id: str, configs: Mapping[str, Any], seq: int) -> list[Operation]:
    """Return the operations that restore the configs of a stored task; they receive the events after seq ``seq``."""
    cursor = to_json({"seq": seq, "late": True})
    operations: list[Operation] = []
    for config_id, config in configs.items():
        key = push_key(task_id, config_id)
        operations.append(Put(PUSH_CONFIGS, key, to_json(config), {"task": task_id}))
        operations.append(Put(PUSH_CURSORS, key, cursor))
    return operations
