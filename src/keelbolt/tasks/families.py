"""The collections, logs and queues of tasks. All data of a task is in the partition of its tenant and owner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict

from keelbolt.auth.principal import ANONYMOUS, Principal
from keelbolt.data.families import EVERYTHING, ByAny, ByField, ByScan, Face, Family, Subject, SubjectLocation
from keelbolt.kernel import Collection, Detach, Index, Kernel, Query, Record, Scope
from keelbolt.kernel.requests import check_key
from keelbolt.tasks.settings import RetentionPolicy

TASKS = "tasks"  # task id → its current status: small, rewritten when the status changes
SNAPSHOTS = "task_snapshots"  # task id → the state that its log produces, up to some seq
TEXTS = "task_texts"  # task id → its text, for full-text search: see texts.py
SEGMENTS = "task_segments"  # task id/spool/number → a segment of an artifact or of the history, written once
SENDS = "task_sends"  # key of a repeated send → the task it created or continued, and its body's digest: see sends.py
CONTEXTS = "task_contexts"  # context id → the value that workers store for the conversation
PUSH_CONFIGS = "task_push_configs"  # task id/config id → the webhook that receives the task's events
PUSH_CURSORS = "task_push_cursors"  # task id/config id → the last delivered seq, and the last errors
FILES = "task_files"  # task id/digest → a blob that the task holds: see files.py
SWEEPS = "task_sweeps"  # state → the time up to which the logs of its tasks are trimmed

EVENTS = "task_events"  # a stream per task: see notes.py
INBOX = "task_inbox"  # a stream per task: requests to a running task

QUEUE = "tasks"  # an item per task that needs a worker
WEBHOOKS = "webhooks"  # an item per push config that may have events to deliver


async def _locate(kernel: Kernel, subject: Subject) -> AsyncIterator[SubjectLocation]:
    """Yield the targets of a subject: a task or context in the partitions of its owner, or whole partitions.

    Raise InvalidName for an id that can't be stored.
    """
    match subject.kind:
        case "task" | "context":
            check_key(subject.id)
            for scope in _scopes(kernel, subject.owner, subject.tenant):
                yield SubjectLocation(scope, subject.kind, subject.id)
        case "user":
            for scope in _scopes(kernel, subject.id, subject.tenant):
                yield SubjectLocation(scope, EVERYTHING)
        case "tenant":
            first, last = (Principal(tenant=subject.id).partition, Principal(asked_tenant=subject.id).partition)
            async for scope in kernel.scopes():
                name = scope.partition
                if name.startswith(first) or name.endswith(last.removeprefix(ANONYMOUS.partition)):
                    yield SubjectLocation(scope, EVERYTHING)
        case _:
            pass


def _scopes(kernel: Kernel, owner: str, tenant: str) -> list[Scope]:
    """Return the scopes of this owner: for a tenant from the authenticator, and for a tenant from the request."""
    principals = [Principal(owner=owner, tenant=tenant)]
    if tenant:
        principals.append(Principal(owner=owner, asked_tenant=tenant))
    return [kernel.scoped(principal.partition) for principal in principals]


def _file_blob(record: Record) -> Iterator[Detach]:
    task_id, _, digest = record.key.rpartition("/")
    yield Detach(digest, file_holder(task_id))


def file_holder(task_id: str) -> str:
    """Return the holder name under which a task holds the blobs of its files."""
    return f"task/{task_id}"


async def _retain(kernel: Kernel, policy: RetentionPolicy, /, *, dry: bool) -> dict[str, int]:
    from keelbolt.tasks.stored_tasks import StoredTasks  # noqa: PLC0415 - circular: it imports the names above
    from keelbolt.tasks.sweep import sweep  # noqa: PLC0415

    await kernel.declare(*FAMILIES)
    removed = asdict(await sweep(StoredTasks(kernel), policy, dry=dry))
    return {what: count for what, count in removed.items() if count}


_UNNAMED = Query(SEGMENTS, {"task": None})  # segments of older versions, which did not write the field


def _has_task_in_key(record: Record, task_id: str) -> bool:
    return record.key.startswith(f"{task_id}/")


_OF_TASK = {"task": ByField("task")}
_TASK_INDEX = (Index("task", equal=("task",)),)

FACE = Face(
    name="tasks",
    kinds=("task", "context", "user", "tenant"),
    locate=_locate,
    policy=RetentionPolicy,
    retain=_retain,
    families=(
        Family(
            title="tasks",
            collection=Collection(
                TASKS,
                fields={"state": str, "context": str, "updated": int, "push": str},
                indexes=(
                    Index("updated", order="updated"),
                    Index("state", equal=("state",), order="updated"),
                    Index("context", equal=("context",), order="updated"),
                    Index("context_state", equal=("context", "state"), order="updated"),
                ),
                counters=((), ("state",)),
            ),
            subject="task",
            found_by={"context": ByField("context")},
            age="updated",
            beside=(SNAPSHOTS, TEXTS),
            logs=(EVENTS, INBOX),
            queues=(QUEUE,),
        ),
        Family(title="snapshots", collection=Collection(SNAPSHOTS)),
        Family(title="words", collection=Collection(TEXTS)),
        Family(
            title="segments",
            collection=Collection(SEGMENTS, fields={"task": str}, indexes=_TASK_INDEX),
            found_by={"task": ByAny((ByField("task"), ByScan(_UNNAMED, _has_task_in_key)))},
            apart=_OF_TASK,
            hidden=(_UNNAMED,),
        ),
        Family(
            title="idempotency keys",
            collection=Collection(SENDS, fields={"task": str}, indexes=_TASK_INDEX),
            found_by=_OF_TASK,
        ),
        Family(title="contexts", collection=Collection(CONTEXTS, indexes=(Index("key"),)), subject="context"),
        Family(
            title="push configs",
            collection=Collection(PUSH_CONFIGS, fields={"task": str}, indexes=(*_TASK_INDEX, Index("key"))),
            found_by=_OF_TASK,
            beside=(PUSH_CURSORS,),
            queues=(WEBHOOKS,),
            hides=("token", "credentials", "secret", "sealed"),
        ),
        Family(title="push cursors", collection=Collection(PUSH_CURSORS)),
        Family(
            title="files",
            collection=Collection(FILES, fields={"task": str}, indexes=_TASK_INDEX),
            found_by=_OF_TASK,
            blobs=_file_blob,
        ),
        Family(title="sweeps", collection=Collection(SWEEPS, indexes=(Index("key"),)), travels=False),
    ),
)
FAMILIES = tuple(FACE.collections())


def lane_of(scope: Scope) -> str:
    """Return the fairness key: the tenant. Tenants take turns in a queue; within a tenant, its owners (partitions)."""
    return scope.partition.partition("/")[0]
