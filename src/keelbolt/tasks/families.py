"""Where tasks lie in the kernel. Everything of one task is in one partition, which is its tenant's and owner's."""

from __future__ import annotations

from keelbolt.storage import Collection, Index

TASKS = "tasks"  # task id → where it stands: narrow, rewritten when its status changes
SNAPSHOTS = "task_snapshots"  # task id → what its log amounts to, up to some seq
SEGMENTS = "task_segments"  # task id/spool/number → a stretch of an artifact or of the history, written once
SENDS = "task_sends"  # key of a repeated send → the task it made or reached, and a digest of its body: see sends.py
CONTEXTS = "task_contexts"  # context id → what the worker keeps about the conversation
PUSH_CONFIGS = "task_push_configs"  # task id/config id → where to tell about the task
PUSH_CURSORS = "task_push_cursors"  # task id/config id → up to where it was told, and what went wrong
FILES = "task_files"  # task id/digest → a blob that the task holds: see files.py
SWEEPS = "task_sweeps"  # state → up to which time the logs of its tasks are trimmed

EVENTS = "task_events"  # a stream per task: see notes.py
INBOX = "task_inbox"  # a stream per task: what others want of a running task

QUEUE = "tasks"  # an item per task that wants a worker
WEBHOOKS = "webhooks"  # an item per push config that may have something to deliver
ERASURES = "task_erasures"  # an item per task that is gone and has segments or files left: see erase.py

FAMILIES: tuple[Collection, ...] = (
    Collection(
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
    Collection(SNAPSHOTS),
    Collection(SEGMENTS),
    Collection(SENDS, fields={"task": str}, indexes=(Index("task", equal=("task",)),)),
    Collection(CONTEXTS, indexes=(Index("key"),)),
    Collection(PUSH_CONFIGS, fields={"task": str}, indexes=(Index("task", equal=("task",)), Index("key"))),
    Collection(PUSH_CURSORS),
    Collection(FILES, fields={"task": str}, indexes=(Index("task", equal=("task",)),)),
    Collection(SWEEPS),
)


def lane_of(partition: str) -> str:
    """Return the tenant: tenants take turns in a queue, and then the owners of a tenant, which are its partitions."""
    return partition.partition("/")[0]
