"""Runs the engine on a user-defined storage, which needs only three methods.

The engine runs on a kernel in memory, and every change of a task is written through: first the checks of a commit are
made, then the change goes to the user's storage in one call, and only when that call has returned is the commit made in
memory and acknowledged. So clients never see data that the storage does not have. A task that is not in memory is
loaded from the storage.

    send ──▶ create_task ──▶ commit in memory ──▶ the worker runs
    note ──▶ checks ──▶ update_task ──▶ commit in memory ──▶ followers are notified

Features that need more than three methods are not available; `limits` lists them, and they are logged at start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from pydantic_core import from_json, to_json

from keelbolt.auth.principal import ANONYMOUS
from keelbolt.errors import (
    ConcurrencyError,
    KeelboltError,
    StorageBusy,
    StorageUnreachable,
    TaskNotFoundError,
    TaskTerminalStateError,
    UnsupportedOperationError,
)
from keelbolt.kernel import (
    Clock,
    Delete,
    Drop,
    Operation,
    Put,
    Query,
    Receipt,
    Record,
    Remove,
    Scope,
    Trim,
    new_id,
)
from keelbolt.kernel.memory import MemoryKernel
from keelbolt.protocol.types import TERMINAL, Message, Role, Task, TaskState
from keelbolt.tasks.families import (
    CONTEXTS,
    EVENTS,
    INBOX,
    PUSH_CONFIGS,
    PUSH_CURSORS,
    QUEUE,
    SEGMENTS,
    SNAPSHOTS,
    TASKS,
    WEBHOOKS,
)
from keelbolt.tasks.listing import moment
from keelbolt.tasks.mirrored import (
    OWNER,
    KeepsPushConfigs,
    ListsOwned,
    checks_of,
    context_written,
    created,
    deleted,
    difference,
    inserted,
    owned_key,
    partition_of,
    pushes_adopted,
    pushes_written,
    subject_of,
    written,
)
from keelbolt.tasks.notes import OtherNote, append_notes
from keelbolt.tasks.parts import agent_message, text_part
from keelbolt.tasks.record import CurrentTurn, TaskRecord
from keelbolt.tasks.storage.contract import Storage, overrides
from keelbolt.tasks.stored_tasks import StoredTask, StoredTasks, snapshot_operations
from keelbolt.tasks.view import TaskView

logger = logging.getLogger("keelbolt.tasks")

KEEP_SECONDS = 600.0  # time for which an ended task stays in memory, for its followers ...
KEEP_PUSHED_SECONDS = 86_400.0  # ... and the time if it has webhooks, whose receivers may be unreachable
STOPPED = "The agent was stopped before it finished this task."
KEPT_CONTEXTS = 10_000  # of sends that failed and may be repeated
RETRIES = 20
UNVERSIONED = (
    "several engines: two concurrent messages to a task may both be accepted and one be lost, and each engine may run "
    "the same message, since the storage has no versions (override get_version, and obey expected_version)"
)
_ALWAYS = (
    "takeover: when a process dies, no other process continues its tasks",
    "resume: a task that is running when this process ends can't continue later; a graceful shutdown marks it failed",
    "sends: repeated messages are recognised only while this process runs",
    "steps: the records of steps and sleeps, and ctx.state, are kept only while this process runs",
    "follow-ups: a message to a running task is stored only when its turn begins",
    "push: push configs are kept only while this process runs",
    "events: a client can resume a stream only while this process runs; later it gets the current task",
)


class Mirror:
    """A user-defined storage, and the kernel that writes through to it."""

    def __init__(self, storage: Storage[Any], *, clock: Clock | None = None) -> None:
        self.storage = storage
        self.kernel = MirrorKernel(self)
        self.store = MirrorStore(self.kernel, self, clock=clock)
        self.making: dict[str, str] = {}  # task id → id of the message that creates it
        self._contexts: dict[str, str] = {}  # message → context that was created for it, until its task runs here
        self.versioned = overrides(storage, "get_version")
        self.versions: dict[str, int] = {}  # task id → the known version of the stored task
        self.keeps_contexts = overrides(storage, "load_context") and overrides(storage, "update_context")

    @property
    def limits(self) -> tuple[str, ...]:
        """Features that the engine does not support on this storage."""
        keeps = isinstance(self.storage, KeepsPushConfigs)
        found = [limit for limit in _ALWAYS if not (keeps and limit.startswith("push:"))]
        if not self.versioned:
            found.append(UNVERSIONED)
        if isinstance(self.storage, ListsOwned):
            pass  # lists work for all owners
        elif overrides(self.storage, "list_tasks"):
            found.append("lists: only for anonymous callers, since the storage does not distinguish owners")
        else:
            found.append("lists: tasks can't be listed (override list_tasks)")
        if not overrides(self.storage, "delete_task"):
            found.append("erasing: tasks can't be erased (override delete_task)")
        if not self.keeps_contexts:
            found.append("contexts: context data is kept only while this process runs (override update_context)")
        return tuple(found)

    def warn(self) -> None:
        """Log the limits for operators."""
        name = type(self.storage).__name__
        logger.warning("%s is not one of Keelbolt's own storages. Limitations:\n%s", name, "\n".join(self.limits))

    # ---------------------------------------------------------------------------------------------------------- write

    def context_of(self, message: str) -> str:
        """Return a new context for a message; a repeat of a send that failed gets the same context."""
        if message not in self._contexts and len(self._contexts) >= KEPT_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
        return self._contexts.setdefault(message, new_id())

    def forget_context(self, message: str) -> None:
        """Forget the context of a message whose task exists."""
        self._contexts.pop(message, None)

    async def create(self, scope: Scope, context_id: str, message: Message, *, key: str | None) -> Task:
        """Create a task in the storage, which assigns the id. A ``key`` that was used before returns its task."""
        # A storage has no owners: without the owner in the key, one owner could get another owner's task.
        owner = scope.partition
        if key is not None:
            key = owned_key(owner, key)
        task: Task = await asked(self.storage.create_task(context_id, message, idempotency_key=key), self)
        if owner != ANONYMOUS.partition and not (task.metadata or {}).get(OWNER):
            await asked(self.storage.update_task(task.id, task_metadata={OWNER: owner}), self)
        if not self.versioned:
            return task
        # Another engine may have created and started it. Load it after the version, so that it is at least as new.
        version = await self._version(task.id)
        loaded: Task | None = await asked(self.storage.load_task(task.id), self)
        if await scope.get(TASKS, task.id) is None:  # otherwise the version belongs to the state in memory
            self._know(task.id, version)
        return loaded or task

    async def _version(self, task_id: str) -> int | None:
        """Read the version of the stored task, before the task is loaded."""
        if not self.versioned:
            return None
        version: int | None = await asked(self.storage.get_version(task_id), self)
        return version

    def _know(self, task_id: str, version: int | None) -> None:
        """Remember the version of a task that is loaded into memory."""
        if version is None:
            self.versions.pop(task_id, None)
        else:
            self.versions[task_id] = version

    async def write(self, scope: Scope, subject: str, operations: tuple[Operation, ...]) -> None:
        """Write the changes of this commit to the storage."""
        if (context := context_written(operations)) is not None:
            if overrides(self.storage, "update_context"):
                context_id, value = context
                await asked(self.storage.update_context(owned_key(scope.partition, context_id), value), self)
            return
        if deleted(operations):
            if not overrides(self.storage, "delete_task"):
                raise UnsupportedOperationError(f"{type(self.storage).__name__} can't delete tasks")
            await asked(self.storage.delete_task(subject), self)
            return
        if isinstance(self.storage, KeepsPushConfigs):
            for push in pushes_written(operations):
                await asked(self.storage.keep_push_config(*push), self)
        change = written(operations)
        if inserted(operations):
            change = created(change, self.making.get(subject, ""))
        if change:
            version: int = await asked(
                self.storage.update_task(
                    subject,
                    change.state,
                    status_message=change.status_message,
                    artifacts=change.artifacts or None,
                    messages=change.messages or None,
                    task_metadata=change.metadata or None,
                    expected_version=self.versions.get(subject),
                ),
                self,
            )
            if self.versioned:
                self.versions[subject] = version

    # ----------------------------------------------------------------------------------------------------------- read

    async def stored(self, scope: Scope, task_id: str) -> Task | None:
        """Return the stored task, if it belongs to this owner."""
        version = await self._version(task_id)
        task: Task | None = await asked(self.storage.load_task(task_id), self)
        if task is None or partition_of(task) != scope.partition:
            return None
        self._know(task_id, version)
        return task

    async def pushes(self, task_id: str) -> Mapping[str, Any]:
        """Return the push configs of a stored task, if the storage keeps them."""
        if not isinstance(self.storage, KeepsPushConfigs):
            return {}
        found: Mapping[str, Any] = await asked(self.storage.load_push_configs(task_id), self)
        return found

    async def give_up_the_rest(self) -> None:
        """Fail the unfinished tasks of this process, because no other process can run them."""
        async for scope in self.kernel.scopes():
            cursor: str | None = ""
            while cursor is not None:
                page = await scope.list_work(QUEUE, state="waiting", cursor=cursor or None)
                for item in page.items:
                    with suppress(KeelboltError):
                        await self._give_up(scope, item.key)
                cursor = page.cursor

    async def _give_up(self, scope: Scope, task_id: str) -> None:
        task = await self.store.find(scope, task_id)
        if task is not None and not task.view.state.terminal and not task.view.state.paused:
            text = agent_message(task_id, task.record.context_id, text_part(STOPPED))
            said = Message.model_validate_json(text)
            change = self.storage.update_task(task_id, TaskState.failed, status_message=said, messages=[said])
            await asked(change, self)


async def asked(call: Awaitable[Any], mirror: Mirror) -> Any:
    """Await a call of the storage. Its own exceptions are logged and raised as StorageUnreachable."""
    try:
        return await call
    except KeelboltError:
        raise
    except Exception as error:
        name = type(mirror.storage).__name__
        logger.exception("%s failed", name)
        raise StorageUnreachable(f"the storage {name} failed; nothing was acknowledged, try again later") from error


class MirrorKernel(MemoryKernel):
    """The kernel in memory; a commit for a task or a context is first written to the storage.

    Commits for the same task run in the order of their calls, so that checks still hold at the write; commits for
    different tasks don't wait for each other.
    """

    def __init__(self, mirror: Mirror) -> None:
        super().__init__()
        self._mirror = mirror
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._under_way: set[asyncio.Task[Receipt]] = set()

    def lock(self, subject: str) -> asyncio.Lock:
        lock = self._locks.get(subject)
        if lock is None:
            lock = self._locks[subject] = asyncio.Lock()
        return lock

    def commit(self, partition: str, *operations: Operation) -> Awaitable[Receipt]:
        subject = subject_of(operations)
        if subject is None:
            return super().commit(partition, *operations)
        task = asyncio.ensure_future(self._through(self.scoped(partition), subject, operations))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return asyncio.shield(task)  # canceling the caller does not cancel the write

    def commit_here(self, scope: Scope, *operations: Operation) -> Awaitable[Receipt]:
        """Commit in memory alone."""
        return super().commit(scope.partition, *operations)

    async def _through(self, scope: Scope, subject: str, operations: tuple[Operation, ...]) -> Receipt:
        async with self.lock(subject):
            for _ in range(RETRIES):
                if checks := checks_of(operations):
                    await self.commit_here(scope, *checks)
                try:
                    await self._mirror.write(scope, subject, operations)
                except ConcurrencyError:  # another process wrote the task: check again after loading its changes
                    await self._mirror.store.refresh(scope, subject)
                    continue
                except TaskTerminalStateError:
                    await self._mirror.store.refresh(scope, subject)
                    raise
                except TaskNotFoundError:
                    await self.forget(scope, subject)
                    raise
                except StorageUnreachable:  # the write may have happened, and changed the version
                    self._mirror.versions.pop(subject, None)
                    raise
                break
            else:
                raise StorageBusy("concurrent changes to the task prevented this write; try again later")
            receipt = await self.commit_here(scope, *operations)
        if written(operations).state in TERMINAL:
            self.forget_later(scope, subject)
        return receipt

    def forget_later(self, scope: Scope, task_id: str) -> None:
        """Remove an ended task from memory after some time."""
        asyncio.get_running_loop().call_later(KEEP_SECONDS, self._let_go, scope, task_id)

    def _let_go(self, scope: Scope, task_id: str, waited: bool = False) -> None:  # noqa: FBT001, FBT002
        asyncio.ensure_future(self._forget_in_time(scope, task_id, waited)).add_done_callback(_ignored)

    async def _forget_in_time(self, scope: Scope, task_id: str, waited: bool) -> None:  # noqa: FBT001
        pushed = (await scope.find(Query(PUSH_CONFIGS, {"task": task_id}))).records
        if pushed and not waited:
            asyncio.get_running_loop().call_later(KEEP_PUSHED_SECONDS, self._let_go, scope, task_id, True)
            return
        if pushed:
            for record in pushed:
                gone = (
                    Delete(PUSH_CONFIGS, record.key),
                    Delete(PUSH_CURSORS, record.key),
                    Remove(WEBHOOKS, record.key),
                )
                await self.commit_here(scope, *gone)
        await self.forget(scope, task_id)

    async def forget(self, scope: Scope, task_id: str) -> None:
        """Remove the task from memory, and its context with its last task; the storage has them.

        The keys of its sends stay.
        """
        record = await scope.get(TASKS, task_id)
        snapshot = await scope.get(SNAPSHOTS, task_id)
        keys = TaskView.from_index(task_id, "", snapshot.body).segment_keys() if snapshot is not None else []
        await self.commit_here(
            scope,
            Delete(TASKS, task_id),
            Delete(SNAPSHOTS, task_id),
            Drop(EVENTS, task_id),
            Drop(INBOX, task_id),
            Remove(QUEUE, task_id),
            *(Delete(SEGMENTS, key) for key in keys),
        )
        self._mirror.store.adopted.discard(task_id)
        self._mirror.versions.pop(task_id, None)
        if record is not None and self._mirror.keeps_contexts:
            context_id = str(record.fields["context"])
            if not (await scope.find(Query(TASKS, {"context": context_id}, "updated"), limit=1)).records:
                await self.commit_here(scope, Delete(CONTEXTS, context_id))

    async def _health(self) -> tuple[bool, bool, str]:
        """Return the health of the storage: memory is always healthy."""
        try:
            found = await self._mirror.storage.health_check()
        except Exception as error:
            logger.exception("health_check of %s failed", type(self._mirror.storage).__name__)
            return False, False, f"health_check failed: {type(error).__name__}"
        status = found.get("status")
        return status in ("ok", "read-only"), status == "ok", str(found.get("detail") or status)

    async def get(self, partition: str, collection: str, key: str) -> Record | None:
        if collection == CONTEXTS and overrides(self._mirror.storage, "load_context"):
            async with self.lock(f"{CONTEXTS}/{key}"):
                await self._refresh_context(partition, key)
        return await super().get(partition, collection, key)

    async def _refresh_context(self, partition: str, key: str) -> None:
        """Load a context into memory, where its version counts the changes, also those of other engines."""
        known = await super().get(partition, CONTEXTS, key)
        if known is not None and not self._mirror.keeps_contexts:
            return  # the storage does not have its changes
        stored = await asked(self._mirror.storage.load_context(owned_key(partition, key)), self._mirror)
        if stored is not None and (known is None or from_json(known.body) != from_json(to_json(stored))):
            await self.commit_here(self.scoped(partition), Put(CONTEXTS, key, to_json(stored)))

    async def close(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)
        await super().close()


def _ignored(future: asyncio.Future[None]) -> None:
    """Ignore errors of a kernel that was closed meanwhile."""
    if not future.cancelled():
        future.exception()


class MirrorStore(StoredTasks):
    """Reads from memory, and tasks that are not in memory from the storage."""

    def __init__(self, kernel: MirrorKernel, mirror: Mirror, *, clock: Clock | None = None) -> None:
        super().__init__(kernel, clock=clock)
        self._here = kernel
        self._mirror = mirror
        self.adopted: set[str] = set()  # tasks that were not created here: other processes may write them

    async def find(self, scope: Scope, task_id: str) -> StoredTask | None:
        found = await super().find(scope, task_id)
        if found is None or await self.is_run_elsewhere(found):
            async with self._here.lock(task_id):
                await self.refresh(scope, task_id)
            found = await super().find(scope, task_id)
        return found

    async def take_in(self, scope: Scope, task_id: str) -> None:
        await self.find(scope, task_id)

    async def is_run_elsewhere(self, task: StoredTask) -> bool:
        """Return whether another process may be writing the task."""
        if task.view.state.terminal or task.record.task_id not in self.adopted:
            return False
        return await task.scope.work(QUEUE, task.record.task_id) is None

    async def refresh(self, scope: Scope, task_id: str) -> None:
        """Load the stored state into memory. The caller holds the lock of the task."""
        stored = await self._mirror.stored(scope, task_id)
        known = await super().find(scope, task_id)
        if stored is None:
            if known is not None:
                await self._here.forget(scope, task_id)
        elif known is None:
            self.adopted.add(task_id)
            await self._adopt(scope, stored)
        else:
            await self._catch_up(known, stored)

    async def _adopt(self, scope: Scope, stored: Task) -> None:
        """Load a stored task that is new to this process.

        Its log starts trimmed: a follower with older sequence numbers gets a gap and the task as it is.
        """
        now = self.clock.wall()
        asked = [message.message_id for message in stored.history if message.role is Role.user]
        turn = CurrentTurn(max(1, len(asked)), asked[-1] if asked else "")
        record = TaskRecord(stored.id, stored.context_id, stored.status.state, b"{}", now, now, turn)
        notes = [OtherNote("attempt", {"turn": turn.number}), *difference(None, stored)]
        view = TaskView(stored.id, stored.context_id)
        view.apply(notes)
        record.status, record.metadata = view.status, view.metadata
        pushes = await self._mirror.pushes(stored.id)
        record.push = tuple(pushes)
        if stored.status.timestamp is not None:
            with suppress(KeelboltError):
                record.updated = record.created = moment(stored.status.timestamp)
        adopted = pushes_adopted(stored.id, pushes, len(notes))
        await self._here.commit_here(scope, record.insert(), append_notes(stored.id, notes), *adopted)
        if snapshot := snapshot_operations(view):  # none if it is too large: then the log keeps everything
            await self._here.commit_here(scope, Trim(EVENTS, stored.id, len(notes)), *snapshot)
        if view.state.terminal:
            self._here.forget_later(scope, stored.id)

    async def _catch_up(self, known: StoredTask, stored: Task) -> None:
        notes = difference(await self.task(known), stored)
        if not notes:
            return
        record, view = known.record, known.view
        before = view.state
        view.apply(notes)
        record.state, record.status, record.metadata = view.state, view.status, view.metadata
        record.updated = self.clock.wall()
        # Another engine that changed the state runs the task or ended it, so this engine removes its work item.
        lost = [Remove(QUEUE, view.task_id)] if view.state is not before else []
        if lost:
            self.adopted.add(view.task_id)
        await self._here.commit_here(known.scope, record.replace(), append_notes(view.task_id, notes), *lost)
        if view.state.terminal and not before.terminal:
            self._here.forget_later(known.scope, view.task_id)
