"""The storage of tasks over a kernel: the tasks of one principal, in its partition.

The version of a task is the head of its log, because every write appends at least one note to it. So the cost of a
write does not depend on the size of the task: messages and chunks of artifacts are appended without a read, and only a
new status or metadata rewrites the small record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Any, Generic, Self, cast

from pydantic_core import from_json

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.errors import (
    CommitRefused,
    ConcurrencyError,
    InvalidAgentResponseError,
    InvalidRequest,
    InvalidTaskRequest,
    StorageBusy,
    TaskNotFoundError,
    TaskTerminalStateError,
)
from keelbolt.kernel import (
    Clock,
    Head,
    Insert,
    Kernel,
    Operation,
    Present,
    Put,
    Receipt,
    Remove,
    Replace,
    new_id,
)
from keelbolt.protocol.types import Artifact, Message, Task, TaskState, WireModel, encode, timestamp
from keelbolt.tasks.families import CONTEXTS, EVENTS, FAMILIES, QUEUE, SENDS, TASKS
from keelbolt.tasks.listing import ListTasksQuery, ListTasksResult, list_tasks
from keelbolt.tasks.notes import ArtifactNote, MessageNote, Note, OtherNote, StatusNote, append_notes
from keelbolt.tasks.parts import check_depth, json_bytes
from keelbolt.tasks.pushes import nudges
from keelbolt.tasks.record import CurrentTurn, TaskRecord, check_context_id, is_task_id
from keelbolt.tasks.storage.contract import ArtifactWrite, ContextT, Storage
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks, snapshot_operations
from keelbolt.tasks.sweep import erase_context, erase_task
from keelbolt.tasks.view import SNAPSHOT_ENTRIES, TaskView

RETRIES = 50


class KernelStorage(Storage[ContextT], Generic[ContextT]):
    """Tasks in a kernel. Entering opens the kernel and leaving closes it, if the storage owns the kernel."""

    def __init__(
        self, kernel: Kernel, principal: Principal = ANONYMOUS, *, clock: Clock | None = None, owns: bool = False
    ) -> None:
        self.kernel = kernel
        self.principal = principal
        self.scope = kernel.scoped(principal.partition)
        self._store = StoredTasks(kernel, clock=clock)
        self._owns = owns
        self._entered = 0

    async def __aenter__(self) -> Self:
        if self._owns and self._entered == 0:
            await self.kernel.open()
        self._entered += 1
        try:
            await self.kernel.declare(*FAMILIES)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._entered -= 1
        if self._owns and self._entered == 0:
            await self.kernel.close()

    def scoped(self, principal: Principal) -> KernelStorage[ContextT]:
        """Return the storage of this principal: its own tasks and contexts, and no others."""
        return KernelStorage(self.kernel, principal, clock=self._store.clock)

    async def health_check(self) -> dict[str, Any]:
        """Return ``ok`` if reads and writes work; never raises."""
        health = await self.kernel.health()
        status = "ok" if health.reads and health.writes else "read-only" if health.reads else "down"
        return {"status": status, "engine": health.engine, "detail": health.detail}

    # ----------------------------------------------------------------------------------------------------------- load

    async def load_task(
        self, task_id: str, history_length: int | None = None, *, include_artifacts: bool = True
    ) -> Task | None:
        if history_length is not None and (type(history_length) is not int or history_length < 0):
            raise InvalidTaskRequest(f"history_length must be a non-negative integer, not {history_length!r}")
        task = await self._find(task_id)
        if task is None:
            return None
        return await self._store.task(task, history_length=history_length, include_artifacts=include_artifacts)

    async def _find(self, task_id: str) -> StoredTask | None:
        return await self._store.find(self.scope, task_id) if is_task_id(task_id) else None

    async def get_version(self, task_id: str) -> int | None:
        """Return the version of the task, or None."""
        if not is_task_id(task_id):
            return None
        return (await self.scope.log_state(EVENTS, task_id)).head or None

    async def list_tasks(self, query: ListTasksQuery) -> ListTasksResult:
        """Return a page of the matching tasks, newest status first; see `keelbolt.tasks.listing`."""
        page = await list_tasks(self._store, self.scope, query)
        tasks = [task if isinstance(task, Task) else Task.model_validate_json(task) for task in page.tasks]
        return ListTasksResult(
            tasks=tasks,
            next_page_token=page.next_page_token,
            page_size=page.page_size,
            total_size=page.total_size,
        )

    # --------------------------------------------------------------------------------------------------------- create

    async def create_task(self, context_id: str, message: Message, *, idempotency_key: str | None = None) -> Task:
        check_context_id(context_id)
        key = _key(context_id, idempotency_key) if idempotency_key is not None else None
        for _ in range(RETRIES):
            task = await self._create(context_id, message, key)
            if task is not None:
                return await self._store.task(task)
        raise StorageBusy("the task with this key was created and deleted concurrently; try again")

    async def _create(self, context_id: str, message: Message, key: str | None) -> StoredTask | None:
        """Return the new task, or the one that has the key; None: it was deleted meanwhile."""
        task_id = new_id()
        now = self._store.clock.wall()
        text = json_of(message.model_copy(update={"task_id": task_id, "context_id": context_id}), "the message")
        submitted = StatusNote.of(TaskState.submitted, timestamp(now))
        notes: list[Note] = [MessageNote(text), submitted]
        record = TaskRecord(
            task_id, context_id, submitted.state, submitted.status, now, now, CurrentTurn(1, message.message_id)
        )
        operations: list[Operation] = [record.insert(), append_notes(task_id, notes)]
        if key is not None:
            operations.append(Insert(SENDS, key, b"{}", {"task": task_id}))
        try:
            await self._commit(operations)
        except CommitRefused as refusal:
            if key is None or getattr(refusal.check, "collection", None) != SENDS:
                raise
            return await self._with_key(key)
        view = TaskView(task_id, context_id)
        view.apply(notes)
        return StoredTask(self.scope, record, view)

    async def _with_key(self, key: str) -> StoredTask | None:
        found = await self.scope.get(SENDS, key)
        return await self._store.find(self.scope, str(found.fields["task"])) if found is not None else None

    # --------------------------------------------------------------------------------------------------------- update

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
        if not is_task_id(task_id):
            raise TaskNotFoundError(str(task_id))
        if expected_version is not None and (type(expected_version) is not int or expected_version < 0):
            raise InvalidTaskRequest(f"a version must be a non-negative integer, not {expected_version!r}")
        change = Change.of(state, status_message, artifacts, messages, task_metadata)
        for _ in range(RETRIES):
            version = await self._update(task_id, change, expected_version)
            if version is not None:
                if version // SNAPSHOT_ENTRIES != (version - len(change)) // SNAPSHOT_ENTRIES:
                    await self._snapshot(task_id)
                return version
        raise StorageBusy("concurrent changes to the task prevented this write; try again later")

    async def _update(self, task_id: str, change: Change, expected: int | None) -> int | None:
        """Return the new version; None: another writer was first, so retry."""
        operations: list[Operation] = [] if expected is None else [Head(EVENTS, task_id, expected)]
        now = self._store.clock.wall()
        notes = change.notes(timestamp(now))
        record = await self._store.record(self.scope, task_id)
        if record is None:
            raise TaskNotFoundError(task_id)
        if change.appends_only:
            operations.append(Present(TASKS, task_id))
        else:
            if expected is not None and (found := await self.get_version(task_id)) != expected:
                raise ConcurrencyError(task_id, expected=expected, found=found)
            if change.state is not None and record.state.terminal:
                raise TaskTerminalStateError(task_id, record.state)
            change.write(record, notes, now)
            operations.append(record.replace())
            if record.state.terminal:  # a worker that runs the task loses it here, so that no note follows the end
                operations.append(Remove(QUEUE, task_id))
        operations += nudges(self.scope, record, notes)
        try:
            receipt = await self._commit([*operations, append_notes(task_id, notes)])
        except CommitRefused as refusal:
            if isinstance(refusal.check, Present) or (isinstance(refusal.check, Head) and refusal.found == 0):
                raise TaskNotFoundError(task_id) from None
            if isinstance(refusal.check, Head):
                found = refusal.found if isinstance(refusal.found, int) else None
                raise ConcurrencyError(task_id, expected=expected, found=found) from None
            return None
        return receipt.seqs(EVENTS, task_id)[-1]

    async def _snapshot(self, task_id: str) -> None:
        """Write a snapshot if it is due, so that loading stays cheap. If another write comes first, skip it."""
        task = await self._find(task_id)
        if task is None or not task.view.snapshot_due():
            return
        head = Head(EVENTS, task_id, task.version)
        try:
            await self._commit([head, *snapshot_operations(task.view)])
        except CommitRefused:
            return

    async def _commit(self, operations: list[Operation]) -> Receipt:
        try:
            return await self.scope.commit(*operations)
        except InvalidRequest as error:
            raise InvalidTaskRequest(f"this can't be stored: {error}") from error

    # --------------------------------------------------------------------------------------------------------- delete

    async def delete_task(self, task_id: str) -> bool:
        """Delete everything of the task; return whether there was one."""
        return await erase_task(self._store, self.scope, task_id) if is_task_id(task_id) else False

    async def delete_context(self, context_id: str) -> int:
        """Delete all tasks of a context and its value; return the number of tasks."""
        check_context_id(context_id)
        return await erase_context(self.scope, context_id)

    # ------------------------------------------------------------------------------------------------------- contexts

    async def load_context(self, context_id: str) -> ContextT | None:
        return (await self.load_context_version(context_id))[0]

    async def load_context_version(self, context_id: str) -> tuple[ContextT | None, int]:
        """Return the value of a context, and its version (0: there is none)."""
        check_context_id(context_id)
        record = await self.scope.get(CONTEXTS, context_id)
        return (None, 0) if record is None else (cast("ContextT", from_json(record.body)), record.version)

    async def update_context(self, context_id: str, context: ContextT, *, version: int | None = None) -> int:
        """Store the value (JSON) of a context; return its new version.

        With ``version``, write only if the context still has this version (from `load_context_version`), else raise
        ConcurrencyError.
        """
        check_context_id(context_id)
        body = json_of(context, "the context")
        operation: Operation
        match version:
            case None:
                operation = Put(CONTEXTS, context_id, body)
            case 0:
                operation = Insert(CONTEXTS, context_id, body)
            case _:
                operation = Replace(CONTEXTS, context_id, version, body)
        try:
            receipt = await self._commit([operation])
        except CommitRefused as refusal:
            found = refusal.found if isinstance(refusal.found, int) else None
            raise ConcurrencyError(context_id, expected=version, found=found) from None
        return receipt.version(CONTEXTS, context_id)


def _key(context_id: str, idempotency_key: str) -> str:
    """Return the record key of an idempotency key: among the keys of sends, none of which begins with a tilde."""
    if not isinstance(idempotency_key, str):
        raise InvalidTaskRequest("an idempotency key must be a string")
    text = f"{len(context_id)}:{context_id}{idempotency_key}"
    return "~~" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -------------------------------------------------------------------------------------------------------------- changes


@dataclass(frozen=True, slots=True)
class Change:
    """An update of a task, encoded at the call: later changes of the caller's objects have no effect."""

    state: TaskState | None
    status_message: bytes | None
    appended: tuple[Note, ...]
    metadata: dict[str, Any] | None

    @classmethod
    def of(
        cls,
        state: TaskState | None,
        status_message: Message | None,
        artifacts: Sequence[ArtifactWrite] | None,
        messages: Sequence[Message] | None,
        task_metadata: dict[str, Any] | None,
    ) -> Change:
        """Encode an update. Raises InvalidTaskRequest."""
        said = None
        if state is not None:
            state = _state(state)
            if status_message is not None:
                said = json_of(status_message, "the status message")
        appended: list[Note] = [MessageNote(json_of(message, "a message")) for message in messages or ()]
        appended += [artifact_note(write.artifact, append=write.append) for write in artifacts or ()]
        metadata = from_json(json_of(task_metadata, "the metadata")) if task_metadata else None
        return cls(state, said, tuple(appended), metadata)

    @property
    def appends_only(self) -> bool:
        """Whether the record does not change."""
        return self.state is None and self.metadata is None

    def __len__(self) -> int:
        return max(1, len(self.appended) + (self.state is not None) + (self.metadata is not None))

    def notes(self, now: str) -> list[Note]:
        """Return the notes for the log. The status comes last, so that no note of a turn follows its end."""
        notes = list(self.appended)
        if self.metadata is not None:
            notes.append(OtherNote("metadata", self.metadata))
        if self.state is not None:
            notes.append(StatusNote.of(self.state, now, self.status_message))
        return notes or [OtherNote("touch", {})]

    def write(self, record: TaskRecord, notes: Sequence[Note], now: int) -> None:
        """Update the record."""
        if self.metadata is not None:
            record.metadata = {**record.metadata, **self.metadata}
        last = notes[-1]
        if self.state is not None and isinstance(last, StatusNote):
            record.state, record.status, record.updated = self.state, last.status, now


def artifact_note(artifact: Artifact, *, append: bool) -> ArtifactNote:
    text = json_of(artifact, "an artifact")
    body = from_json(text)
    parts = json_bytes(body.pop("parts"), "an artifact")[1:-1]
    about = {"artifactId": body.pop("artifactId"), **body}
    return ArtifactNote(artifact.artifact_id, json_bytes(about, "an artifact")[1:-1], parts, append)


def json_of(value: Any, what: str) -> bytes:
    """Return the JSON of a model or another value; raise InvalidTaskRequest."""
    try:
        text = encode(value) if isinstance(value, WireModel) else json_bytes(value, what)
        check_depth(text)
    except (InvalidAgentResponseError, ValueError) as error:
        raise InvalidTaskRequest(f"{what} is not JSON: {str(error).splitlines()[0][:200]}") from None
    return text


def _state(state: TaskState) -> TaskState:
    try:
        return TaskState(state)
    except ValueError:
        raise InvalidTaskRequest(f"{state!r} is not a state of a task") from None
